# Two commands matter: `make demo` and `make test`. Both install what they need the first time.
PYTHON ?= python3
BIN := .venv/bin
INSTALLED := .venv/.installed

.PHONY: demo test lint format install

demo: demo/report.html

demo/report.html: | $(INSTALLED)
	$(BIN)/widefield demo --out demo

test: $(INSTALLED)
	OMP_NUM_THREADS=1 $(BIN)/pytest -n 2 --dist worksteal -q

lint: $(INSTALLED)
	$(BIN)/ruff format --check src tests benchmarks
	$(BIN)/ruff check src tests benchmarks
	$(BIN)/mypy

format: $(INSTALLED)
	$(BIN)/ruff format src tests benchmarks
	$(BIN)/ruff check --fix src tests benchmarks

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev,onnx]'
	touch $@
