"""The public names, in docs/api.txt: a line each, which later versions may add to and not remove.

`make tables` adds new names. A name leaves the list by hand, one version after it was deprecated
(docs/versions.md).
"""

from importlib import import_module
from pathlib import Path

LIST = Path(__file__).parents[1] / "docs" / "api.txt"

MODULES = (
    "widefield",
    "widefield.losses",
    "widefield.methods",
    "widefield.views",
    "widefield.metrics",
)
"""Modules whose `__all__` is public."""

SINGLE = {
    "widefield.data": ("open_dataset",),
    "widefield.head": (
        "DiskStorage",
        "LazyAdamW",
        "LazyOptimizer",
        "LazySGD",
        "MemoryStorage",
        "PerExampleHead",
        "choose_storage",
    ),
    "widefield.encoders": ("Encoder", "build_encoder", "load_encoder", "stage_maps"),
}
"""Modules with a few public names."""


def public_names() -> list[str]:
    """Return the names that are public in this code, with their modules."""
    names = {module: import_module(module).__all__ for module in MODULES} | SINGLE
    return sorted(f"{module}.{name}" for module, its in names.items() for name in its)


def promised_names() -> list[str]:
    """Return the committed names."""
    return LIST.read_text().split()


def text() -> str:
    """Return the list with what is new."""
    return "".join(f"{name}\n" for name in sorted({*promised_names(), *public_names()}))
