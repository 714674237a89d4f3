"""The outcome of a probe on test examples: one number for each, whose mean is the score.

Of classes it is whether the prediction is right. The other measures are R^2 = 1 - S / V, with S the
mean squared error and V the variance of the numbers, and the average precision of a label, the mean
over the examples with it of the share with it among those that are ranked as high (Zhu 2004).
Neither is a mean over examples. As functions m(w) of weights w of the n examples they are replaced
by their expansion at w = 1,

    v_i = m + n dm/dw_i,    mean v = m    (infinitesimal jackknife, Jaeckel 1972, Efron 1982),

so that the paired bootstrap of means, and that of groups, applies to them too. Of L labels with k
examples each, in the harmonic mean, deviations of a difference of average precisions are multiplied
by sqrt(k / (k - 1)) t / z, with Student's quantile t of L (k - 1) degrees of freedom (`paired`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from widefield.data.table import Target, TargetKind
from widefield.probes.folds import GroupIds
from widefield.probes.paired import (
    PairedDifference,
    bootstrap_means,
    interval,
    paired_difference,
    share_interval,
    small_sample_factor,
)

_Floats = NDArray[np.float64]

Measure = Literal[
    "accuracy", "R2", "mean average precision", "average precision", "mean absolute error"
]
MEASURES: Mapping[TargetKind, Measure] = {"number": "R2", "labels": "mean average precision"}
"""Kind of target -> its measure."""
_RANGES: Mapping[Measure, tuple[float, float]] = {
    "R2": (-np.inf, 1),
    "mean absolute error": (0, np.inf),
}
_ERROR: Measure = "mean absolute error"

# Chosen by hand: of one example with a label the deviations tell nothing, and are finite here.
_MIN_COUNT = 1.1


def score_text(value: float, measure: Measure, *ends: float, digits: int = 1) -> str:
    """Return an accuracy in percent, and others as numbers, with the ends of the interval.

    Example:
        >>> score_text(0.831, "accuracy"), score_text(0.831, "R2", 0.8, 0.86)
        ('83.1 %', '0.831 [0.800, 0.860]')
    """
    is_share = measure == "accuracy"
    text, *span = (
        f"{100 * x:.{digits}f}" if is_share else f"{x:.{digits + 2}f}" for x in (value, *ends)
    )
    unit = " %" if is_share else ""
    return f"{text}{unit} [{', '.join(span)}]" if span else f"{text}{unit}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Outcome:
    """The outcome of one probe, of classes, of a number or of several labels.

    Example:
        >>> half, most = (Outcome(values=np.arange(80) < count) for count in (40, 70))
        >>> half.value, [round(end, 2) for end in half.interval], most.minus(half).verdict
        (0.5, [0.39, 0.61], 'higher')
    """

    values: NDArray[Any] = field(repr=False)
    """One number for each test example, [n]: bool for an accuracy, otherwise float64."""
    groups: GroupIds | None = field(default=None, repr=False)
    """Group of each test example, [n]; intervals are clustered by them."""
    measure: Measure = "accuracy"
    """What the mean of `values` is."""
    parts: Mapping[str, "Outcome"] = field(default_factory=dict)
    """Class -> outcome on its test examples, label -> its average precision, or the mean absolute
    error of a number."""
    chance: float | None = None
    """Average precision by chance, the share of the test examples with the label; else None."""
    knn: float | None = None
    """Accuracy of the k-nearest-neighbor vote on the same features, if there is one."""
    l2: tuple[float, ...] = ()
    """Penalty chosen for the probe: one, or one for each label."""
    train_examples: int = 0
    """Number of examples that the probe was fitted on."""
    validation_error: float = np.nan
    """Least cross-entropy, or squared error, on the validation split of the training examples, by
    which features are chosen; NaN where it was not measured."""
    widening: float = 1.0
    """What deviations of paired differences are multiplied by, for few examples with a label."""

    def __len__(self) -> int:
        """Number of test examples n."""
        return len(self.values)

    @property
    def value(self) -> float:
        """The score; NaN without test examples."""
        return float(self.values.mean()) if len(self.values) else np.nan

    @cached_property
    def interval(self) -> tuple[float, float]:
        """The ends of the 95 % interval of `value`: Wilson's, or that of the bootstrap."""
        if self.values.dtype == np.bool_:
            return share_interval(self.values, self.groups)
        if self.measure not in _RANGES:
            # Few examples with a label have few errors, or none, which no bootstrap would resample.
            # A mean over labels varies as that of so many trials does.
            shares = [part.chance or 1 for part in self.parts.values() or (self,)]
            trials = len(self) * len(shares) ** 2 / sum(1 / share for share in shares)
            return share_interval(self.values, self.groups, trials=trials)
        least, most = _RANGES[self.measure]
        groups = np.arange(len(self)) if self.groups is None else self.groups
        if len(np.unique(groups)) < 2:
            return least, most  # of a single group it is not known
        # A fixed seed, so that the same values have the same interval everywhere.
        (means,) = bootstrap_means(self.values, groups=groups, seed=0)
        low, high = np.clip(interval(means), least, most)
        # The value itself is inside, also where the means of the bootstrap are skewed.
        return min(float(low), self.value), max(float(high), self.value)

    @property
    def balanced(self) -> float:
        """Mean of the parts with test examples: of classes, the accuracy for equal sizes."""
        return float(np.mean([part.value for part in self.parts.values() if len(part)]))

    def minus(self, other: "Outcome", *, seed: int = 0) -> PairedDifference:
        """Return the difference of this outcome from another one on the same test examples."""
        found = paired_difference(other.values, self.values, groups=self.groups, seed=seed)
        if self.widening == 1:
            return found
        ends = np.array((found.low, found.high)) - found.difference
        low, high = np.clip(found.difference + self.widening * ends, -1, 1).tolist()
        return replace(found, low=low, high=high)

    def estimate(self) -> list[float]:
        """Return the value and the ends of its interval."""
        return [self.value, *self.interval]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield probe --json` prints them."""
        sizes = {"train_examples": self.train_examples, "test_examples": len(self)}
        if self.measure == "accuracy":
            low, high = self.interval
            return {
                "accuracy": self.value,
                "low": low,
                "high": high,
                "balanced_accuracy": self.balanced,
                "recall": {
                    name: part.value if len(part) else None for name, part in self.parts.items()
                },
                "knn": self.knn,
                "l2": self.l2[0] if self.l2 else None,
                "classes": len(self.parts),
                **sizes,
            }
        is_number = self.measure == "R2"
        labels = {} if is_number else self.parts
        return {
            "kind": "number" if is_number else "labels",
            "measure": self.measure,
            "score": self.estimate(),
            "mean_absolute_error": self.parts[_ERROR].estimate() if is_number else None,
            "average_precision": {name: part.estimate() for name, part in labels.items()},
            "share": {name: part.chance for name, part in labels.items()},
            "l2": list(self.l2),
            **sizes,
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Predictions:
    """What a probe predicts: numbers, or probabilities of classes or labels."""

    predicted: _Floats
    """Predictions for the examples to predict, [n, L]."""
    held_out: _Floats
    """Predictions for the examples that it was fitted on, by probes fitted and penalties chosen
    without them, [m, L]; a row of NaN for those in no fold that was held out."""
    l2: tuple[float, ...]
    """The penalty, or that of each of L targets."""
    temperature: float = 1.0
    """What logits are divided by to be calibrated."""
    readout: int = 0
    """Which of several features are taken."""
    errors: tuple[float, ...] = ()
    """The cross-entropy on held-out labels by each of these, or the squared error of each target;
    empty if nothing was held out."""

    @property
    def tested(self) -> NDArray[np.bool_]:
        """Which of the examples that it was fitted on were held out, bool [m]."""
        tested: NDArray[np.bool_] = np.isfinite(self.held_out[:, 0])
        return tested


def class_outcome(
    predicted: NDArray[np.int64],
    truth: NDArray[np.int64],
    names: Sequence[str],
    *,
    groups: GroupIds | None = None,
) -> Outcome:
    """Return the outcome of predicted class ids [n], with the parts of the classes `names`."""
    hits = np.equal(predicted, truth)
    order = np.argsort(truth, kind="stable")
    ends = np.cumsum(np.bincount(truth, minlength=len(names)))
    rows = np.split(order, ends[:-1])
    parts = {
        name: Outcome(values=hits[members], groups=None if groups is None else groups[members])
        for name, members in zip(names, rows, strict=True)
    }
    return Outcome(values=hits, groups=groups, parts=parts)


def target_outcome(
    target: Target, predicted: _Floats, *, groups: GroupIds | None = None
) -> Outcome:
    """Return the outcome of predictions [n, L] of a number or of L labels, with its parts."""
    y = target.values
    if target.kind == "number":
        error = Outcome(values=np.abs(y - predicted)[:, 0], groups=groups, measure=_ERROR)
        values = r2_values(y[:, 0], predicted[:, 0])
        return Outcome(values=values, groups=groups, measure="R2", parts={_ERROR: error})
    parts = {
        label: Outcome(
            values=average_precision_values(has > 0, p),
            groups=groups,
            measure="average precision",
            chance=float(has.mean()),
            widening=_widening(has.sum(keepdims=True)),
        )
        for label, has, p in zip(target.labels, y.T, predicted.T, strict=True)
    }
    values = np.mean([part.values for part in parts.values()], axis=0)
    return Outcome(
        values=values,
        groups=groups,
        measure="mean average precision",
        parts=parts,
        widening=_widening(y.sum(0)),
    )


def _widening(counts: _Floats) -> float:
    """Return the factor of deviations for labels of so many examples, [L]."""
    count = max(_MIN_COUNT, len(counts) / float((1 / np.maximum(counts, 1)).sum()))
    return (count / (count - 1)) ** 0.5 * small_sample_factor(1 + len(counts) * (count - 1))


def r2_values(y: _Floats, predicted: _Floats) -> _Floats:
    """Return the expansion of R^2 by example, [n], of numbers y [n] and their predictions."""
    squared, deviation = (y - predicted) ** 2, (y - y.mean()) ** 2
    error, variance = squared.mean(), deviation.mean()
    # R^2 = 1 - S / V, so that n dR^2/dw_i = -(e_i^2 - S) / V + S / V^2 (d_i^2 - V)
    change = -(squared - error) / variance + error / variance**2 * (deviation - variance)
    values: _Floats = 1 - error / variance + change
    return values


def average_precision_values(has_label: NDArray[np.bool_], scores: _Floats) -> _Floats:
    """Return the expansion of the average precision by example, [n], of predictions `scores` [n].

    Equal scores are one rank.
    """
    _, rank = np.unique(scores, return_inverse=True)  # 0 is the lowest score
    with_label, without = (np.bincount(rank, x) for x in (has_label, ~has_label))
    right, wrong = (x[::-1].cumsum()[::-1] for x in (with_label, without))  # ranked as high
    above = np.maximum(right + wrong, 1)
    precision, count = right / above, has_label.sum()
    average = (with_label @ precision) / count
    # Weight on an example changes the precision at all examples with the label below it.
    gain = np.cumsum(with_label * wrong / above**2)
    loss = np.cumsum(with_label * right / above**2)
    change = np.where(has_label, precision[rank] + gain[rank] - average, -loss[rank])
    values: _Floats = average + len(scores) * change / count
    return values
