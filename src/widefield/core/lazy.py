"""Re-exports of a package that are imported when first used, so that one module loads alone."""

import ast
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_exports(package: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return `__getattr__` and `__dir__` of a package with its re-exports under `TYPE_CHECKING`.

    A type checker reads these lines, `from MODULE import NAME as NAME`, and so do the functions
    returned; no name stands twice. `__all__` is the list of the names.

    No name may be that of a module of the package: once imported, the module would hide it.

    Example:
        >>> lazy_exports("widefield.views")[0]("Cutout")
        <class 'widefield.views.cutout.Cutout'>
    """

    @cache
    def homes() -> dict[str, str]:
        statements = ast.parse(Path(str(sys.modules[package].__file__)).read_text()).body
        blocks = [node.body for node in statements if isinstance(node, ast.If)]
        lines = [line for body in blocks for line in body if isinstance(line, ast.ImportFrom)]
        return {alias.name: str(line.module) for line in lines for alias in line.names}

    def get(name: str) -> Any:
        if name == "__all__":
            return names()
        home = homes().get(name)
        if home is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        if home == package:
            return import_module(f"{package}.{name}")
        return getattr(import_module(home), name)

    def names() -> list[str]:
        return sorted(homes())

    return get, names
