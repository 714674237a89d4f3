"""Paired differences of scores on the same examples, with a percentile bootstrap.

Efron and Tibshirani (1993), "An Introduction to the Bootstrap", chapter 13: examples are sampled
with replacement, and the 95 % interval runs from the 2.5 % to the 97.5 % quantile of the means.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

ScoreVerdict = Literal["higher", "lower", "no significant difference"]

RESAMPLES = 1000


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """The mean of a score before and after, on the same examples."""

    before: float
    after: float
    low: float
    high: float
    """The ends of the 95 % interval of `after - before`."""

    @property
    def difference(self) -> float:
        """Return `after - before`."""
        return self.after - self.before

    @property
    def verdict(self) -> ScoreVerdict:
        """Return whether the interval excludes 0, and on which side."""
        if self.low > 0:
            return "higher"
        return "lower" if self.high < 0 else "no significant difference"

    def line(self) -> str:
        """Return scores, difference and verdict in percent."""
        return (
            f"{100 * self.before:.1f} to {100 * self.after:.1f} %, {100 * self.difference:+.1f} "
            f"[{100 * self.low:+.1f}, {100 * self.high:+.1f}], {self.verdict}"
        )


def paired_difference(
    before: NDArray[Any], after: NDArray[Any], *, seed: int = 0
) -> PairedDifference:
    """Compare the scores of each of n examples before and after, both [n] in [0, 1].

    Example:
        >>> paired_difference(np.zeros(50), np.ones(50)).line()
        '0.0 to 100.0 %, +100.0 [+100.0, +100.0], higher'
    """
    (means,) = bootstrap_means(np.asarray(after, float) - np.asarray(before, float), seed=seed)
    low, high = interval(means)
    return PairedDifference(
        before=float(np.mean(before)), after=float(np.mean(after)), low=low, high=high
    )


def bootstrap_means(*scores: NDArray[Any], seed: int) -> list[NDArray[np.float64]]:
    """Return the means of scores [n] over resamples of the same examples, each [RESAMPLES].

    Example:
        >>> first, second = bootstrap_means(np.arange(9), 2 * np.arange(9), seed=0)
        >>> bool((second == 2 * first).all())
        True
    """
    n = len(scores[0])
    sampled = np.random.default_rng(seed).integers(n, size=(RESAMPLES, n))
    return [score[sampled].mean(1) for score in scores]


def percent(share: float) -> str:
    """Return a share in whole percent."""
    return f"{100 * share:.0f} %"


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the ends of the central 95 % of `values`."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)
