"""Write the files that an addition begins with, and list it in its registry.

    make new KIND=objective NAME=my-loss
    python scripts/new.py objective my-loss

Each file is a small example that runs, with a test that fails until its formula is written. Then
`make written NAME=my-loss` measures and writes what follows from the code.
"""

import ast
import keyword
import re
import sys
from pathlib import Path
from string import Template
from textwrap import indent
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
TEMPLATES = Path(__file__).with_name("templates")
KINDS: dict[str, dict[str, Any]] = yaml.safe_load((TEMPLATES / "kinds.yaml").read_text())
"""Kind of addition -> its files, its entry of a registry, and the imports of that."""


def names_of(name: str) -> dict[str, str]:
    """Return the forms of a name: `my-loss`, `my_loss`, `MyLoss`, `My loss`.

    Raises:
        ValueError: it cannot be the name of a file.
    """
    module = name.replace("-", "_")
    if not re.fullmatch("[a-z][a-z0-9]*([-_][a-z0-9]+)*", name) or keyword.iskeyword(module):
        raise ValueError(f"NAME={name!r} cannot be a file: use lower-case words joined by '-'")
    words = module.split("_")
    return {
        "name": module.replace("_", "-"),
        "module": module,
        "ident": module,
        "Class": "".join(map(str.capitalize, words)),
        "Title": " ".join(words).capitalize(),
    }


def new(kind: str, name: str, root: Path = ROOT) -> list[Path]:
    """Write the files of a new addition and return them, those that were changed last.

    Raises:
        ValueError: an unknown kind, or a name that cannot be used or is taken.
    """
    if kind not in KINDS:
        raise ValueError(f"KIND={kind!r} is unknown: choose from {', '.join(KINDS)}")
    made, names = KINDS[kind], names_of(name)

    def filled(text: str) -> str:
        return Template(text).substitute(names)

    texts = {
        root / filled(path): filled((TEMPLATES / f"{template}.txt").read_text())
        for template, path in made["files"].items()
    }
    registry, variable, entry = made["registry"].values()
    refuse_taken(names, texts, root / registry, variable, root)
    changed = {root / file: (root / file).read_text() for file in (registry, *made["imports"])}
    entry = indent(filled(entry), "    ")
    changed[root / registry] = with_entry(changed[root / registry], variable, entry)
    for file, lines in made["imports"].items():
        for line in lines:
            changed[root / file] = with_import(changed[root / file], f"{filled(line)}\n")
    for path, text in (texts | changed).items():
        path.write_text(text)
    return [*texts, *changed]


def refuse_taken(
    names: dict[str, str], files: dict[Path, str], registry: Path, variable: str, root: Path
) -> None:
    """Refuse names that stand in a registry, and files that exist.

    Raises:
        ValueError: there is one.
    """
    assigned = ast.walk(assignment(registry.read_text(), variable))
    listed = {getattr(node, "id", getattr(node, "value", None)) for node in assigned} - {None}
    # Test files of one name cannot be collected together, wherever they lie.
    tests = {path.name: path for path in (root / "tests").rglob("test_*.py")}
    exist = [p for p in files if p.exists()] + [tests[p.name] for p in files if p.name in tests]
    if exist or listed & {names["name"], names["module"], names["Class"], f".{names['ident']}"}:
        where = (exist or [registry])[0].relative_to(root)
        raise ValueError(f"NAME={names['name']!r} is taken by {where}: choose another name")


def assignment(text: str, variable: str) -> ast.Assign | ast.AnnAssign:
    """Return the statement that defines a variable of a module."""
    for node in ast.parse(text).body:
        targets = getattr(node, "targets", [getattr(node, "target", None)])
        if isinstance(node, ast.Assign | ast.AnnAssign) and ast.unparse(targets[0]) == variable:
            return node
    raise AssertionError(f"{variable} is not defined")


def with_entry(text: str, variable: str, entry: str) -> str:
    """Return a module with a line more at the end of a registry, which ends with its bracket."""
    lines = text.splitlines(keepends=True)
    lines.insert(assignment(text, variable).end_lineno - 1, entry)
    return "".join(lines)


def with_import(text: str, line: str) -> str:
    """Return a module with an import more, in its place among those of the same package."""
    module = line.split()[1]
    package = module.rpartition(".")[0] + "."
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    nodes = [node for node in nodes if imported(node).startswith(package)]
    later = [node for node in nodes if imported(node) > module]
    at = later[0].lineno - 1 if later else nodes[-1].end_lineno
    lines = text.splitlines(keepends=True)
    lines.insert(at, " " * nodes[0].col_offset + line)
    return "".join(lines)


def imported(node: ast.ImportFrom) -> str:
    """Return the module of an import as it is written, with its dots."""
    return "." * node.level + (node.module or "")


def main() -> int:
    """Write the files that the command line asks for, and print their paths."""
    if len(sys.argv) != 3:
        print(f"error: give KIND ({', '.join(KINDS)}) and NAME", file=sys.stderr)
        return 2
    try:
        paths = new(*sys.argv[1:])
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    print("".join(f"wrote {path.relative_to(ROOT)}\n" for path in paths), end="")
    print(f"next: write the formula and its test, then run `make written NAME={sys.argv[2]}`")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
