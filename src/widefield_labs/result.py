"""What every lab returns: predictions beside measurements, the arrays behind them, a figure."""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from numpy.typing import NDArray

from widefield.core.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Arrays = dict[str, NDArray[Any]]
"""Named arrays of one run: everything that its checks and its figure are computed from."""


@dataclass(frozen=True, kw_only=True, slots=True)
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


def close(claim: str, measured: float, predicted: float, tolerance: float) -> Check:
    """Predict a value, up to an absolute `tolerance`.

    Example:
        >>> close("a half of the tosses are heads", 0.52, 0.5, tolerance=0.03).holds
        True
    """
    return Check(
        claim=claim, measured=float(measured), predicted=float(predicted), tolerance=tolerance
    )


def between(
    claim: str, measured: float, low: float, high: float, *, tolerance: float = 0.0
) -> Check:
    """Predict an interval [low, high]."""
    ends = (float(low), float(high))
    return Check(claim=claim, measured=float(measured), predicted=ends, tolerance=tolerance)


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
    draw: Callable[[Arrays, "Figure"], None] = field(repr=False)
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

    def plot(self) -> "Figure":
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
