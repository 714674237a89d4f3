"""A lab's parameters: what their annotations allow."""

import contextlib
import numbers
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from annotated_types import Interval

NUMBERS: dict[Any, str] = {int: "a whole number", float: "a number"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Parameter:
    """One parameter of a lab: its default and the values that it allows."""

    name: str
    default: Any
    kinds: tuple[Any, ...]
    """What a value may be: int, float, a literal value, None."""
    bounds: Interval
    """The limits of a number."""

    @classmethod
    def from_hint(cls, name: str, default: Any, hint: Any) -> "Parameter":
        """Read a parameter off its annotation, such as `Annotated[float, Gt(0)]`."""
        limits: dict[str, Any] = {}
        if get_origin(hint) is Annotated:
            hint, *metadata = get_args(hint)
            for bound in metadata:  # Gt, Ge, Lt, Le, or an Interval of them
                limits |= {side: at for side, at in asdict(bound).items() if at is not None}
        kinds = tuple(_kinds(hint))
        return cls(name=name, default=default, kinds=kinds, bounds=Interval(**limits))

    @property
    def choices(self) -> list[Any]:
        """The allowed values that are listed one by one."""
        return [kind for kind in self.kinds if kind not in NUMBERS]

    @property
    def range(self) -> str:
        """The allowed values in words.

        Example:
            >>> Parameter.from_hint("rate", 0.1, Annotated[float, Interval(gt=0, le=0.3)]).range
            'a number in (0, 0.3]'
        """
        words = [NUMBERS[kind] + _in_words(self.bounds) for kind in self.kinds if kind in NUMBERS]
        *others, last = [*words, *map(str, self.choices)]
        return f"{', '.join(others)} or {last}" if others else last

    def check(self, value: Any) -> Any:
        """Return `value`, as a float where a number is asked for, or refuse it in one line."""
        number = value
        if not isinstance(value, bool):  # which Python takes for a number
            self._refuse_absurd(value)
            if isinstance(value, numbers.Real) and float in self.kinds:
                number = float(value)
            elif isinstance(value, numbers.Integral):
                number = int(value)
        in_range = type(number) in self.kinds and _holds(self.bounds, number)
        is_choice = not isinstance(value, bool) and number in self.choices
        require(in_range or is_choice, self.name, value, self.range)
        return number

    def _refuse_absurd(self, value: Any) -> None:
        """Refuse a number that is infinite, no number, or too large to compute with."""
        if isinstance(value, numbers.Real):
            size: Any = abs(value)  # an int may be too large for a float
            allowed = f"a number of at most {LARGEST:g}, {self.range}"
            require(size <= LARGEST, self.name, value, allowed)

    def parse(self, word: str) -> Any:
        """Return the value that a word of the command line stands for, or the word itself."""
        for choice in self.choices:
            if str(choice) == word:
                return choice
        for kind in NUMBERS:
            if kind in self.kinds:
                with contextlib.suppress(ValueError):  # `check` will refuse the word
                    return kind(word)
        return word


LARGEST = 1e12
"""Size of a number at most: beyond it sums lose their digits and tensors have no room."""


def _kinds(hint: Any) -> Iterator[Any]:
    """Yield the alternatives of `hint`: types, literal values and None."""
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        for part in get_args(hint):
            yield from _kinds(part)
    elif origin is Literal:
        yield from get_args(hint)
    else:
        assert hint in (int, float, NoneType), f"no rule for a parameter of type {hint}"
        yield None if hint is NoneType else hint


def _holds(bounds: Interval, value: Any) -> bool:
    """Return whether `value` keeps all limits; a NaN keeps none."""
    return (
        (bounds.gt is None or value > bounds.gt)
        and (bounds.ge is None or value >= bounds.ge)
        and (bounds.lt is None or value < bounds.lt)
        and (bounds.le is None or value <= bounds.le)
    )


def _in_words(bounds: Interval) -> str:
    """Return the limits as an interval, or in words if there is one."""
    low = bounds.gt if bounds.ge is None else bounds.ge
    high = bounds.lt if bounds.le is None else bounds.le
    if low is not None and high is not None:
        left, right = "(" if bounds.ge is None else "[", ")" if bounds.le is None else "]"
        return f" in {left}{low:.4g}, {high:.4g}{right}"
    if low is not None:
        return f" above {low}" if bounds.ge is None else f" of at least {low}"
    if high is not None:
        return f" below {high}" if bounds.le is None else f" of at most {high}"
    return ""


def require(ok: bool, name: str, value: object, allowed: str) -> None:
    """Refuse the value of a parameter; labs call it where one parameter limits another.

    Example:
        >>> require(5 >= 6, "dimension", 5, "at least features=6")
        Traceback (most recent call last):
        ValueError: dimension=5 is out of range: it must be at least features=6
    """
    if not ok:
        raise ValueError(f"{name}={value!r} is out of range: it must be {allowed}")
