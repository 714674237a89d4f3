"""The verdict on one task: where its accuracy lies between floor and ceiling.

    learned = (accuracy - floor) / (ceiling - floor), clipped to [0, 1]

A feature that is not learned is hidden if an earlier stage of the encoder predicts it on a grid, or
its wide readout does and is above the floor. It is lost if neither does and the untrained network
can.

Its 95 % interval is a percentile bootstrap over the test examples. Encoder, floor and ceiling are
resampled together, since they are scored on the same examples: differences then vary less than
each accuracy alone. The interval of the accuracy is Wilson's, as in `probe`. Both are clustered by
groups of examples, if there are any.
"""

import base64
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.probes.floors import FLOORS
from widefield.probes.folds import GroupIds
from widefield.probes.outcome import Outcome
from widefield.probes.paired import (
    PairedDifference,
    bootstrap_means,
    interval,
    paired_difference,
    percent,
    share_interval,
)
from widefield.probes.verdicts import (
    MIN_GAP,
    ShareVerdict,
    StageEvidence,
    WideEvidence,
    judge_feature,
    name_share,
)

Outcomes = NDArray[Any]
"""Which test examples a probe classifies correctly, bool [n]. Of a number, or of several labels,
the expansion of the probe's score by example, float64 [n]; see `Outcome`."""


StageHits = Mapping[str, tuple[Outcomes, Outcomes]]
"""Stage and grid -> hits of the encoder and of the untrained network."""


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
    knn: float | None
    floor: float
    floor_of: str
    """Which floor is the best one: `pixels`, `random`, `majority` or `mean`."""
    ceiling: float
    classes: int
    """Number of classes; 0 for a number and for several labels."""
    test_examples: int
    right: str
    """Which test examples the probe classifies correctly: one bit each, in base 64. With another
    measure, the expansion of the score by example: one float32 each."""
    stages: Mapping[str, Mapping[str, float]]
    """Stage and grid, such as `s3@4` -> linear-probe `accuracy`, `low` and `high`, and those of the
    untrained network, `untrained`, `untrained_low` and `untrained_high`."""
    best_stage: str | None
    """The one with the highest accuracy; None if stages were not measured."""
    measure: str = "accuracy"
    """What `accuracy`, floor, ceiling and stages are: R2 of a number, mean average precision of
    several labels."""
    groups: str | None = None
    """Number of the group of each test example, int32 in base 64; None if they are not grouped."""
    wide: float | None = None
    """What the wide readout has; None where it was not measured, because the verdict does not
    depend on it."""

    def hits(self) -> Outcomes:
        """Return `right`, [n]."""
        if self.measure != "accuracy":
            return np.frombuffer(base64.b64decode(self.right), "<f4").astype(np.float64)
        bits = np.frombuffer(base64.b64decode(self.right), np.uint8)
        return np.unpackbits(bits, count=self.test_examples).astype(bool)

    @property
    def title(self) -> str:
        """Return the task, with its measure unless it is the accuracy."""
        return self.task if self.measure == "accuracy" else f"{self.task} ({self.measure})"

    @property
    def share(self) -> float:
        """Return `learned`, or NaN if floor and ceiling are not separable."""
        return float("nan") if self.learned is None else self.learned

    def difference_from(self, other: "TaskAudit") -> PairedDifference:
        """Return the paired difference of accuracy from another encoder, on the same examples.

        Example:
            >>> none, all_ = np.zeros(100, bool), np.ones(100, bool)
            >>> probes = [Outcome(values=hits, knn=0.5) for hits in (none, all_)]
            >>> before, after = (audit_task("a", p, {"pixels": p}, p, classes=2) for p in probes)
            >>> after.difference_from(before).verdict
            'higher'
        """
        groups = None
        if self.groups is not None:
            groups = np.frombuffer(base64.b64decode(self.groups), "<i4").astype(np.int64)
        return paired_difference(other.hits(), self.hits(), groups=groups)

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
        if self.best_stage is not None and self.verdict in ("hidden", "lost"):
            return f"{self.title}: {self.verdict}; {position}; {self.stage_text()}"
        if self.verdict == "easy":
            return f"{self.title}: easy; {position}"
        if self.verdict == "not separable":
            return f"{self.title}: not separable; {position}, which are too close"
        if self.learned is None:
            return f"{self.title}: {self.verdict}; {position}"
        return f"{self.title}: {self.describe()}, {percent(self.learned)} of the way; {position}"

    def stage_text(self) -> str:
        """Return the accuracies of wide features, the best stage and the best untrained one."""
        assert self.best_stage is not None
        other = max(self.stages, key=lambda name: self.stages[name]["untrained"])
        ours, untrained = self.stages[self.best_stage], self.stages[other]
        wide = "" if self.wide is None else f"wide features {percent(self.wide)}, "
        return (
            f"{wide}best stage {self.best_stage} {percent(ours['accuracy'])}, of the untrained "
            f"network {other} {percent(untrained['untrained'])}"
        )

    def describe(self) -> str:
        """Return the verdict; if it is unclear, with the verdicts that it lies between."""
        if self.verdict != "unclear":
            return self.verdict
        assert self.learned_low is not None
        assert self.learned_high is not None
        return f"unclear, {name_share(self.learned_low)} to {name_share(self.learned_high)}"


def audit_task(
    task: str,
    encoder: Outcome,
    floors: Mapping[str, Outcome],
    ceiling: Outcome,
    *,
    classes: int,
    measure: str = "accuracy",
    groups: GroupIds | None = None,
    stages: StageHits | None = None,
    wide: Outcomes | None = None,
    seed: int = 0,
) -> TaskAudit:
    """Return the verdict on one task, from probes that were scored on the same test examples.

    Without `stages` and `wide`, hits of the wide readout, no feature is hidden or lost.

    Example:
        >>> half, all_, none = np.arange(400) % 2 == 0, np.ones(400, bool), np.arange(400) % 10 == 0
        >>> floors = {"pixels": Outcome(values=none, knn=0.1)}
        >>> probes = (Outcome(values=half, knn=0.5), floors, Outcome(values=all_, knn=1.0))
        >>> audit_task("shape", *probes, classes=3).verdict
        'weakened'
    """
    floor_of = max(floors, key=lambda name: floors[name].value)
    floor = floors[floor_of]
    share = _share(encoder, floor, ceiling, groups, seed)
    constant = next((floors[x].value for x in ("majority", "mean") if x in floors), None)
    predictable = partial(
        _predictable,
        constant=1 / classes if constant is None else constant,
        best_known=max(floor.value, ceiling.value),
    )
    verdict = judge_feature(
        share,
        over_floor=paired_difference(floor.values, encoder.values, groups=groups, seed=seed),
        predictable=predictable(encoder.values),
        stage=_evidence(encoder.values, stages, predictable, groups, seed) if stages else None,
        wide=None
        if wide is None
        else _wide_evidence(encoder.values, floor.values, wide, predictable, groups, seed),
    )
    learned, learned_low, learned_high = share or (None, None, None)
    low, high = outcome_interval(encoder.values, groups, seed=seed)
    return TaskAudit(
        task=task,
        verdict=verdict,
        learned=learned,
        learned_low=learned_low,
        learned_high=learned_high,
        accuracy=encoder.value,
        low=low,
        high=high,
        knn=encoder.knn,
        floor=floor.value,
        floor_of=floor_of,
        ceiling=ceiling.value,
        classes=classes,
        test_examples=len(encoder.values),
        right=packed(encoder.values),
        stages={name: _stage_scores(*pair, groups, seed) for name, pair in (stages or {}).items()},
        best_stage=_best(stages, 0) if stages else None,
        measure=measure,
        groups=None if groups is None else _numbered(groups),
        wide=None if wide is None else float(wide.mean()),
    )


def outcome_interval(
    outcomes: Outcomes, groups: GroupIds | None, *, seed: int
) -> tuple[float, float]:
    """Return the 95 % interval of the mean: Wilson's of hits, or else that of the bootstrap.

    Example:
        >>> outcome_interval(np.ones(9), None, seed=0)
        (1.0, 1.0)
    """
    if outcomes.dtype == np.bool_:
        return share_interval(outcomes, groups)
    (means,) = bootstrap_means(outcomes, groups=groups, seed=seed)
    low, high = interval(means)
    return min(low, 1), min(high, 1)  # the largest value of either measure


def _numbered(groups: GroupIds) -> str:
    """Return the number of each group, int32 in base 64."""
    number = np.unique(groups, return_inverse=True)[1]
    return base64.b64encode(number.astype("<i4").tobytes()).decode()


def _share(
    encoder: Outcome,
    floor: Outcome,
    ceiling: Outcome,
    groups: GroupIds | None,
    seed: int,
) -> tuple[float, float, float] | None:
    """Return the learned share with its interval; None if floor and ceiling are too close."""
    hits = (result.values for result in (encoder, floor, ceiling))
    means, low_means, high_means = bootstrap_means(*hits, groups=groups, seed=seed)
    gap, distance = high_means - low_means, ceiling.value - floor.value
    if distance < MIN_GAP or interval(gap)[0] <= 0:
        return None
    learned = float(np.clip((encoder.value - floor.value) / distance, 0, 1))
    ratios = np.clip((means - low_means) / np.maximum(gap, 1e-9), 0, 1)
    return learned, *interval(ratios)


def _predictable(hits: Outcomes, *, constant: float, best_known: float) -> float:
    """Return the accuracy between that of a constant prediction (0) and the best known one (1)."""
    return (float(hits.mean()) - constant) / max(best_known - constant, 1e-9)


def _evidence(
    audited: Outcomes,
    stages: StageHits,
    predictable: Callable[[Outcomes], float],
    groups: GroupIds | None,
    seed: int,
) -> StageEvidence:
    best, untrained = (stages[_best(stages, side)][side] for side in (0, 1))
    return StageEvidence(
        predictable=predictable(best),
        over_pooled=paired_difference(audited, best, groups=groups, seed=seed),
        over_untrained=paired_difference(untrained, best, groups=groups, seed=seed),
    )


def _wide_evidence(
    audited: Outcomes,
    floor: Outcomes,
    wide: Outcomes,
    predictable: Callable[[Outcomes], float],
    groups: GroupIds | None,
    seed: int,
) -> WideEvidence:
    return WideEvidence(
        predictable=predictable(wide),
        over_pooled=paired_difference(audited, wide, groups=groups, seed=seed),
        over_floor=paired_difference(floor, wide, groups=groups, seed=seed),
    )


def _best(stages: StageHits, side: int) -> str:
    """Return the stage with the most hits of the encoder (0) or of the untrained network (1)."""
    return max(stages, key=lambda name: stages[name][side].mean())


def _stage_scores(
    encoder: Outcomes, untrained: Outcomes, groups: GroupIds | None, seed: int
) -> dict[str, float]:
    scores: dict[str, float] = {}
    for prefix, hits in (("", encoder), ("untrained_", untrained)):
        low, high = outcome_interval(hits, groups, seed=seed)
        name = "untrained" if prefix else "accuracy"
        scores |= {name: float(hits.mean()), f"{prefix}low": low, f"{prefix}high": high}
    return scores


def packed(hits: Outcomes) -> str:
    """Return booleans [n] as bits, or numbers as float32, in base 64.

    Example:
        >>> packed(np.ones(8, bool))
        '/w=='
    """
    array = np.packbits(hits) if hits.dtype == np.bool_ else hits.astype("<f4")
    return base64.b64encode(array.tobytes()).decode()
