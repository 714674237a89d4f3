"""Options of a planted feature: the fields of its dataclass, as a user types them.

A name is typed with "-" where the field has "_". A field's type says what is allowed: `bool` is a
switch without a value, `Literal` a word, a number may have a range (`annotated_types.Interval`) and
a unit (a string), `str` takes anything.
"""

import math
from collections.abc import Mapping
from dataclasses import fields
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from annotated_types import Interval

F = TypeVar("F")

Alpha = Annotated[float, Interval(gt=0, le=1)]
"""Opacity."""
RelativeSize = Annotated[float, Interval(ge=0.5, le=1.2), "times the usual size"]
"""Scale; larger plants would touch each other or the border."""


def read_options(plant: type[F], name: str, texts: Mapping[str, str]) -> F:
    """Return a `plant` with the options that `texts` gives, option -> value as typed.

    Raises:
        ValueError: an option that it does not have, or a value that is not allowed.

    Example:
        >>> from widefield.data.planted import Shapes
        >>> read_options(Shapes, "shapes", {"size": "0.8", "fresh": ""}).size
        0.8
    """
    hints = get_type_hints(plant, include_extras=True)
    known = {
        field.name.replace("_", "-"): field.name
        for field in fields(plant)  # type: ignore[arg-type]
    }
    for option in texts:
        if option not in known:
            raise ValueError(
                f"'+{name}' has no option '{option}'; known: {', '.join(sorted(known))}"
            )
    values = {key: _value(hints[known[key]], name, key, text) for key, text in texts.items()}
    return plant(**{known[key]: value for key, value in values.items()})


def _value(kind: Any, name: str, key: str, text: str) -> object:
    """Return the value of option `key` that `text` says, of type `kind`."""
    if kind is bool:
        if text:
            raise ValueError(f"'+{name}:{key}' takes no value, got '{text}'")
        return True
    if get_origin(kind) is Literal:
        words = get_args(kind)
        if text not in words:
            raise ValueError(f"{key} of '+{name}' is '{text}'; expected {' or '.join(words)}")
        return text
    if get_origin(kind) is Annotated:
        number, interval, *unit = get_args(kind)
        value = _number(number, text)
        if value is None or not _inside(value, interval):
            allowed = " ".join([_words(interval, key), *unit])
            raise ValueError(f"{key} of '+{name}' is '{text}'; expected {allowed}")
        return value
    return text


def _number(kind: type[float], text: str) -> float | None:
    """Return `text` as a number of this kind; None where it is none."""
    try:
        number = kind(text)
    except ValueError:
        return None
    # One way to write a whole number, so that one setting has one spec.
    return None if kind is int and str(number) != text else number


def _inside(value: float, interval: Interval) -> bool:
    low, high = _bounds(interval)
    above = value > low if interval.ge is None else value >= low
    return above and value <= high


def _words(interval: Interval, key: str) -> str:
    low, high = _bounds(interval)
    return f"{low:g} < {key} <= {high:g}" if interval.ge is None else f"{low:g} to {high:g}"


def _bounds(interval: Interval) -> tuple[float, float]:
    low = interval.gt if interval.ge is None else interval.ge
    assert isinstance(low, int | float), "a plant's numbers have a range"
    assert isinstance(interval.le, int | float)
    assert not math.isnan(low)
    return low, interval.le
