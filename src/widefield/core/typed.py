"""Values from a file, held against the annotations that they have to fit."""

import dataclasses
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal


def misfit(value: Any, hint: Any, name: str = "") -> str | None:
    """Return which part of `value` is not as `hint` says, in words; None if all of it fits.

    The hint may be a class, a dataclass with hints of its own, a union, a literal, a mapping or a
    tuple; a whole number fits where a float is asked for.

    Example:
        >>> misfit({"a": (1, "x")}, Mapping[str, tuple[int, ...]])
        "a.1 is 'x'"
    """
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    other = f"{name} is {value!r}"
    if hint is Any:
        return None
    if origin in (typing.Union, types.UnionType):
        return None if any(misfit(value, option) is None for option in inner) else other
    if origin is Literal:
        return None if isinstance(value, str) and value in inner else other
    parts = _parts(value, hint)
    if parts is None:
        return None if _is(value, hint) else other
    found = (misfit(x, part_hint, f"{name}.{key}".lstrip(".")) for key, x, part_hint in parts)
    return next((words for words in found if words is not None), None)


def _parts(value: Any, hint: Any) -> list[tuple[str, Any, Any]] | None:
    """Return name, value and hint of each part of a nest; None where the hint asks for none."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint) and isinstance(hint, type) and isinstance(value, hint):
        hints = typing.get_type_hints(hint)
        return [(f.name, getattr(value, f.name), hints[f.name]) for f in dataclasses.fields(hint)]
    if origin is Mapping and isinstance(value, Mapping):
        keys = [(f"name {key!r}", key, inner[0]) for key in value]
        return [*keys, *((str(key), x, inner[1]) for key, x in value.items())]
    if origin is tuple and isinstance(value, tuple):
        each = inner[:1] * len(value) if inner[-1] is ... else inner
        if len(each) == len(value):
            return [(str(i), x, h) for i, (x, h) in enumerate(zip(value, each, strict=True))]
    return None


def _is(value: Any, kind: Any) -> bool:
    if kind is float:
        return type(value) in (int, float)
    if kind is None:
        return value is None
    if kind is int:
        return type(value) is int
    return isinstance(kind, type) and isinstance(value, kind)
