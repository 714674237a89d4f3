"""Lazy re-exports of a package: a module is imported when a name of it is first used."""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` for a package with its imports under `TYPE_CHECKING`.

    The functions parse these lines, `from MODULE import NAME as NAME`. `__all__` is the list of the
    names. No name may be that of a module of the package: once imported, the module would hide it.

    Example:
        >>> lazy_exports("widefield.views")[0]("Cutout")
        <class 'widefield.views.cutout.Cutout'>
    """

    @cache
    def exports() -> dict[str, str]:
        tree = ast.parse(Path(str(sys.modules[package].__file__)).read_text())
        blocks = [node.body for node in tree.body if isinstance(node, ast.If)]
        lines = [line for body in blocks for line in body if isinstance(line, ast.ImportFrom)]
        return {alias.name: str(line.module) for line in lines for alias in line.names}

    def get(name: str) -> Any:
        if name == "__all__":
            return names()
        module = exports().get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if module == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(module), name)

    def names() -> list[str]:
        return sorted(exports())

    return get, names
