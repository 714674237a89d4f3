"""Settings: frozen dataclasses whose fields carry type, range, default and help text.

A part that has settings (a method, a view policy, a run) declares them as a subclass of
`Settings` in its own file. The same declaration serves Python, `run.yaml`, the command line and
its help. A field that is itself a `Settings` is written as a nested mapping in `run.yaml`, and
as one flat name for each of its fields elsewhere: `projector.layers` is `projector_layers`.
"""

import ast
import dataclasses
import inspect
import math
import numbers
import textwrap
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from annotated_types import Ge, Gt, Interval, Le, Lt


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of one part of a run; each field is checked against its annotation.

    Raises:
        ValueError: a value of the wrong type or out of its range; the message says what fits.

    Example:
        >>> @dataclass(frozen=True, kw_only=True)
        ... class Head(Settings):
        ...     width: Annotated[int, Ge(1)] = 512
        >>> Head(width=0)
        Traceback (most recent call last):
        ValueError: width must be at least 1, got 0
    """

    def __post_init__(self) -> None:
        """Check every field, and keep whole numbers that stand for real ones as floats."""
        for name, hint in _hints(type(self)).items():
            object.__setattr__(self, name, _checked(name, hint, getattr(self, name)))

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
        """Return a copy with other values under some flat names, all of them its own."""
        changes: dict[str, Any] = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if isinstance(value, Settings):
                prefix = f"{field.name}_"
                inner = {f"{prefix}{n}": n for n in value.flat()}
                chosen = {short: values[name] for name, short in inner.items() if name in values}
                try:
                    changes[field.name] = value.changed(chosen)
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
        """Build the settings that `to_dict` wrote.

        Raises:
            ValueError: a key is unknown or missing.
        """
        hints = _hints(cls)
        if not isinstance(values, Mapping):
            raise ValueError(f"settings must be names with values, got {values!r}")
        _refuse_other_keys(values, hints)
        return cls(**{k: _nested(hints[k], v) for k, v in values.items()})


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One setting under its flat name."""

    name: str
    hint: Any
    """Its type, without the range."""
    default: Any
    help: str


def describe(settings: Settings) -> dict[str, Setting]:
    """Return every setting of `settings` under its flat name, its value as the default.

    Example:
        >>> describe(Settings())
        {}
    """
    described: dict[str, Setting] = {}
    texts = help_texts(type(settings))
    for name, hint in _hints(type(settings)).items():
        value = getattr(settings, name)
        if isinstance(value, Settings):
            described |= {
                f"{name}_{inner.name}": dataclasses.replace(inner, name=f"{name}_{inner.name}")
                for inner in describe(value).values()
            }
        else:
            described[name] = Setting(
                name=name, hint=_without_range(hint), default=value, help=texts[name]
            )
    return described


def _hints(cls: type[Settings]) -> dict[str, Any]:
    """Return the annotation of every field, ranges included."""
    hints = typing.get_type_hints(cls, include_extras=True)
    return {field.name: hints[field.name] for field in dataclasses.fields(cls)}


def help_texts(cls: type[Settings]) -> dict[str, str]:
    """Return the docstring under each field, of the class and of those it extends."""
    texts: dict[str, str] = {}
    for base in reversed(cls.__mro__[: cls.__mro__.index(Settings)]):
        body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0]
        assert isinstance(body, ast.ClassDef)
        for field, text in zip(body.body, body.body[1:], strict=False):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(field.target, ast.Name)
                texts[field.target.id] = ast.literal_eval(text.value)
    return texts


def _without_range(hint: Any) -> Any:
    return typing.get_args(hint)[0] if typing.get_origin(hint) is Annotated else hint


def _nested(hint: Any, value: Any) -> Any:
    """Return `value`, or the settings that it describes where the field holds settings."""
    if isinstance(hint, type) and issubclass(hint, Settings) and isinstance(value, Mapping):
        return hint.from_dict(value)
    return value


def _refuse_other_keys(values: Mapping[str, Any], hints: Mapping[str, Any]) -> None:
    unknown = [str(key) for key in values if key not in hints]
    missing = [key for key in hints if key not in values]
    if unknown or missing:
        problem = f"{unknown[0]!r} is unknown" if unknown else f"{missing[0]!r} is missing"
        raise ValueError(f"the settings do not fit this version: {problem}")


def _checked(name: str, hint: Any, value: Any) -> Any:
    """Return `value` as the annotation wants it.

    Raises:
        ValueError: it does not fit.
    """
    kind, limits = _without_range(hint), getattr(hint, "__metadata__", ())
    options = typing.get_args(kind) if isinstance(kind, types.UnionType) else (kind,)
    if value is None and type(None) in options:
        return None
    kind = next(option for option in options if option is not type(None))
    value = _of_kind(name, kind, value)
    for limit in limits:
        _refuse_outside(name, value, limit)
    return value


def _of_kind(name: str, kind: Any, value: Any) -> Any:
    is_bool = isinstance(value, bool)
    if kind is bool:
        fits, expected = is_bool, "True or False"
    elif kind is float:
        fits = isinstance(value, numbers.Real) and not is_bool and _is_finite(value)
        expected = "a finite number"
    elif kind is int:
        fits, expected = isinstance(value, numbers.Integral) and not is_bool, "a whole number"
    elif typing.get_origin(kind) is Literal:
        choices = typing.get_args(kind)
        if isinstance(value, int) and not is_bool:  # as a file has it: precision: 32
            value = str(value)
        fits = isinstance(value, str) and value in choices
        expected = f"one of {', '.join(choices)}"
    elif kind is str:
        fits, expected = isinstance(value, str), "a word"
    else:
        fits, expected = isinstance(value, typing.get_origin(kind) or kind), kind.__name__
    if not fits:
        raise ValueError(f"{name} must be {expected}, got {value!r}")
    if isinstance(value, str):
        return str(value)  # a word of numpy is a string too, and no YAML
    return kind(value) if kind in (float, int) else value


def _is_finite(value: Any) -> bool:
    """Return whether `value` is a number that a float can hold."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _refuse_outside(name: str, value: Any, limit: Any) -> None:
    """Refuse a number beyond a limit of its range."""
    parts = tuple(limit) if isinstance(limit, Interval) else (limit,)
    for part in parts:
        match part:
            case Gt(gt=low):
                fits, words = value > low, f"above {low}"
            case Ge(ge=low):
                fits, words = value >= low, f"at least {low}"
            case Lt(lt=high):
                fits, words = value < high, f"below {high}"
            case Le(le=high):
                fits, words = value <= high, f"at most {high}"
        if not fits:
            raise ValueError(f"{name} must be {words}, got {value}")
