"""The frame of a lab: parameters, run, predictions beside measurements, figure."""

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from annotated_types import Ge, Interval
from numpy.typing import NDArray
from torch import Generator

from widefield.core.files import write_atomically
from widefield.core.names import check_name
from widefield.core.validation import check, parse

if TYPE_CHECKING:
    from matplotlib.axes import Axes as Axes
    from matplotlib.figure import Figure as Figure
else:  # matplotlib is imported where a figure is drawn
    Axes = Figure = Any

Scale = Literal["tiny", "default"]
"""How much work a run does; tiny takes seconds."""

LARGEST = 1e12
"""Size of a number at most: beyond it sums lose their digits and tensors need too much memory."""

T = TypeVar("T")


Arrays = dict[str, NDArray[Any]]
"""Named arrays of one run: everything that its checks and its figure are computed from."""


@dataclass(frozen=True, slots=True)
class Check:
    """One prediction beside one measurement; made by `close`, `between`, `at_least`, `at_most`."""

    claim: str
    """A plain sentence."""
    measured: float
    predicted: float | tuple[float, float]
    """A value, or the ends of an interval (infinite where one side is open)."""
    tolerance: float = 0.0
    """How far `measured` may lie from a predicted value, or outside a predicted interval."""

    @property
    def holds(self) -> bool:
        """Whether the measurement lies where it was predicted; a NaN never does."""
        ends = self.predicted if isinstance(self.predicted, tuple) else (self.predicted,) * 2
        return bool(ends[0] - self.tolerance <= self.measured <= ends[1] + self.tolerance)


def close(claim: str, measured: float, predicted: float, tolerance: float = 0.0) -> Check:
    """Predict a value, up to an absolute `tolerance`."""
    return Check(claim, float(measured), float(predicted), float(tolerance))


def between(
    claim: str, measured: float, low: float, high: float, *, tolerance: float = 0.0
) -> Check:
    """Predict an interval [low, high]."""
    return Check(claim, float(measured), (float(low), float(high)), float(tolerance))


def at_least(claim: str, measured: float, bound: float, *, tolerance: float = 0.0) -> Check:
    """Predict `measured` >= `bound`."""
    return between(claim, measured, bound, math.inf, tolerance=tolerance)


def at_most(claim: str, measured: float, bound: float, *, tolerance: float = 0.0) -> Check:
    """Predict `measured` <= `bound`."""
    return between(claim, measured, -math.inf, bound, tolerance=tolerance)


@dataclass(frozen=True, kw_only=True)
class Result:
    """The outcome of one lab."""

    name: str
    parameters: dict[str, Any]
    """Every argument of the run, so that it can be repeated."""
    checks: tuple[Check, ...]
    arrays: Arrays = field(repr=False)
    draw: Callable[[Arrays, Figure], None] = field(repr=False)
    """Draws `arrays` on an empty figure."""
    notes: tuple[str, ...] = ()
    """Boundaries found: where a claim does not hold as stated, or only under added conditions."""

    def __post_init__(self) -> None:
        assert self.checks, "a lab without a check claims nothing"
        assert len({check.claim for check in self.checks}) == len(self.checks)

    @property
    def verdict(self) -> Literal["holds", "fails"]:
        """The word `holds` if every check does, else `fails`."""
        return "holds" if all(check.holds for check in self.checks) else "fails"

    @property
    def measured(self) -> dict[str, float]:
        """The measurement of each claim."""
        return {check.claim: check.measured for check in self.checks}

    @property
    def predicted(self) -> dict[str, float | tuple[float, float]]:
        """The prediction of each claim."""
        return {check.claim: check.predicted for check in self.checks}

    def to_json(self) -> dict[str, Any]:
        """Return all but the arrays in JSON's own types; a number that JSON cannot hold is None."""
        return {
            "name": self.name,
            "verdict": self.verdict,
            "parameters": self.parameters,
            "measured": {claim: _finite(value) for claim, value in self.measured.items()},
            "predicted": {claim: _finite(value) for claim, value in self.predicted.items()},
            "tolerance": {check.claim: check.tolerance for check in self.checks},
            "holds": {check.claim: check.holds for check in self.checks},
            "notes": list(self.notes),
        }

    def plot(self) -> Figure:
        """Draw the figure; line styles tell the curves apart in black and white too."""
        from cycler import cycler
        from matplotlib import rc_context
        from matplotlib.figure import Figure

        lines = cycler(color=["#1b4f8a", "#c2571a", "#2e7d4f", "#7a4a9e", "#444444"]) + cycler(
            linestyle=["-", "--", "-.", ":", (0, (6, 1, 1, 1, 1, 1))]
        )
        with rc_context(
            {"axes.prop_cycle": lines, "axes.grid": True, "grid.alpha": 0.3, "font.size": 9}
        ):
            figure = Figure(figsize=(9, 3.6), layout="constrained")
            self.draw(self.arrays, figure)
            for axes in figure.axes:
                if axes.get_legend() is None and axes.get_legend_handles_labels()[0]:
                    axes.legend(fontsize=7)
        return figure

    def save(self, path: str | Path) -> None:
        """Write the figure as .svg or .png; the same arrays give the same bytes."""
        from matplotlib import rc_context

        path = Path(path)
        if path.suffix not in (".svg", ".png"):
            raise ValueError(f"path={path} has no known format: name a .svg or a .png file")
        metadata = {"Date": None} if path.suffix == ".svg" else {}
        with rc_context({"svg.hashsalt": self.name, "svg.fonttype": "none"}):
            figure, kind = self.plot(), path.suffix[1:]
            write_atomically(
                path, lambda draft: figure.savefig(draft, format=kind, metadata=metadata, dpi=120)
            )


def _finite(value: float | tuple[float, float]) -> Any:
    if isinstance(value, tuple):
        return [_finite(end) for end in value]
    return value if math.isfinite(value) else None


@dataclass(frozen=True, kw_only=True)
class Lab:
    """A claim of a paper, the simulation that tests it, and how its outcome is shown.

    Each is a file of this package: `Lab.of` makes it of the file's functions.
    """

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
    draw: Callable[[Arrays, Figure], None]
    """Draws the arrays on an empty figure."""

    @classmethod
    def of(cls, module: ModuleType) -> "Lab":
        """Return the lab of a file; the first line of its docstring is the claim."""
        parts = {name: getattr(module, name) for name in ("measure", "check", "notes", "draw")}
        name = module.__name__.rpartition(".")[2].replace("_", "-")
        return cls(name=name, claim=(module.__doc__ or "").splitlines()[0], **parts)

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
        """Measure, and set the predictions beside the measurements."""
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
    """Return a value as its annotation has it."""
    if isinstance(value, Real) and not isinstance(value, bool):
        check(name, Annotated[float, Interval(ge=-LARGEST, le=LARGEST)], value)
    return check(name, hint, value)


def at_scale(scale: Scale, *, tiny: T, default: T) -> T:
    """Choose an amount of work by the run's scale."""
    return tiny if scale == "tiny" else default
