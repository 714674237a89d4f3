"""The layout's rules, read off the source: who imports whom, and which line may stand where."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "widefield"

ORDER = (
    {"core"},
    {"types", "recipe"},
    {"data", "views", "encoders", "rows", "probes", "diagnose", "report"},
    {"methods"},
    {"train"},
    {"workflows"},
    {"audits"},
    {"labs", "bench"},
    {"cli"},
)
LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}

HOMES = {
    r"\.backward\(": ("train/", "labs/", "bench/"),
    r"\bmatplotlib\b": ("report/", "labs/"),
    r"(?<![.\w])print\(": ("cli/",),
    r"\bsvdvals\b": ("diagnose/", "labs/"),
}


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            package, _, rest = name.partition(".")
            if package == "widefield" and rest:
                found.add(rest.split(".")[0])
    return found & LEVEL.keys()


def code(path: Path) -> str:
    """The source without its docstrings and comments."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    return ast.unparse(tree)


def test_every_file_is_in_a_room() -> None:
    outside = {room(p) for p in modules()} - LEVEL.keys()
    assert outside == {"__init__", "__main__"}


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(SOURCE)))
def test_rooms_import_earlier_rooms_only(path: Path) -> None:
    own = room(path)
    if own.startswith("__"):
        return
    for other in imported_rooms(path) - {own}:
        assert LEVEL[other] < LEVEL[own], f"{own} imports {other}"


@pytest.mark.parametrize("phrase", HOMES)
def test_a_line_knows_its_room(phrase: str) -> None:
    strangers = [
        str(path.relative_to(SOURCE))
        for path in modules()
        if re.search(phrase, code(path))
        and not str(path.relative_to(SOURCE)).startswith(HOMES[phrase])
    ]
    assert strangers == []


def test_learning_rates_have_one_default() -> None:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                keywords = zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)
                assert not [a.arg for a, d in keywords if a.arg == "lr" and d is not None], path
