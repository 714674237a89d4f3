"""What a probe's accuracy means once floor and ceiling are known.

    learned = (accuracy - floor) / (ceiling - floor), clipped to [0, 1]

Its interval is a percentile bootstrap over the test examples, 95 %. The encoder, the floor and the
ceiling are resampled together: they answer for the same examples, so their differences are surer
than each alone. The interval of the accuracy alone is Wilson's, as `probe` has it.
"""

import base64
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.evaluation.floors import FLOORS
from widefield.evaluation.paired import (
    PairedDifference,
    bootstrap_means,
    interval,
    paired_difference,
)
from widefield.evaluation.verdicts import MIN_GAP, ShareVerdict, judge_share, name_share
from widefield.probes.linear import wilson


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """How well one task can be read off one source of features."""

    hits: NDArray[np.bool_]
    """Which test examples the linear probe classifies correctly, bool [n]."""
    knn: float
    """Accuracy of the nearest neighbors' vote."""

    @property
    def accuracy(self) -> float:
        """Return the share of test examples that are hits."""
        return float(self.hits.mean())


@dataclass(frozen=True, kw_only=True)
class TaskAudit:
    """One task: where the encoder lies between floor and ceiling."""

    task: str
    verdict: ShareVerdict
    learned: float | None
    """Share of the way from floor to ceiling; None if the two are not separable."""
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
    """Which floor is the best one: `pixels`, `random` or `majority`."""
    ceiling: float
    classes: int
    test_examples: int
    right: str
    """Which test examples the probe classifies correctly: one bit each, in base 64."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)

    def hits(self) -> NDArray[np.bool_]:
        """Return which test examples the probe classifies correctly, bool [n]."""
        bits = np.frombuffer(base64.b64decode(self.right), np.uint8)
        return np.unpackbits(bits, count=self.test_examples).astype(bool)

    def difference_from(self, other: "TaskAudit") -> PairedDifference:
        """Return the paired difference of accuracy from another encoder, on the same examples.

        Example:
            >>> none, all_ = np.zeros(100, bool), np.ones(100, bool)
            >>> probes = [ProbeResult(hits=hits, knn=0.5) for hits in (none, all_)]
            >>> before, after = (verdict("a", p, {"pixels": p}, p, classes=2) for p in probes)
            >>> after.difference_from(before).verdict
            'higher'
        """
        return paired_difference(other.hits(), self.hits())

    def line(self) -> str:
        """Return the verdict in one plain sentence."""
        accuracy, floor, ceiling = map(_percent, (self.accuracy, self.floor, self.ceiling))
        lowest = FLOORS[self.floor_of]
        if self.accuracy < self.floor:
            places = f"{accuracy}, below {lowest} at {floor}; full supervision at {ceiling}"
        elif self.accuracy > self.ceiling:
            places = f"{accuracy}, above full supervision at {ceiling}; {lowest} at {floor}"
        else:
            places = f"{accuracy} between {lowest} at {floor} and full supervision at {ceiling}"
        if self.learned is None:
            return f"{self.task}: not separable; {places}: too close to tell"
        return f"{self.task}: {self.words()}, {_percent(self.learned)} of the way; {places}"

    def words(self) -> str:
        """Return the verdict, and between which ones it lies if it is unclear."""
        if self.verdict != "unclear":
            return self.verdict
        assert self.learned_low is not None
        assert self.learned_high is not None
        return f"unclear, {name_share(self.learned_low)} to {name_share(self.learned_high)}"


def verdict(
    task: str,
    encoder: ProbeResult,
    floors: Mapping[str, ProbeResult],
    ceiling: ProbeResult,
    *,
    classes: int,
    seed: int = 0,
) -> TaskAudit:
    """Judge one task, from probes of the same test examples.

    Example:
        >>> half, all_, none = np.arange(400) % 2 == 0, np.ones(400, bool), np.arange(400) % 10 == 0
        >>> floors = {"pixels": ProbeResult(hits=none, knn=0.1)}
        >>> probes = (ProbeResult(hits=half, knn=0.5), floors, ProbeResult(hits=all_, knn=1.0))
        >>> verdict("shape", *probes, classes=3).verdict
        'weakened'
    """
    floor_of = max(floors, key=lambda name: floors[name].accuracy)
    floor = floors[floor_of]
    hits = (result.hits for result in (encoder, floor, ceiling))
    reached, least, most = bootstrap_means(*hits, seed=seed)
    gap = ceiling.accuracy - floor.accuracy
    learned = learned_low = learned_high = None
    word: ShareVerdict = "not separable"
    if gap >= MIN_GAP and interval(most - least)[0] > 0:
        learned = float(np.clip((encoder.accuracy - floor.accuracy) / gap, 0, 1))
        fractions = np.clip((reached - least) / np.maximum(most - least, 1e-9), 0, 1)
        learned_low, learned_high = interval(fractions)
        word = judge_share(learned_low, learned_high)
    low, high = wilson(int(encoder.hits.sum()), len(encoder.hits))
    return TaskAudit(
        task=task,
        verdict=word,
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
        right=packed(encoder.hits),
    )


def packed(hits: NDArray[np.bool_]) -> str:
    """Return booleans [n] as bits in base 64.

    Example:
        >>> packed(np.ones(8, bool))
        '/w=='
    """
    return base64.b64encode(np.packbits(hits).tobytes()).decode()


def _percent(share: float) -> str:
    return f"{100 * share:.0f} %"
