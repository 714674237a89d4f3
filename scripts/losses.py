"""Writes src/widefield/losses.py: every loss of every method as a function, under one roof.

    python scripts/losses.py

A loss is a public function, in the file of a method or among the row losses, that is computed in
full precision and names its source.
"""

import inspect
from importlib import import_module
from pathlib import Path
from types import ModuleType

import widefield.head.losses
from widefield.methods import METHODS

TARGET = Path(__file__).parents[1] / "src" / "widefield" / "losses.py"

HEADER = '''"""Every loss as a function of tensors, with its equation, shapes and source.

Written by scripts/losses.py from the methods' files. Tensors and numbers that do not fit are a
`ValueError`, which says what is wrong.

Example:
    >>> import torch
    >>> z = torch.eye(4)
    >>> print(f"{nt_xent(z, z, temperature=0.1):.4f}")
    0.0003
"""

'''


def losses_of(module: ModuleType) -> list[str]:
    """Return the names of the losses that are defined in a module."""
    return [
        name
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and function.__module__ == module.__name__
        and not name.startswith("_")
        and "__wrapped__" in vars(function)
        and "Source:" in (function.__doc__ or "")
    ]


def source() -> str:
    """Return the text of the file."""
    names = dict.fromkeys(settings.__module__ for settings in METHODS.values())
    modules = [*map(import_module, names), widefield.head.losses]
    found = sorted((name, m.__name__) for m in modules for name in losses_of(m))
    by_module = sorted(found, key=lambda pair: (pair[1], pair[0]))
    imports = [f"from {module} import {name} as {name}\n" for name, module in by_module]
    names = "".join(f'    "{name}",\n' for name, _ in found)
    return f"{HEADER}{''.join(imports)}\n__all__ = [\n{names}]\n"


if __name__ == "__main__":
    TARGET.write_text(source())
