"""Every line of the page of promises names what would fail if it were broken."""

import re
from pathlib import Path

import pytest

from pages.format import ROOT

PAGE = ROOT / "docs" / "promises.md"
HEAD = "| promised | checked by |"
TESTS = {file.name: file for file in (ROOT / "tests").rglob("*.py")}
HOSTILE = sorted(file.name for file in (ROOT / "tests" / "hostile").glob("test_*.py"))
TARGETS = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def problems(page: str) -> list[str]:
    """Return what is wrong with the page, a line each."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        head, *rows = table.splitlines()
        found += [] if head == HEAD else [f"a table begins with {head}"]
        found += [f"names no check: {row}" for row in rows[1:] if not checks(row)]
    for name in checks(page):
        if name.startswith("make "):
            found += [] if name.split()[1] in TARGETS else [f"no target: {name}"]
            continue
        file = TESTS.get(Path(name).name)
        if file is None or ("/" in name and file != ROOT / name):
            found.append(f"no test: {name}")
        elif file.name.startswith("test_") and not re.search(r"^def test_", file.read_text(), re.M):
            found.append(f"tests nothing: {name}")
    named = {Path(name).name for name in checks(page)}
    return [*found, *(f"stands nowhere: {name}" for name in HOSTILE if name not in named)]


def checks(text: str) -> list[str]:
    """Return the tests and targets that a text names."""
    return re.findall(r"`((?:tests/)?[\w/]*\w+\.py|make [\w-]+)[^`]*`", text)


def test_every_promise_names_a_check_that_exists() -> None:
    assert problems(PAGE.read_text()) == []


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("tests/unit/core/test_lines.py", "tests/unit/core/test_line.py", "no test"),
        ("tests/unit/core/test_lines.py", "tests/unit/test_lines.py", "no test"),
        ("`tests/unit/core/test_lines.py`", "by reading", "names no check"),
        ("test_hostile_signals.py", "test_hostile_calls.py", "stands nowhere"),
        ("`make torture`", "`make tortoise`", "no target"),
        (f"{HEAD}\n", "", "a table begins with"),
    ],
)
def test_a_promise_without_a_check_is_noticed(old: str, new: str, said: str) -> None:
    page = PAGE.read_text()
    assert old in page
    assert any(line.startswith(said) for line in problems(page.replace(old, new)))
