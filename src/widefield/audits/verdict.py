"""The verdict on one task: where its accuracy lies between floor and ceiling.

    learned = (accuracy - floor) / (ceiling - floor), clipped to [0, 1]

Its 95 % interval is a percentile bootstrap over the test examples. Encoder, floor and ceiling are
resampled together, since they are scored on the same examples: differences then vary less than
each accuracy alone. The interval of the accuracy is Wilson's, as in `probe`.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from widefield.evaluation.floors import FLOORS
from widefield.evaluation.paired import (
    PairedDifference,
    bootstrap_means,
    interval,
    paired_difference,
    percent,
)
from widefield.evaluation.verdicts import MIN_GAP, ShareVerdict, judge_share, name_share
from widefield.probes.linear import wilson


@dataclass(frozen=True, kw_only=True)
class ProbeResult:
    """Result of the probes for one task and one source of features."""

    hits: NDArray[np.bool_]
    """Which test examples the linear probe classifies correctly, bool [n]."""
    knn: float
    """kNN accuracy."""

    @property
    def accuracy(self) -> float:
        """Return the share of test examples that are hits."""
        return float(self.hits.mean())


@dataclass(frozen=True, kw_only=True)
class TaskAudit:
    """The verdict on one task, and the accuracies that it is based on."""

    task: str
    verdict: ShareVerdict
    learned: float | None
    """Position between floor (0) and ceiling (1); None if the two are not separable."""
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

    def hits(self) -> NDArray[np.bool_]:
        """Return `right` as bool [n]."""
        bits = np.frombuffer(base64.b64decode(self.right), np.uint8)
        return np.unpackbits(bits, count=self.test_examples).astype(bool)

    @property
    def share(self) -> float:
        """Return `learned`, or NaN if floor and ceiling are not separable."""
        return float("nan") if self.learned is None else self.learned

    def difference_from(self, other: "TaskAudit") -> PairedDifference:
        """Return the paired difference of accuracy from another encoder, on the same examples.

        Example:
            >>> none, all_ = np.zeros(100, bool), np.ones(100, bool)
            >>> probes = [ProbeResult(hits=hits, knn=0.5) for hits in (none, all_)]
            >>> before, after = (audit_task("a", p, {"pixels": p}, p, classes=2) for p in probes)
            >>> after.difference_from(before).verdict
            'higher'
        """
        return paired_difference(other.hits(), self.hits())

    def line(self) -> str:
        """Return the verdict in one sentence."""
        accuracy, floor, ceiling = map(percent, (self.accuracy, self.floor, self.ceiling))
        name = FLOORS[self.floor_of]
        if self.accuracy < self.floor:
            position = f"{accuracy}, below {name} at {floor}; full supervision at {ceiling}"
        elif self.accuracy > self.ceiling:
            position = f"{accuracy}, above full supervision at {ceiling}; {name} at {floor}"
        else:
            position = f"{accuracy} between {name} at {floor} and full supervision at {ceiling}"
        if self.learned is None:
            return f"{self.task}: not separable; {position}, which are too close"
        return f"{self.task}: {self.describe()}, {percent(self.learned)} of the way; {position}"

    def describe(self) -> str:
        """Return the verdict; if it is unclear, with the verdicts that it lies between."""
        if self.verdict != "unclear":
            return self.verdict
        assert self.learned_low is not None
        assert self.learned_high is not None
        return f"unclear, {name_share(self.learned_low)} to {name_share(self.learned_high)}"


def audit_task(
    task: str,
    encoder: ProbeResult,
    floors: Mapping[str, ProbeResult],
    ceiling: ProbeResult,
    *,
    classes: int,
    seed: int = 0,
) -> TaskAudit:
    """Return the verdict on one task, from probes that were scored on the same test examples.

    Example:
        >>> half, all_, none = np.arange(400) % 2 == 0, np.ones(400, bool), np.arange(400) % 10 == 0
        >>> floors = {"pixels": ProbeResult(hits=none, knn=0.1)}
        >>> probes = (ProbeResult(hits=half, knn=0.5), floors, ProbeResult(hits=all_, knn=1.0))
        >>> audit_task("shape", *probes, classes=3).verdict
        'weakened'
    """
    floor_of = max(floors, key=lambda name: floors[name].accuracy)
    floor = floors[floor_of]
    hits = (result.hits for result in (encoder, floor, ceiling))
    means, low_means, high_means = bootstrap_means(*hits, seed=seed)
    gap = high_means - low_means
    distance = ceiling.accuracy - floor.accuracy
    learned = learned_low = learned_high = None
    verdict: ShareVerdict = "not separable"
    if distance >= MIN_GAP and interval(gap)[0] > 0:
        learned = float(np.clip((encoder.accuracy - floor.accuracy) / distance, 0, 1))
        ratios = np.clip((means - low_means) / np.maximum(gap, 1e-9), 0, 1)
        learned_low, learned_high = interval(ratios)
        verdict = judge_share(learned_low, learned_high)
    low, high = wilson(int(encoder.hits.sum()), len(encoder.hits))
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
        right=packed(encoder.hits),
    )


def packed(hits: NDArray[np.bool_]) -> str:
    """Return booleans [n] as bits in base 64.

    Example:
        >>> packed(np.ones(8, bool))
        '/w=='
    """
    return base64.b64encode(np.packbits(hits).tobytes()).decode()
