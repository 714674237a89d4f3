"""Intervals of scores, and of their paired differences on the same examples.

The interval of a share of hits is Wilson's, and that of a difference of two shares follows from it.
That of other differences is a percentile bootstrap.

Zou and Donner (2008), "Construction of confidence limits about effect measures", section 2: of n
examples a share u is hit after alone, with Wilson's interval (u-, u+), and a share v before alone.
The interval of u - v has the ends

    u - v - sqrt(a^2 + b^2 - 2 r a b),    a = u - u-,  b = v+ - v,  r = -sqrt(u v / (1-u) / (1-v)),

and u - v + the same of a = u+ - u and b = v - v-.

Where up to 16 examples differ, an interval is at least as wide as the permutation test of equal
scores says: a difference d of mid-p value p (Fagerland, Lydersen and Laake 2013), over all changes
of sign, has the end d -+ |d| z / z_(1 - p/2) on the side of 0. With 8 examples, the intervals above
alone would call up to an eighth of equal scores different.

Efron and Tibshirani (1993), "An Introduction to the Bootstrap", chapter 13: examples are sampled
with replacement, and the 95 % interval runs from the 2.5 % to the 97.5 % quantile of the means.

Of examples in groups, such as the frames of a video, whole groups are sampled. The variance of
means over G sampled groups is (G - 1) / G of an unbiased estimate, and the normal quantile is too
small for few groups: deviations are multiplied by sqrt(G / (G - 1)) t / z, where t is Student's
quantile with G - 1 degrees of freedom and z the normal one. In the interval of a difference, each
example counts as a group if there are none.
"""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from widefield.probes.folds import GroupIds

ScoreVerdict = Literal["higher", "lower", "no significant difference"]

# Chosen by hand, as is usual for the percentiles of a 95 % interval.
RESAMPLES = 1000
QUANTILE = 1.959964
"""The normal quantile at 0.975."""
_MOST_FLIPS = 16
"""Examples that differ up to which all changes of sign are enumerated."""


def wilson(hits: float, trials: float) -> tuple[float, float]:
    """Return the 95 % interval of a proportion (Wilson 1927), in [0, 1] even at 0 and 1."""
    share, spread = hits / trials, QUANTILE * QUANTILE / trials
    center = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    # The share itself must be inside despite rounding.
    return min(share, max(0.0, center - half)), max(share, min(1.0, center + half))


def share_interval(
    hits: NDArray[Any], groups: GroupIds | None = None, *, trials: float | None = None
) -> tuple[float, float]:
    """Return the 95 % interval of the share of hits [n], clustered by `groups`.

    It is Wilson's interval for the effective number of examples, with G groups of m_g examples and
    h_g hits, p the share of hits, and t the quantile of Student's distribution with G - 1 degrees
    of freedom, which replaces that of the normal, z (Korn and Graubard 1998; Dean and Pagano 2015):

        1 / n_eff = (t / z)^2 [(1 - w) v / (p (1 - p)) + w sum_g m_g^2 / n^2],
        v = G / (G - 1)  sum_g (h_g - p m_g)^2 / n^2,    w = 1 / (1 + 2 p (1 - p) G),

    and n_eff is n at most. Few groups, or few errors, tell little of how alike the hits of a group
    are: the weight w is that of hits that are equal within each. With one group the interval is
    [0, 1].

    `trials` is for numbers in place of hits, such as those of an average precision, on which only
    so many of the n examples bear, those with the label. Without `groups` each example is then a
    group. In w, G is at most `trials`, and sum_g m_g^2 / n^2 is at least 1 / `trials`.
    """
    n, share = len(hits), float(hits.mean())
    if groups is None and trials is None:
        return wilson(int(hits.sum()), n)
    ids = np.arange(n) if groups is None else groups
    _, group, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    count = len(sizes)
    if count == 1:
        return 0.0, 1.0
    deviation = np.bincount(group, hits) - share * sizes
    variance, binary = (
        count / (count - 1) * float(deviation @ deviation) / n**2,
        share * (1 - share),
    )
    trials = n if trials is None else trials
    weight = 1 / (1 + 2 * binary * min(count, trials))
    observed = variance / binary if binary else 0.0
    equal = max(float(sizes @ sizes) / n**2, 1 / trials)
    inverse = (1 - weight) * observed + weight * equal
    effective = min(n, 1 / (inverse * small_sample_factor(count) ** 2))
    return wilson(share * effective, effective)


def small_sample_factor(groups: float) -> float:
    """Return the quantile of Student's distribution for so many groups over the normal one."""
    from scipy.special import stdtrit  # takes long to import

    return float(stdtrit(groups - 1, 0.975)) / QUANTILE


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

    def compare_text(self, name: str, points: str) -> str:
        """Return that the score is `points` above `name`, or below, unless within chance."""
        side = "below" if self.difference < 0 else "above"
        suffix = ", which is within chance" if self.verdict == "no significant difference" else ""
        return f"{points} {side} {name}{suffix}"

    def line(self) -> str:
        """Return scores, difference and verdict in percent."""
        return (
            f"{100 * self.before:.1f} to {100 * self.after:.1f} %, {100 * self.difference:+.1f} "
            f"[{100 * self.low:+.1f}, {100 * self.high:+.1f}], {self.verdict}"
        )


def paired_difference(
    before: NDArray[Any], after: NDArray[Any], *, groups: GroupIds | None = None, seed: int = 0
) -> PairedDifference:
    """Compare the scores of each of n examples before and after, both [n] in [0, 1].

    The interval is clustered by `groups` [n].
    """
    difference = np.asarray(after, float) - np.asarray(before, float)
    ids = np.arange(len(difference)) if groups is None else groups
    are_hits = np.asarray(before).dtype == np.asarray(after).dtype == np.bool_
    if not difference.any():
        low, high = 0.0, 0.0
    elif are_hits and groups is None:
        wins, losses = int((difference > 0).sum()), int((difference < 0).sum())
        low, high = _difference_interval(wins, losses, len(ids))
    else:
        (means,) = bootstrap_means(difference, groups=ids, seed=seed)
        low, high = interval(means)
    change = float(difference.mean())
    _, group = np.unique(ids, return_inverse=True)
    half = _half_width(np.bincount(group, difference).astype(np.float64), change)
    if change > 0:
        low = min(low, change - half)
    elif change < 0:
        high = max(high, change + half)
    if are_hits:
        low, high = max(low, -1.0), min(high, 1.0)
    return PairedDifference(
        before=float(np.mean(before)), after=float(np.mean(after)), low=low, high=high
    )


def _difference_interval(wins: int, losses: int, trials: int) -> tuple[float, float]:
    """Return the interval of (wins - losses) / trials, by Wilson's of both shares."""
    up, down = wins / trials, losses / trials
    (up_low, up_high), (down_low, down_high) = wilson(wins, trials), wilson(losses, trials)
    r = -math.sqrt(up * down / (1 - up) / (1 - down)) if up < 1 and down < 1 else 0.0

    def half(a: float, b: float) -> float:
        return math.sqrt(a * a + b * b - 2 * r * a * b)

    difference = up - down
    return (
        difference - half(up - up_low, down_high - down),
        difference + half(up_high - up, down - down_low),
    )


def _half_width(sums: NDArray[np.float64], change: float) -> float:
    """Return the half-width of the interval of `change` by the permutation test; 0 for many.

    `sums` of differences are those of groups.
    """
    nonzero = sums[sums != 0]
    if len(nonzero) > _MOST_FLIPS or change == 0:
        return 0.0
    flipped = np.zeros(1)
    for each in nonzero:
        flipped = np.concatenate([flipped - each, flipped + each])
    found, rounding = abs(nonzero.sum()), 1e-9 * np.abs(nonzero).sum()
    above = (np.abs(flipped) > found + rounding).mean()
    equal = (np.abs(np.abs(flipped) - found) <= rounding).mean()
    p = float(above + equal / 2)
    return abs(change) * QUANTILE / NormalDist().inv_cdf(1 - p / 2)


def bootstrap_means(
    *scores: NDArray[Any], groups: GroupIds | None = None, seed: int
) -> list[NDArray[np.float64]]:
    """Return the means of scores [n] over resamples of the same examples, each [RESAMPLES]."""
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
