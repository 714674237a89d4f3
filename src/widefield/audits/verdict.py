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
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.probes.floors import FLOORS
from widefield.probes.outcome import Measure, Outcome, score_text
from widefield.probes.paired import PairedDifference, bootstrap_means, interval, percent
from widefield.probes.verdicts import MIN_GAP, Evidence, ShareVerdict, judge_feature, name_share

StagePairs = Mapping[str, tuple[Outcome, Outcome]]
"""Stage and grid -> outcomes of the encoder and of the untrained network."""


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
    """The one that predicts the validation split of the training examples best, so that it is not
    chosen on what it is scored on; None if stages were not measured."""
    best_untrained_stage: str | None
    """That of the untrained network."""
    measure: Measure = "accuracy"
    """What `accuracy`, floor, ceiling and stages are: R2 of a number, mean average precision of
    several labels."""
    groups: str | None = None
    """Number of the group of each test example, int32 in base 64; None if they are not grouped."""
    wide: float | None = None
    """What the wide readout has; None where it was not measured, because the verdict does not
    depend on it."""
    widening: float = 1.0
    """That of the outcome: see `Outcome`."""

    def outcome(self) -> Outcome:
        """Return the outcome of the linear probe that `right` and `groups` hold."""
        packed = base64.b64decode(self.right)
        if self.measure == "accuracy":
            bits = np.frombuffer(packed, np.uint8)
            values: NDArray[Any] = np.unpackbits(bits, count=self.test_examples).astype(bool)
        else:
            values = np.frombuffer(packed, "<f4").astype(np.float64)
        groups = None
        if self.groups is not None:
            groups = np.frombuffer(base64.b64decode(self.groups), "<i4").astype(np.int64)
        return Outcome(values=values, groups=groups, measure=self.measure, widening=self.widening)

    @property
    def title(self) -> str:
        """Return the task, with its measure unless it is the accuracy."""
        return self.task if self.measure == "accuracy" else f"{self.task} ({self.measure})"

    @property
    def share(self) -> float:
        """Return `learned`, or NaN if floor and ceiling are not separable."""
        return float("nan") if self.learned is None else self.learned

    @property
    def learned_interval(self) -> tuple[float, float, float] | None:
        """Return `learned` and the ends of its interval; None if there is none."""
        if self.learned is None or self.learned_low is None or self.learned_high is None:
            return None
        return self.learned, self.learned_low, self.learned_high

    def difference_from(self, other: "TaskAudit") -> PairedDifference:
        """Return the paired difference of accuracy from another encoder, on the same examples."""
        return self.outcome().minus(other.outcome())

    def text(self, score: float) -> str:
        """Return a score of the task: an accuracy in percent, or a number."""
        return score_text(score, self.measure, digits=0)

    def line(self) -> str:
        """Return the verdict in one sentence."""
        accuracy, floor, ceiling = map(self.text, (self.accuracy, self.floor, self.ceiling))
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
        other = self.best_untrained_stage
        assert self.best_stage is not None
        assert other is not None
        best, untrained = self.stages[self.best_stage], self.stages[other]
        wide = "" if self.wide is None else f"wide features {self.text(self.wide)}, "
        return (
            f"{wide}best stage {self.best_stage} {self.text(best['accuracy'])}, of the untrained "
            f"network {other} {self.text(untrained['untrained'])}"
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
    stages: StagePairs | None = None,
    wide: Outcome | None = None,
    seed: int = 0,
) -> TaskAudit:
    """Return the verdict on one task, from probes that were scored on the same test examples.

    Without `stages` and `wide`, the outcome of the wide readout, no feature is hidden or lost.
    """
    floor_of = max(floors, key=lambda name: floors[name].value)
    floor = floors[floor_of]
    constant = next((floors[x] for x in ("majority", "mean") if x in floors), None)
    share = _share(encoder, floor, ceiling, seed)
    verdict = _verdict(
        share,
        encoder,
        floor,
        predicted_range=(
            1 / classes if constant is None else constant.value,
            max(floor.value, ceiling.value),
        ),
        stages=stages or {},
        wide=wide,
        seed=seed,
    )
    learned, learned_low, learned_high = share or (None, None, None)
    return TaskAudit(
        task=task,
        verdict=verdict,
        learned=learned,
        learned_low=learned_low,
        learned_high=learned_high,
        accuracy=encoder.value,
        low=encoder.interval[0],
        high=encoder.interval[1],
        knn=encoder.knn,
        floor=floor.value,
        floor_of=floor_of,
        ceiling=ceiling.value,
        classes=classes,
        test_examples=len(encoder),
        right=packed(encoder.values),
        stages={name: _stage_scores(*pair) for name, pair in (stages or {}).items()},
        best_stage=_best(stages, 0) if stages else None,
        best_untrained_stage=_best(stages, 1) if stages else None,
        measure=encoder.measure,
        groups=None
        if encoder.groups is None
        else packed(np.unique(encoder.groups, return_inverse=True)[1]),
        wide=None if wide is None else wide.value,
        widening=encoder.widening,
    )


def _verdict(
    share: tuple[float, float, float] | None,
    encoder: Outcome,
    floor: Outcome,
    *,
    predicted_range: tuple[float, float],
    stages: StagePairs,
    wide: Outcome | None,
    seed: int,
) -> ShareVerdict:
    constant, best_known = predicted_range

    def predictable(outcome: Outcome) -> float:
        return (outcome.value - constant) / max(best_known - constant, 1e-9)

    def evidence(outcome: Outcome, floor: Outcome) -> Evidence:
        return Evidence(
            predictable=predictable(outcome),
            over_pooled=outcome.minus(encoder, seed=seed),
            over_floor=outcome.minus(floor, seed=seed),
        )

    stage = None
    if stages:
        stage = evidence(*(stages[_best(stages, side)][side] for side in (0, 1)))
    return judge_feature(
        share,
        over_floor=encoder.minus(floor, seed=seed),
        predictable=predictable(encoder),
        stage=stage,
        wide=None if wide is None else evidence(wide, floor),
    )


def _share(
    encoder: Outcome, floor: Outcome, ceiling: Outcome, seed: int
) -> tuple[float, float, float] | None:
    """Return the learned share with its interval; None if floor and ceiling are too close."""
    # One bootstrap of all three: resampled alike, their differences vary less than each alone.
    outcomes = (encoder, floor, ceiling)
    resampled = bootstrap_means(*(x.values for x in outcomes), groups=encoder.groups, seed=seed)
    means, low_means, high_means = (
        each.value + encoder.widening * (of_each - each.value)
        for each, of_each in zip(outcomes, resampled, strict=True)
    )
    gap, distance = high_means - low_means, ceiling.value - floor.value
    if distance < MIN_GAP or interval(gap)[0] <= 0:
        return None
    learned = float(np.clip((encoder.value - floor.value) / distance, 0, 1))
    ratios = np.clip((means - low_means) / np.maximum(gap, 1e-9), 0, 1)
    return learned, *interval(ratios)


def _best(stages: StagePairs, side: int) -> str:
    """Return the stage that is best of the encoder (0) or of the untrained network (1)."""
    return min(stages, key=lambda name: stages[name][side].validation_error)


def _stage_scores(encoder: Outcome, untrained: Outcome) -> dict[str, float]:
    return {
        "accuracy": encoder.value,
        "low": encoder.interval[0],
        "high": encoder.interval[1],
        "untrained": untrained.value,
        "untrained_low": untrained.interval[0],
        "untrained_high": untrained.interval[1],
    }


def packed(values: NDArray[Any]) -> str:
    """Return booleans [n] as bits, integers as int32 and numbers as float32, in base 64."""
    kind = "<i4" if values.dtype.kind == "i" else "<f4"
    array = np.packbits(values) if values.dtype == np.bool_ else values.astype(kind)
    return base64.b64encode(array.tobytes()).decode()
