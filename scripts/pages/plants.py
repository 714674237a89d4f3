"""Planted features and their options: docs/data.md."""

from dataclasses import fields
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pages.format import table
from widefield.data.planted import PLANTS


def plants() -> str:
    """Return the options of every planted feature, with what they may be and their defaults."""
    rows = [
        (
            f"`+{name}`",
            f"`{field.name.replace('_', '-')}`",
            _values(hints[field.name]),
            _shown(field.default),
        )
        for name, plant in PLANTS.items()
        for hints in (get_type_hints(plant, include_extras=True),)
        for field in fields(plant)
    ]
    return table(("plant", "option", "values", "default"), rows)


def _values(hint: Any) -> str:
    """Return what an option may be."""
    if hint is bool:
        return "no value"
    if get_origin(hint) is Literal:
        return " or ".join(f"`{word}`" for word in get_args(hint))
    if get_origin(hint) is Annotated:
        _, interval, *unit = get_args(hint)
        low = f"above {interval.gt}" if interval.gt is not None else f"{interval.ge}"
        return " ".join([f"{low} to {interval.le}", *unit])
    return "a file or folder"


def _shown(value: object) -> str:
    """Return a default; nothing for what is off or left out."""
    if isinstance(value, float):
        return f"{value:.3g}"
    return "" if value is None or value is False else str(value)
