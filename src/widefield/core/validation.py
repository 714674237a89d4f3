"""Validation of a value against its annotation: type, range, choices, and nested values."""

import dataclasses
import math
import numbers
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from annotated_types import Interval

_WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a finite number",
    str: "a string",
    types.NoneType: "None",
}
_NO = object()
"""No value, where None may be one."""


def check(name: str, hint: Any, value: Any) -> Any:
    """Return `value` converted to `hint`: a whole number for a float becomes a float.

    `hint` may be a class, a dataclass, a `Literal`, a union, a mapping or a tuple, whose parts are
    checked too, or `Annotated` with the limits of a number (`annotated_types`) and its unit.

    Raises:
        ValueError: it is invalid; the message has the part and the allowed values.

    Example:
        >>> check("rate", Annotated[float, Interval(gt=0, le=1)], 1)
        1.0
        >>> check("rate", Annotated[float, Interval(gt=0, le=1)], 2)
        Traceback (most recent call last):
        ValueError: rate must be a finite number in (0, 1], got 2
        >>> check("names", Mapping[str, tuple[int, ...]], {"a": (1, "x")})
        Traceback (most recent call last):
        ValueError: names.a.1 must be a whole number, got 'x'
    """
    for kind in kinds(hint):
        found = _as_kind(kind, value)
        if found is _NO or (type(found) in (int, float) and not _in_range(limits(hint), found)):
            continue
        for part, part_hint, x in _parts(name, kind, value):
            check(part, part_hint, x)
        return found
    raise invalid_value(name, value, allowed(hint))


def is_valid(hint: Any, value: Any) -> bool:
    try:
        check("", hint, value)
    except ValueError:
        return False
    return True


def parse(hint: Any, text: str) -> Any:
    """Return the value of a word of the command line, or the word itself.

    A whole number has one spelling only, so that equal settings have equal texts.
    """
    for kind in kinds(hint):
        if typing.get_origin(kind) is Literal:
            found = next((choice for choice in typing.get_args(kind) if str(choice) == text), _NO)
        elif kind is types.NoneType:
            found = None if text == "None" else _NO
        else:
            found = _number(kind, text) if kind in (int, float) else _NO
        if found is not _NO:
            return found
    return text


def allowed(hint: Any) -> str:
    """Return a description of the values that `hint` allows."""
    words: list[str] = []
    units = (unit for unit in _metadata(hint) if isinstance(unit, str))
    span = " ".join([_format_range(limits(hint)), *units]).rstrip()
    for kind in kinds(hint):
        if typing.get_origin(kind) is Literal:
            words += map(str, typing.get_args(kind))
        else:
            words.append(_WORDS.get(kind) or kind.__name__)
            words[-1] += span if kind in (int, float) else ""
    *others, last = words
    return f"{', '.join(others)} or {last}" if others else last


def require(ok: bool, name: str, value: object, allowed: str) -> None:
    """Raise `ValueError` unless `ok`, for instance where one setting limits another."""
    if not ok:
        raise invalid_value(name, value, allowed)


def invalid_value(name: str, value: object, allowed: str) -> ValueError:
    return ValueError(f"{name} must be {allowed}, got {value!r}")


def kinds(hint: Any) -> tuple[Any, ...]:
    """Return the alternatives of a union, without the range."""
    base = typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint
    is_union = typing.get_origin(base) in (typing.Union, types.UnionType)
    return typing.get_args(base) if is_union else (base,)


def limits(hint: Any) -> Interval:
    """Return the limits of a number; None where there is no limit."""
    found: dict[str, Any] = {}
    for bound in _metadata(hint):
        if not isinstance(bound, str):  # Gt, Ge, Lt, Le or an Interval of them
            bounds = dataclasses.asdict(bound)
            found |= {side: at for side, at in bounds.items() if at is not None}
    return Interval(**found)


def hints_of(cls: type) -> dict[str, Any]:
    """Return the annotation of every field of a dataclass, ranges included."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def _metadata(hint: Any) -> tuple[Any, ...]:
    return getattr(hint, "__metadata__", ())


def _as_kind(kind: Any, value: Any) -> Any:
    """Return `value` converted to `kind`, or `_NO` if it is not one."""
    if kind is Any:
        return value
    if typing.get_origin(kind) is Literal:
        return next((choice for choice in typing.get_args(kind) if _is_same(choice, value)), _NO)
    if kind in (int, float):  # a bool is a number in Python, but not here
        base: type = numbers.Integral if kind is int else numbers.Real
        is_number = isinstance(value, base) and not isinstance(value, bool)
        return kind(value) if is_number and (kind is int or _is_finite(value)) else _NO
    if not isinstance(value, typing.get_origin(kind) or kind):
        return _NO
    return (
        str(value) if kind is str else value
    )  # a numpy string is a str too, but YAML cannot represent it


def _is_same(choice: Any, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, str | numbers.Integral):
        return False
    # YAML gives a number where the choice is a string: `precision: 32`.
    return bool(choice == (str(value) if isinstance(choice, str) else value))


def _is_finite(value: Any) -> bool:
    """Return whether `value` is a number that a float can hold."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _parts(name: str, kind: Any, value: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield name, hint and value of each part of a nested value."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        for key, hint in hints_of(kind).items():
            yield f"{name}.{key}", hint, getattr(value, key)
    elif origin is Mapping:
        for key, x in value.items():
            yield f"a name in {name}", inner[0], key
            yield f"{name}.{key}", inner[1], x
    elif origin is tuple:
        each = inner[:1] * len(value) if inner[-1] is ... else inner
        require(len(each) == len(value), name, value, f"{len(each)} values")
        for i, (hint, x) in enumerate(zip(each, value, strict=True)):
            yield f"{name}.{i}", hint, x


def _number(kind: Any, text: str) -> Any:
    try:
        number = kind(text)
    except ValueError:
        return _NO
    return _NO if kind is int and str(number) != text else number


def _in_range(bounds: Interval, value: Any) -> bool:
    return (
        (bounds.gt is None or value > bounds.gt)
        and (bounds.ge is None or value >= bounds.ge)
        and (bounds.lt is None or value < bounds.lt)
        and (bounds.le is None or value <= bounds.le)
    )


def _format_range(bounds: Interval) -> str:
    """Return the limits as an interval, or as text if there is only one."""
    low = bounds.gt if bounds.ge is None else bounds.ge
    high = bounds.lt if bounds.le is None else bounds.le
    if low is not None and high is not None:
        left, right = "(" if bounds.ge is None else "[", ")" if bounds.le is None else "]"
        return f" in {left}{_format_limit(low)}, {_format_limit(high)}{right}"
    if low is not None:
        return f" above {low}" if bounds.ge is None else f" of at least {low}"
    if high is not None:
        return f" below {high}" if bounds.le is None else f" of at most {high}"
    return ""


def _format_limit(limit: Any) -> str:
    return f"{limit:.4g}" if isinstance(limit, float) else str(limit)
