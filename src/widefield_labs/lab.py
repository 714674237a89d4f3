"""The frame of a lab: its parameters, its seed, its run."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from annotated_types import Ge, Interval
from torch import Generator

from widefield.core.names import check_name
from widefield.core.validation import check, parse
from widefield_labs.result import Arrays, Check, Result

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Scale = Literal["tiny", "default"]
"""How much work a run does; tiny takes seconds."""

LARGEST = 1e12
"""Size of a number at most: beyond it sums lose their digits and tensors need too much memory."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A claim of a paper, the simulation that tests it, and how its outcome is shown."""

    name: str
    claim: str
    """One sentence."""
    measure: Callable[..., Arrays]
    """Takes `scale`, `generator` and the lab's parameters, all by keyword; does all the work.

    The annotations of its parameters give their ranges. Its docstring says what they mean.
    """
    check: Callable[[Arrays], tuple[Check, ...]]
    """Sets the predictions beside the measurements."""
    notes: Callable[[Arrays], tuple[str, ...]]
    """Says where the claim ends."""
    draw: Callable[[Arrays, "Figure"], None]
    """Draws the arrays on an empty figure."""

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The lab's own parameters by name; the annotation gives the range."""
        arguments = inspect.signature(self.measure).parameters
        return {name: a for name, a in arguments.items() if name not in ("scale", "generator")}

    @property
    def explanation(self) -> str:
        """What the lab does and what its parameters mean."""
        return inspect.getdoc(self.measure) or ""

    def parse(self, words: dict[str, str]) -> dict[str, Any]:
        """Return the values that words of the command line stand for; `run` checks them."""
        known, named = self.parameters, {k.replace("-", "_"): word for k, word in words.items()}
        return {
            k: parse(known[k].annotation, word) if k in known else word for k, word in named.items()
        }

    def run(self, *, scale: Scale = "default", seed: int = 0, **parameters: Any) -> Result:
        """Measure, and set the predictions beside the measurements.

        Raises:
            ValueError: an unknown parameter, or a value outside its range.

        Example:
            >>> from widefield_labs import LABS
            >>> LABS["multistep"].run(scale="tiny").verdict
            'holds'
        """
        known = self.parameters
        for name in parameters:
            check_name(f"parameter of {self.name}", name, tuple(known))
        scale = check("scale", Scale, scale)
        seed = check_parameter("seed", Annotated[int, Ge(0)], seed)
        values = {
            p.name: check_parameter(p.name, p.annotation, parameters.get(p.name, p.default))
            for p in known.values()
        }
        generator = Generator().manual_seed(seed)
        arrays = self.measure(scale=scale, generator=generator, **values)
        return Result(
            name=self.name,
            parameters={"scale": scale, "seed": seed, **values},
            checks=self.check(arrays),
            arrays=arrays,
            notes=self.notes(arrays),
            draw=self.draw,
        )


def check_parameter(name: str, hint: Any, value: Any) -> Any:
    """Return a value as its annotation has it.

    Raises:
        ValueError: it does not fit, or is a number that is infinite, NaN or beyond `LARGEST`.
    """
    if isinstance(value, Real) and not isinstance(value, bool):
        check(name, Annotated[float, Interval(ge=-LARGEST, le=LARGEST)], value)
    return check(name, hint, value)


def at_scale(scale: Scale, *, tiny: T, default: T) -> T:
    """Choose an amount of work by the run's scale."""
    return tiny if scale == "tiny" else default


def first_line(docstring: str | None) -> str:
    """Return a lab's claim, which is the first line of its file."""
    assert docstring, "a lab's file begins with its claim"
    return docstring.splitlines()[0]
