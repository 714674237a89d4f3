"""Settings: frozen dataclasses whose fields carry type, range, default and help text.

A part that has settings (a method, a view policy, a run) declares them as a subclass of
`Settings` in its own file. The same declaration serves Python, `run.yaml`, the command line and
its help. A field that is itself a `Settings` is written as a nested mapping in `run.yaml`, and
as one flat name for each of its fields elsewhere: `projector.layers` is `projector_layers`.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from widefield.core.validation import check, hints_of


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one part of a run; each field is checked against its annotation.

    Raises:
        ValueError: a value of the wrong type or out of its range; the message has the allowed ones.

    Example:
        >>> from typing import Annotated
        >>> from annotated_types import Ge
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Head(Settings):
        ...     width: Annotated[int, Ge(1)] = 512
        >>> Head(width=0)
        Traceback (most recent call last):
        ValueError: width must be a whole number of at least 1, got 0
    """

    def __post_init__(self) -> None:
        """Check every field; a whole number in a float field becomes a float."""
        for name, hint in hints_of(type(self)).items():
            object.__setattr__(self, name, check(name, hint, getattr(self, name)))

    def flat(self) -> dict[str, Any]:
        """Return every value under its flat name."""
        values: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Settings):
                values |= {f"{field.name}_{name}": v for name, v in value.flat().items()}
            else:
                values[field.name] = value
        return values

    def changed(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with other values for some flat names."""
        changes: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Settings):
                prefix = f"{field.name}_"
                inner = {f"{prefix}{n}": n for n in value.flat()}
                selected = {short: values[name] for name, short in inner.items() if name in values}
                try:
                    changes[field.name] = value.changed(selected)
                except ValueError as error:
                    raise ValueError(f"{prefix}{error}") from error
            elif field.name in values:
                changes[field.name] = values[field.name]
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for `run.yaml`, nested settings as mappings."""
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        hints = hints_of(cls)
        if not isinstance(values, Mapping):
            raise ValueError(f"settings must be names with values, got {values!r}")
        unknown = [f"{str(key)!r} is unknown" for key in values if key not in hints]
        missing = [f"{key!r} is missing" for key in hints if key not in values]
        for problem in (*unknown, *missing):
            raise ValueError(f"the settings do not fit this version: {problem}")
        return cls(**{k: _nested(hints[k], v) for k, v in values.items()})


def _nested(hint: Any, value: Any) -> Any:
    """Return `value`, as nested settings where the field holds settings."""
    if isinstance(hint, type) and issubclass(hint, Settings) and isinstance(value, Mapping):
        return hint.from_dict(value)
    return value
