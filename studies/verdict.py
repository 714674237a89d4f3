"""Whether a finding holds: the criterion of a study and the numbers of its seeds -> a verdict."""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from scipy.stats import t

from studies.study import Finding, Measured, SeedRuns

VerdictName = Literal["holds", "does not hold", "cannot tell"]


@dataclass(frozen=True)
class Verdict:
    """A verdict with the mean over the seeds and the half-width of its 95 % interval."""

    verdict: VerdictName
    mean: float
    half_width: float | None
    """None for one seed."""
    seeds: int
    why: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def interval(values: Sequence[float]) -> tuple[float, float | None]:
    """Return the mean and the half-width of its 95 % t-interval; None for one value.

    Example:
        >>> interval([1.0, 2.0, 3.0])
        (2.0, 2.48...)
    """
    n = len(values)
    if n < 2:
        return statistics.mean(values), None
    half = float(t.ppf(0.975, n - 1)) * statistics.stdev(values) / math.sqrt(n)
    return statistics.mean(values), half


def by_seed(runs: Mapping[str, Measured]) -> Mapping[int, SeedRuns]:
    """Return the measures of each seed by arm, from runs named `ARM | seed N`."""
    seeds: dict[int, dict[str, Measured]] = {}
    for key, run in runs.items():
        arm, _, seed = key.rpartition(" | seed ")
        seeds.setdefault(int(seed), {})[arm] = run["measured"]
    return seeds


def decide(finding: Finding, seeds: Sequence[SeedRuns]) -> Verdict:
    """Return the verdict on a finding, from the complete runs of every seed."""
    mean, half = interval([finding.value(runs) for runs in seeds])
    rounded = round(mean, 4), None if half is None else round(half, 4), len(seeds)
    if not all(finding.valid(runs) for runs in seeds):
        return Verdict("cannot tell", *rounded, "an encoder or a judge is at chance")
    if half is None:
        return Verdict("cannot tell", *rounded, "one seed")
    if mean >= finding.at_least and mean - half > 0:
        return Verdict("holds", *rounded)
    if mean + half < max(finding.at_least, 0.0) or mean + half <= 0:
        return Verdict("does not hold", *rounded)
    return Verdict("cannot tell", *rounded, "the interval is too wide")
