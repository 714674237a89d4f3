"""Scores of predicted numbers and labels, with 95 % intervals by a bootstrap over examples.

The measures are R^2 = 1 - S / V, with S the mean squared error and V the variance of the numbers,
and the average precision of a label, the mean over the examples with it of the share with it among
those that are ranked as high (Zhu 2004). Neither is a mean over examples. As functions m(w) of
weights w of the n examples they are replaced by their expansion at w = 1,

    v_i = m + n dm/dw_i,    mean v = m    (infinitesimal jackknife, Jaeckel 1972, Efron 1982),

so that the paired bootstrap of means, and that of groups, applies to them too.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from widefield.data.table import Target, TargetKind
from widefield.probes.folds import GroupIds, SplitGroups
from widefield.probes.outcome import MEASURES as MEASURES
from widefield.probes.paired import bootstrap_means, interval
from widefield.probes.ridge import fit_ridge

_Floats = NDArray[np.float64]


class Estimate(NamedTuple):
    """A value and the ends of its 95 % interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class TargetScore:
    """Scores of a probe that predicts a number, or several labels, of each test example."""

    task: str
    kind: TargetKind
    score: Estimate
    """R^2 of a number; mean average precision of labels."""
    error: Estimate | None
    """Mean absolute error of a number."""
    labels: Mapping[str, Estimate]
    """Label -> average precision; empty for a number."""
    share: Mapping[str, float]
    """Label -> share of the test examples with it, the average precision by chance."""
    l2: tuple[float, ...]
    """Penalty chosen for the number, or for each label."""
    train_examples: int
    test_examples: int
    values: _Floats = field(repr=False)
    """Expansion of `score` by example, [n], of mean `score`."""

    @property
    def accuracy(self) -> float:
        """Return the value of `score`, by which floors are compared."""
        return self.score.value

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "kind": self.kind,
            "measure": MEASURES[self.kind],
            "score": list(self.score),
            "mean_absolute_error": None if self.error is None else list(self.error),
            "average_precision": {name: list(found) for name, found in self.labels.items()},
            "share": dict(self.share),
            "l2": list(self.l2),
            "train_examples": self.train_examples,
            "test_examples": self.test_examples,
        }


def probe_targets(
    train_h: Tensor,
    train: Mapping[str, Target],
    test_h: Tensor,
    test: Mapping[str, Target],
    *,
    pooled: int | None = None,
    groups: SplitGroups | None = None,
    seed: int = 0,
) -> dict[str, TargetScore]:
    """Fit ridge regression to every target at once, and return task -> scores.

    Features are [n, D] and [m, D]; `pooled` is the number of pooled ones among wide features. The
    penalties are chosen on a fifth of the training examples.

    Example:
        >>> import torch
        >>> h = torch.arange(50.0)[:, None]
        >>> y = {"age": Target(values=h.double().numpy())}
        >>> round(probe_targets(h, y, h, y)["age"].score.value, 3)
        1.0
    """
    if not train:
        return {}
    columns = np.cumsum([0, *(target.values.shape[1] for target in train.values())])
    fitted = fit_ridge(
        train_h,
        np.concatenate([target.values for target in train.values()], axis=1),
        test_h,
        pooled=pooled,
        groups=None if groups is None else groups[0],
        seed=seed,
    )
    return {
        task: score_target(
            task,
            test[task],
            fitted.predicted[:, first:end],
            l2=fitted.l2[first:end],
            train_examples=len(train_h),
            groups=None if groups is None else groups[1],
            seed=seed,
        )
        for task, first, end in zip(train, columns, columns[1:], strict=False)
    }


def mean_floor(
    train: Mapping[str, Target], test: Mapping[str, Target], *, groups: SplitGroups | None = None
) -> dict[str, TargetScore]:
    """Return the scores of predicting the mean of the training examples, without features."""
    return {
        task: score_target(
            task,
            test[task],
            np.broadcast_to(target.values.mean(0), test[task].values.shape),
            train_examples=len(target.values),
            groups=None if groups is None else groups[1],
        )
        for task, target in train.items()
    }


def score_target(
    task: str,
    target: Target,
    predicted: _Floats,
    *,
    l2: tuple[float, ...] = (),
    train_examples: int,
    groups: GroupIds | None = None,
    seed: int = 0,
) -> TargetScore:
    """Return the scores of predictions [n, L] of a target.

    Intervals are clustered by `groups` [n].

    Example:
        >>> y = np.arange(50.0)[:, None]
        >>> score_target("age", Target(values=y), y, train_examples=9).score
        Estimate(value=1.0, low=1.0, high=1.0)
    """

    def estimate(values: _Floats, least: float, most: float) -> Estimate:
        mean = float(values.mean())
        low, high = (float(np.clip(end, least, most)) for end in _interval(values, groups, seed))
        return Estimate(mean, min(low, mean), max(high, mean))

    y, error, labels = target.values, None, {}
    if target.kind == "number":
        values = r2_values(y[:, 0], predicted[:, 0])
        error = estimate(np.abs(y - predicted)[:, 0], 0, np.inf)
    else:
        columns = [average_precision_values(y[:, k] > 0, p) for k, p in enumerate(predicted.T)]
        labels = {x: estimate(c, 0, 1) for x, c in zip(target.labels, columns, strict=True)}
        values = np.mean(columns, axis=0)
    return TargetScore(
        task=task,
        kind=target.kind,
        score=estimate(values, -np.inf if target.kind == "number" else 0, 1),
        error=error,
        labels=labels,
        share=dict(zip(target.labels, y.mean(0).tolist(), strict=bool(target.labels))),
        l2=l2,
        train_examples=train_examples,
        test_examples=len(y),
        values=values,
    )


def _interval(values: _Floats, groups: GroupIds | None, seed: int) -> tuple[float, float]:
    """Return the interval of the mean; of a single group it is not known."""
    if groups is not None and len(np.unique(groups)) < 2:
        return -np.inf, np.inf
    (means,) = bootstrap_means(values, groups=groups, seed=seed)
    return interval(means)


def r2_values(y: _Floats, predicted: _Floats) -> _Floats:
    """Return the expansion of R^2 by example, [n], of numbers y [n] and their predictions.

    Example:
        >>> y = np.array([0.0, 1.0, 2.0, 3.0])
        >>> round(float(r2_values(y, y + 0.5).mean()), 2)
        0.8
    """
    squared, deviation = (y - predicted) ** 2, (y - y.mean()) ** 2
    error, variance = squared.mean(), deviation.mean()
    # R^2 = 1 - S / V, so that n dR^2/dw_i = -(e_i^2 - S) / V + S / V^2 (d_i^2 - V)
    change = -(squared - error) / variance + error / variance**2 * (deviation - variance)
    values: _Floats = 1 - error / variance + change
    return values


def average_precision_values(has_label: NDArray[np.bool_], scores: _Floats) -> _Floats:
    """Return the expansion of the average precision by example, [n], of predictions `scores` [n].

    Equal scores are one rank.

    Example:
        >>> has_label = np.array([True, False, True, False])
        >>> round(float(average_precision_values(has_label, np.arange(4.0)[::-1]).mean()), 3)
        0.833
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
