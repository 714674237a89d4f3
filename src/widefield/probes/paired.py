"""Paired differences of scores on the same examples, with a percentile bootstrap.

Efron and Tibshirani (1993), "An Introduction to the Bootstrap", chapter 13: examples are sampled
with replacement, and the 95 % interval runs from the 2.5 % to the 97.5 % quantile of the means.

Of examples in groups, such as the frames of a video, whole groups are sampled. The variance of
means over G sampled groups is (G - 1) / G of an unbiased estimate, and the normal quantile is too
small for few groups: deviations are multiplied by sqrt(G / (G - 1)) t / z, where t is Student's
quantile with G - 1 degrees of freedom and z the normal one.
"""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from widefield.probes.grouped import GroupIds, small_sample_factor

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

    def beside(self, name: str, points: str) -> str:
        """Return that the score is `points` above `name`, or below, unless within chance.

        Example:
            >>> PairedDifference(before=0.5, after=0.6, low=-0.1, high=0.3).beside("it", "0.1")
            '0.1 above it, which is within chance'
        """
        side = "below" if self.difference < 0 else "above"
        chance = ", which is within chance" if self.verdict == "no significant difference" else ""
        return f"{points} {side} {name}{chance}"

    def line(self) -> str:
        """Return scores, difference and verdict in percent."""
        return (
            f"{100 * self.before:.1f} to {100 * self.after:.1f} %, {100 * self.difference:+.1f} "
            f"[{100 * self.low:+.1f}, {100 * self.high:+.1f}], {self.verdict}"
        )


def paired_difference(
    before: NDArray[Any],
    after: NDArray[Any],
    *,
    groups: GroupIds | None = None,
    seed: int = 0,
) -> PairedDifference:
    """Compare the scores of each of n examples before and after, both [n] in [0, 1].

    The interval is clustered by `groups` [n].

    Example:
        >>> paired_difference(np.zeros(50), np.ones(50)).line()
        '0.0 to 100.0 %, +100.0 [+100.0, +100.0], higher'
    """
    difference = np.asarray(after, float) - np.asarray(before, float)
    (means,) = bootstrap_means(difference, groups=groups, seed=seed)
    low, high = interval(means)
    return PairedDifference(
        before=float(np.mean(before)), after=float(np.mean(after)), low=low, high=high
    )


def bootstrap_means(
    *scores: NDArray[Any], groups: GroupIds | None = None, seed: int
) -> list[NDArray[np.float64]]:
    """Return the means of scores [n] over resamples of the same examples, each [RESAMPLES].

    Raises:
        ValueError: all examples are of one group.

    Example:
        >>> first, second = bootstrap_means(np.arange(9), 2 * np.arange(9), seed=0)
        >>> bool((second == 2 * first).all())
        True
    """
    rng, n = np.random.default_rng(seed), len(scores[0])
    if groups is None:
        sampled = rng.integers(n, size=(RESAMPLES, n))
        return [score[sampled].mean(1) for score in scores]
    _, group, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    count = len(sizes)
    if count < 2:
        raise ValueError(
            "all scored examples are of one group: an interval needs two groups or more"
        )
    sampled = rng.integers(count, size=(RESAMPLES, count))
    factor = (count / (count - 1)) ** 0.5 * small_sample_factor(count)
    examples = sizes[sampled].sum(1)
    sums = (np.bincount(group, score)[sampled].sum(1) for score in scores)
    return [
        score.mean() + factor * (total / examples - score.mean())
        for score, total in zip(scores, sums, strict=True)
    ]


def percent(share: float) -> str:
    """Return a share in whole percent."""
    return f"{100 * share:.0f} %"


def interval(values: NDArray[np.float64]) -> tuple[float, float]:
    """Return the ends of the central 95 % of `values`."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)
