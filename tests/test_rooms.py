"""The layout's rules, read off the source: who imports whom, and which line may stand where."""

import ast
import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest

from widefield.methods import METHODS

SOURCE = Path(__file__).parents[1] / "src" / "widefield"

ORDER = (
    {"core", "version"},
    {"data", "views", "encoders", "head", "probes", "metrics", "report"},
    {"methods"},
    {"config", "losses"},
    {"evaluation"},
    {"train"},
    {"inference"},
    {"workflows"},
    {"audits"},
    {"cli"},
)
"""Rooms, the lowest first: a room imports those of lower levels, and none of its own."""

LEVEL = {room: level for level, rooms in enumerate(ORDER) for room in rooms}

DOORS = {"__init__", "__main__"}
"""Files above all rooms."""

TYPES_ONLY = {"config/arguments.py"}
"""Names types of rooms above for the type checker, and imports none of them when it runs."""

HOMES = {
    r"\.backward\(": ("train/",),
    r"\bmatplotlib\b": ("report/",),
    r"(?<![.\w])print\(": ("cli/",),
    r"\bsvdvals\b": ("metrics/",),
}

MAY_NAME_METHODS = ("methods/", "config/", "losses.py")
"""Where a method is defined or chosen."""


def modules() -> dict[str, ast.Module]:
    """Return every file of the package, parsed, under its path in it."""
    return {str(p.relative_to(SOURCE)): _parsed(p) for p in sorted(SOURCE.rglob("*.py"))}


@cache
def _parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def room(name: str) -> str:
    return name.partition("/")[0].removesuffix(".py")


def imported_rooms(tree: ast.Module, *, at_run_time: bool = False) -> set[str]:
    """Return the rooms whose names a file imports, anywhere in it."""
    rooms: set[str] = set()
    for node in _without_type_imports(tree) if at_run_time else ast.walk(tree):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        for name in names:
            package, _, rest = name.partition(".")
            if package == "widefield" and rest:
                rooms.add(rest.split(".")[0])
    return rooms & LEVEL.keys()


def _without_type_imports(node: ast.AST) -> Iterator[ast.AST]:
    yield node
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING"):
            yield from _without_type_imports(child)


def without_docstrings(tree: ast.Module) -> Iterator[ast.AST]:
    """Yield every node but strings that stand alone."""
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            if not (isinstance(node, ast.Expr) and isinstance(child, ast.Constant)):
                yield child


@cache
def code(tree: ast.Module) -> str:
    """Return the source without docstrings, comments, and sentences such as error messages."""
    bare = ast.parse(ast.unparse(tree))
    for node in ast.walk(bare):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            node.value = ""
    return ast.unparse(bare)


def breaking(rule: Callable[[str, ast.Module], object]) -> list[str]:
    """Return the files that break a rule, each with what the rule says of it."""
    return [
        f"{name}: {problem}" for name, tree in modules().items() if (problem := rule(name, tree))
    ]


def test_every_file_is_in_a_room() -> None:
    assert {room(name) for name in modules()} == DOORS | LEVEL.keys()


def test_rooms_import_earlier_rooms_only() -> None:
    def rule(name: str, tree: ast.Module) -> list[str]:
        own = room(name)
        if own in DOORS:
            return []
        imported = imported_rooms(tree, at_run_time=name in TYPES_ONLY)
        return sorted(other for other in imported - {own} if LEVEL[other] >= LEVEL[own])

    assert breaking(rule) == []


@pytest.mark.parametrize("phrase", HOMES)
def test_a_line_knows_its_room(phrase: str) -> None:
    def rule(name: str, tree: ast.Module) -> object:
        return not name.startswith(HOMES[phrase]) and re.search(phrase, code(tree))

    assert breaking(rule) == []


def test_no_method_is_named_outside_its_room() -> None:
    def rule(name: str, tree: ast.Module) -> list[str]:
        if name.startswith(MAY_NAME_METHODS):
            return []
        strings = [n.value for n in without_docstrings(tree) if isinstance(n, ast.Constant)]
        named = METHODS.keys() & {value for value in strings if isinstance(value, str)}
        return sorted(named)

    assert breaking(rule) == []


def test_learning_rates_have_one_default() -> None:
    def rule(name: str, tree: ast.Module) -> list[str]:
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        return [
            function.name
            for function in functions
            for argument, default in zip(
                function.args.kwonlyargs, function.args.kw_defaults, strict=True
            )
            if argument.arg == "lr" and default is not None
        ]

    assert breaking(rule) == []


IMPORTING = """
from widefield.config.recipe import Recipe
import widefield.cli
def f(lr, *, seed): "simclr"
"""


def test_the_rules_see_what_they_forbid() -> None:
    """Each reading of the source, on source that breaks a rule."""
    tree = ast.parse(f'{IMPORTING}\nif TYPE_CHECKING:\n    import widefield.train\nx = "byol"')
    assert imported_rooms(tree) == {"config", "cli", "train"}
    assert imported_rooms(tree, at_run_time=True) == {"config", "cli"}
    strings = [n.value for n in without_docstrings(tree) if isinstance(n, ast.Constant)]
    assert strings == ["byol"]
    message = code(
        ast.parse('raise ValueError(f"{x}: call loss.backward() once")\nloss.backward()')
    )
    assert message.count("backward") == 1
