"""What `make new` writes is listed, is tested with the rest, and says what is to be filled in."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import new
import written

ROOT = Path(__file__).parents[1]

FILL_IN = {
    "objective": "write the paper's formula here",
    "view": "write here, by loops or a closed form, what a view",
    "planted": "write GOLDEN = [",
    "diagnostic": "write the formula here",
    "reader": "write a file of the format here",
    "lab": "compute the prediction here in another way",
}
"""What the first failing test of each kind says."""

LISTED = """
from widefield.data.planted import PLANTS
from widefield.data.readers.paths import READERS
from widefield.methods import METHODS
from widefield.metrics import DIAGNOSTICS
from widefield.views import VIEWS
from widefield_labs import claims
lists = (METHODS, VIEWS, PLANTS, DIAGNOSTICS, READERS, claims())
print(*(name for names in lists for name in names if name.startswith(("tried", ".tried"))))
"""

TESTED = """
import sys, pytest
sys.stdout.flush()
sys.exit(pytest.main(sys.argv[1:]))
"""

GENERAL = (
    "tests/conformance/test_methods.py",
    "tests/conformance/test_every_loss.py",
    "tests/conformance/test_views.py",
    "tests/unit/data/test_plants.py",
    "tests/unit/metrics/test_registry.py",
    "tests/unit/audits/test_planting.py",
    "tests/theory/test_labs.py",
)
"""Tests over registries."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source with one addition of each kind."""
    root = tmp_path_factory.mktemp("copy")
    unwanted = shutil.ignore_patterns("__pycache__", "*.npz")
    for folder in ("src", "tests", "scripts"):
        shutil.copytree(ROOT / folder, root / folder, ignore=unwanted)
    shutil.copy(ROOT / "pyproject.toml", root)
    (root / "docs" / "labs").mkdir(parents=True)
    for kind in new.KINDS:
        command = [sys.executable, "scripts/new.py", kind, f"tried-{kind}"]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True)
        paths = re.findall(r"^wrote (.+)$", done.stdout, re.MULTILINE)
        assert len(paths) >= 3
        assert all((root / path).is_file() for path in paths)
        assert f"make written NAME=tried-{kind}" in done.stdout
    return root


def python(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(root / "src")}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=root, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def own(copy: Path) -> list[str]:
    """The tests that were written."""
    return [str(p.relative_to(copy)) for p in (copy / "tests").rglob("test_tried_*.py")]


@pytest.fixture(scope="module")
def tested(copy: Path, own: list[str]) -> tuple[str, str]:
    """What is listed, and what the tests print, in one process."""
    # The subprocess of a test of imports has nothing to do with the list of diagnostics.
    chosen = ["-k", "tried or (test_registry and not importing)", "-p", "no:cacheprovider"]
    chosen += ["-W", "ignore:Module already imported:pytest.PytestAssertRewriteWarning"]
    done = python(copy, "-c", LISTED + TESTED, *own, *GENERAL, *chosen, "-q", "--tb=line", "-rA")
    listed, _, printed = done.stdout.partition("\n")
    return listed, printed + done.stderr


def test_every_kind_is_listed_after_one_command(tested: tuple[str, str]) -> None:
    expected = {"tried-objective", "tried-view", "tried-planted", "tried_diagnostic", "tried-lab"}
    expected.add(".tried_reader")
    assert set(tested[0].split()) == expected, tested[1]


def test_what_is_written_is_formatted(copy: Path) -> None:
    changed = [str(p) for p in copy.rglob("*tried_*.py")]
    registries = [str(copy / kind["registry"]["file"]) for kind in new.KINDS.values()]
    assert len(changed) == 12
    for arguments in (["check"], ["format", "--check"]):
        done = python(copy, "-m", "ruff", *arguments, "--no-cache", *changed, *registries)
        assert done.returncode == 0, done.stdout


def test_it_is_tested_with_the_rest_and_fails_until_its_formula_is_written(
    own: list[str], tested: tuple[str, str]
) -> None:
    _, printed = tested
    failed = set(re.findall(r"^FAILED (\S+?)::", printed, re.MULTILINE))
    passed = set(re.findall(r"^PASSED (\S+?)::", printed, re.MULTILINE))
    assert failed == set(own), printed
    assert set(GENERAL) <= passed, printed
    for message in FILL_IN.values():
        assert message in printed


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("objectiv", "x", "KIND='objectiv' is unknown: choose from objective, view, planted, "),
        ("objective", "", "NAME='' cannot be a file: use lower-case words joined by '-'"),
        ("objective", "../x", "cannot be a file"),
        ("view", "My-View", "cannot be a file"),
        ("lab", "lambda", "cannot be a file"),
        ("objective", "barlow-twins", "is taken by src/widefield/methods/barlow_twins.py"),
        ("objective", "registry", "is taken by src/widefield/methods/registry.py"),
        ("view", "gentle", "is taken by src/widefield/views/registry.py: choose another name"),
        ("planted", "tone", "is taken by src/widefield/data/planted/__init__.py"),
        ("diagnostic", "effective_rank", "is taken by src/widefield/metrics/__init__.py"),
        ("reader", "npy", "is taken by src/widefield/data/readers/paths.py"),
        ("lab", "diet-toy", "is taken by src/widefield_labs/diet_toy.py"),
        ("diagnostic", "collision", "is taken by tests/theory/test_collision.py"),
    ],
)
def test_a_name_that_cannot_be_used_is_refused_in_one_line(
    kind: str, name: str, message: str
) -> None:
    with pytest.raises(ValueError, match=re.escape(message)) as refused:
        new.new(kind, name)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "commands"),
    [
        (
            "mmcr",
            [
                "tests/golden/test_curves.py mmcr",
                f"{written.BENCH} mmcr",
                written.TABLES,
                written.TABLES,
            ],
        ),
        ("cutout", ["scripts/view_pictures.py", written.TABLES]),
        ("time-mask", [written.TABLES]),  # of windows, which are on no picture
        ("lidar", [written.TABLES]),
        ("stacked-digits", [written.TABLES]),
        ("zarr", [written.TABLES]),
        (
            "diet-toy",
            ["-m widefield lab diet-toy --out docs/labs/diet-toy.svg --overwrite", written.TABLES],
        ),
    ],
)
def test_what_is_written_for_a_name(name: str, commands: list[str]) -> None:
    assert written.commands(name) == commands
    files = [c.split()[0] for c in commands if not c.startswith("-m")]
    assert all((ROOT / file).is_file() for file in files)


def test_a_name_in_no_registry_is_refused() -> None:
    with pytest.raises(ValueError, match=r"NAME='mcr' is in no registry: `make new KIND=\.\.\. "):
        written.commands("mcr")
