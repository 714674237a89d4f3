# Two commands matter: `make demo` and `make test`. Both install what they need the first time.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed
PYTHON_FILES := src tests benchmarks scripts studies
DOCS_INSTALLED := .venv/.docs-installed

.PHONY: demo test lint format tables new written torture hostile install site tutorials release-check

demo: demo/report.html

demo/report.html: | $(INSTALLED)
	$(BIN)/widefield demo --out demo

test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -q

lint: $(INSTALLED)
	$(BIN)/ruff format --check $(PYTHON_FILES)
	$(BIN)/ruff check $(PYTHON_FILES)
	$(BIN)/python scripts/tables.py --check
	$(BIN)/python scripts/tutorials.py --check
	$(BIN)/mypy
	$(MAKE) site

format: $(INSTALLED)
	$(BIN)/ruff format $(PYTHON_FILES)
	$(BIN)/ruff check --fix $(PYTHON_FILES)

# Writes what README, docs, the arguments.py of three packages and cli/calls.json take from other files.
tables: $(INSTALLED)
	$(BIN)/python scripts/tables.py

# Begin and end an addition: `make new KIND=objective NAME=my-loss` writes stubs and an entry of the
# registry, `make written NAME=my-loss` what follows from the code. CONTRIBUTING.md says the rest.
new: $(INSTALLED)
	@$(BIN)/python scripts/new.py "$(KIND)" "$(NAME)"

written: $(INSTALLED)
	@$(BIN)/python scripts/written.py "$(NAME)"

# Kills a small training run at random instants and at each weak point, and compares its endings;
# kills every command that writes at each step in which it touches a file, and fills its disk there.
# SAVE=1 keeps the results of this and of `make hostile` for the docs.
KILLS ?= 100
save = $(if $(SAVE),--json benchmarks/results/$(1).json)
torture: $(INSTALLED)
	$(BIN)/python tests/torture.py --kills $(KILLS) $(call save,torture)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore tests/kills.py $(call save,kills)
	OMP_NUM_THREADS=1 $(BIN)/python -W ignore tests/kills.py --ends full $(call save,full_disk)

# Calls commands with words and files that nobody should give them: no traceback, nothing lost.
N ?= 1000
hostile: $(INSTALLED)
	$(BIN)/python -W ignore tests/calls.py --cases $(N) $(call save,hostile)

# The documentation, in site/index.html; a warning is an error.
site: $(DOCS_INSTALLED)
	$(BIN)/sphinx-build -q -W --keep-going -c docs . site -d build/doctrees

# Executes the notebooks, and keeps their outputs.
tutorials: $(DOCS_INSTALLED)
	$(BIN)/python scripts/tutorials.py

# Builds wheel and source distribution, installs the wheel into new environments and tries it there;
# then the site and the notebooks. README's commands and the public API run outside the checkout.
release-check: $(DOCS_INSTALLED)
	$(BIN)/python scripts/release_check.py $(call save,release)
	$(MAKE) site
	$(BIN)/python scripts/tutorials.py --dry

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,faiss,onnx]'
	touch $@

$(DOCS_INSTALLED): $(INSTALLED)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]' build
	touch $@
