"""What changed from one encoder to another, and whether it is better: every threshold stands here.

Both were asked about the same examples, so the interval is that of the mean difference, a
percentile bootstrap over the examples, 95 %.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
LOST = 0.01
"""A score with labels is lost if its mean falls by more than this, surely or not."""
SHAKEN = 0.05
"""The agreement of neighbors is lost if it surely falls by more than this."""
ONE_SIDED = 1.645 / 1.960
"""Half width of a one-sided 95 % interval as a share of a two-sided one's, by the normal law."""
FLAT = 0.5
"""Directions are lost if the effective rank falls below this share of the start's."""

Verdict = Literal["better", "no different", "keep the old one"]


@dataclass(frozen=True, kw_only=True)
class Change:
    """A mean over examples before and after."""

    before: float
    after: float
    low: float
    high: float
    """The ends of the interval of `after - before`."""

    @property
    def difference(self) -> float:
        """Return what was gained."""
        return self.after - self.before

    @property
    def word(self) -> Literal["gained", "lost", ""]:
        """Return what is sure of the difference."""
        if self.low > 0:
            return "gained"
        return "lost" if self.high < 0 else ""

    @property
    def probably_lost(self) -> bool:
        """Return whether all of the one-sided 95 % interval, which asks for harm alone, is lost."""
        return self.difference + ONE_SIDED * (self.high - self.difference) < 0

    @property
    def may_be_lost(self) -> bool:
        """Return whether a fall by more than a point is within the one-sided 95 % interval."""
        return self.difference - ONE_SIDED * (self.difference - self.low) < -LOST

    def line(self) -> str:
        """Return it in percent."""
        before, after, difference, low, high = (
            100 * x for x in (self.before, self.after, self.difference, self.low, self.high)
        )
        word = f", {self.word}" if self.word else ""
        return f"{before:.1f} to {after:.1f} %, {difference:+.1f} [{low:+.1f}, {high:+.1f}]{word}"


def change(before: NDArray[Any], after: NDArray[Any], *, seed: int = 0) -> Change:
    """Compare what each of n examples scored before and after, both [n] in [0, 1].

    Example:
        >>> change(np.zeros(50), np.ones(50)).line()
        '0.0 to 100.0 %, +100.0 [+100.0, +100.0], gained'
    """
    difference = np.asarray(after, float) - np.asarray(before, float)
    drawn = np.random.default_rng(seed).integers(len(difference), size=(RESAMPLES, len(difference)))
    low, high = np.quantile(difference[drawn].mean(1), (0.025, 0.975))
    return Change(
        before=float(np.mean(before)), after=float(np.mean(after)), low=float(low), high=float(high)
    )


def judged_by_labels(changes: Sequence[Change]) -> tuple[Verdict, str]:
    """Judge scores that labels give, one or more for each task.

    Example:
        >>> judged_by_labels([Change(before=0.5, after=0.6, low=0.05, high=0.15)])[0]
        'better'
    """
    if any(c.difference < -LOST or c.probably_lost for c in changes):
        return "keep the old one", "a score with labels fell"
    if any(c.word == "gained" for c in changes):
        return "better", "a score with labels surely rose, and none is likely to have fallen"
    if any(c.may_be_lost for c in changes):
        return (
            "keep the old one",
            "no score with labels surely rose, and one may have fallen by more than a point; "
            "more labels would tell",
        )
    return "no different", "no score with labels surely rose, and none fell by more than a point"


def judged_without_labels(
    agreement: Change,
    planted: Mapping[str, Change],
    *,
    rank: tuple[float, float],
    sick: bool,
) -> tuple[Verdict, str]:
    """Judge what can be told without labels.

    Args:
        agreement: how many of its neighbors an image keeps when it is seen through a view.
        planted: how many of the planted features are read.
        rank: effective rank before and after.
        sick: whether the features collapsed, and those of the start had not.

    Example:
        >>> lost = Change(before=0.5, after=0.2, low=-0.35, high=-0.25)
        >>> judged_without_labels(lost, {}, rank=(40, 40), sick=False)[0]
        'keep the old one'
    """
    if sick:
        return "keep the old one", "the features collapsed"
    if rank[1] < FLAT * rank[0]:
        return "keep the old one", "the features use less than half as many directions"
    if agreement.high < -SHAKEN:
        return "keep the old one", "images lose their neighbors when they are seen through views"
    fallen = [name for name, c in planted.items() if c.word == "lost"]
    if planted and len(fallen) == len(planted):
        return "keep the old one", f"less can be read of what is planted ({', '.join(fallen)})"
    # Agreement alone rises with almost any training, whether a class can be read better or not.
    if (
        agreement.word == "gained"
        and not fallen
        and any(c.word == "gained" for c in planted.values())
    ):
        return "better", "more neighbors stay through views, and more is read of what is planted"
    return "no different", "nothing was ruined, and labels would have to tell what was gained"
