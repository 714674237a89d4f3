"""What a probe's accuracy means once floor and ceiling are known; every threshold stands here.

    learned = (accuracy - floor) / (ceiling - floor), clipped to [0, 1]

Intervals are percentile bootstraps over the test examples, 95 %. The encoder, the floor and the
ceiling are resampled together: they answer for the same examples, so their differences are surer
than each alone.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

LEARNED = 0.75
"""From here up, a feature is learned."""
WEAKENED = 0.25
"""From here up to `LEARNED`, weakened; below, suppressed."""
LEAST_GAP = 0.05
"""A ceiling less than this above the floor, or one whose interval of the gap holds 0, tells
nothing."""
RESAMPLES = 1000

Verdict = Literal["learned", "weakened", "suppressed", "not separable"]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How well one task can be read off one source of features."""

    hits: NDArray[np.bool_]
    """Which test examples the linear probe classifies correctly, bool [n]."""
    knn: float
    """Accuracy of the nearest neighbours' vote."""

    @property
    def accuracy(self) -> float:
        """Share of test examples that are hits."""
        return float(self.hits.mean())


@dataclass(frozen=True, kw_only=True)
class TaskAudit:
    """One task: what the encoder holds of it, between what anything holds and what can be held."""

    task: str
    verdict: Verdict
    learned: float | None
    """Share of the way from floor to ceiling; None where the two are not separable."""
    learned_low: float | None
    learned_high: float | None
    """The ends of the interval of `learned`."""
    accuracy: float
    low: float
    high: float
    """The ends of the interval of `accuracy`."""
    knn: float
    floor: float
    floor_of: str
    """Which floor is the better one: `pixels` or `random`."""
    ceiling: float
    classes: int
    test_examples: int

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)

    def line(self) -> str:
        """The verdict in one plain sentence."""
        places = f"{_percent(self.accuracy)} between {_floor(self.floor_of)} at "
        places += f"{_percent(self.floor)} and full supervision at {_percent(self.ceiling)}"
        if self.learned is None:
            return f"{self.task}: not separable; {places}: too close to tell"
        return f"{self.task}: {self.verdict}, {_percent(self.learned)} of the way; {places}"


def judge(
    task: str,
    encoder: Reading,
    floors: Mapping[str, Reading],
    ceiling: Reading,
    *,
    classes: int,
    seed: int = 0,
) -> TaskAudit:
    """The verdict on one task, from readings of the same test examples.

    Example:
        >>> half, all_, none = np.arange(400) % 2 == 0, np.ones(400, bool), np.arange(400) % 10 == 0
        >>> floors = {"pixels": Reading(hits=none, knn=0.1)}
        >>> readings = (Reading(hits=half, knn=0.5), floors, Reading(hits=all_, knn=1.0))
        >>> judge("shape", *readings, classes=3).verdict
        'weakened'
    """
    floor_of = max(floors, key=lambda name: floors[name].accuracy)
    floor = floors[floor_of]
    rng = np.random.default_rng(seed)
    drawn = rng.integers(len(encoder.hits), size=(RESAMPLES, len(encoder.hits)))
    ours, least, most = (r.hits[drawn].mean(1) for r in (encoder, floor, ceiling))
    gap = ceiling.accuracy - floor.accuracy
    learned = learned_low = learned_high = None
    verdict: Verdict = "not separable"
    if gap >= LEAST_GAP and np.quantile(most - least, 0.025) > 0:
        learned = float(np.clip((encoder.accuracy - floor.accuracy) / gap, 0, 1))
        fractions = np.clip((ours - least) / np.maximum(most - least, 1e-9), 0, 1)
        learned_low, learned_high = _interval(fractions)
        verdict = name_of(learned)
    low, high = _interval(ours)
    return TaskAudit(
        task=task,
        verdict=verdict,
        learned=learned,
        learned_low=learned_low,
        learned_high=learned_high,
        accuracy=encoder.accuracy,
        low=low,
        high=high,
        knn=encoder.knn,
        floor=floor.accuracy,
        floor_of=floor_of,
        ceiling=ceiling.accuracy,
        classes=classes,
        test_examples=len(encoder.hits),
    )


def name_of(learned: float) -> Verdict:
    """The verdict that a learned fraction in [0, 1] earns.

    Example:
        >>> [name_of(share) for share in (0.1, 0.25, 0.75)]
        ['suppressed', 'weakened', 'learned']
    """
    if learned >= LEARNED:
        return "learned"
    return "weakened" if learned >= WEAKENED else "suppressed"


def _interval(values: NDArray[np.float64]) -> tuple[float, float]:
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def _floor(name: str) -> str:
    return "raw pixels" if name == "pixels" else "an untrained encoder"
