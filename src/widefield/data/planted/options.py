"""Options of a planted feature: the fields of its dataclass, as a user types them.

A name is typed with "-" where the field has "_". A field's type says what is allowed: `bool` is a
switch without a value, others are checked as `core/validation.py` says, `str` takes anything.
"""

from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

from annotated_types import Interval

from widefield.core.validation import check, hints_of, parse

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
    hints = hints_of(plant)
    known = {field.replace("_", "-"): field for field in hints}
    for option in texts:
        if option not in known:
            raise ValueError(
                f"'+{name}' has no option '{option}'; known: {', '.join(sorted(known))}"
            )
    values = {known[key]: _value(hints[known[key]], name, key, text) for key, text in texts.items()}
    return plant(**values)


def _value(hint: Any, name: str, key: str, text: str) -> Any:
    """Return the value of option `key` that `text` stands for."""
    if hint is bool:
        if text:
            raise ValueError(f"'+{name}:{key}' takes no value, got '{text}'")
        return True
    return check(f"{key} of '+{name}'", hint, parse(hint, text))
