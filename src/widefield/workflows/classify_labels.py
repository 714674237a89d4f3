"""The labels that a classification is fitted to: classes, a number, or several labels a cell.

Both kinds fit a probe to features, and score its cross-validated predictions as an `Outcome`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from widefield.data import Dataset
from widefield.data.table import Target, TargetKind
from widefield.probes.few_labels import fit_few_labels
from widefield.probes.folds import GroupIds, groups_of_class
from widefield.probes.outcome import Outcome, Predictions, class_outcome, target_outcome
from widefield.probes.ridge import fit_ridge
from widefield.workflows.classify_result import join_labels

_MIN_LABELS = 3
"""Smallest number of examples with a number: with two, no fold could be held out."""
# Chosen by hand.
_MAX_NAMES = 8
"""Classes or labels named in a note."""


@dataclass(frozen=True, kw_only=True)
class _LabelTask:
    """Labels of some examples."""

    rows: NDArray[np.int64]
    """Labeled examples, [m]."""
    names: tuple[str, ...]
    """Classes or labels; empty for a number."""
    groups: GroupIds | None
    """Group of each labeled example, [m]; no fold divides one."""
    seed: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ClassTask(_LabelTask):
    """A class of each labeled example."""

    y: NDArray[np.int64]
    """Class ids, [m]; every class occurs."""
    kind: ClassVar[Literal["classes"]] = "classes"
    constant_name: ClassVar[str] = "the most frequent class"

    def fit(self, h: torch.Tensor, *others: torch.Tensor, pooled: int | None = None) -> Predictions:
        """Fit softmax regression with calibrated probabilities to features h [n, D], on the CPU.

        `others` [n, E] are taken in place of h if they predict held-out labels better. There is one
        penalty for all columns, whatever number of them is `pooled`.
        """
        return _fit_classes(self, self.y, len(self.names), h, *others)

    def outcome(self, found: Predictions) -> Outcome | None:
        """Return which of the labeled examples that were held out are predicted; None if none."""
        tested = found.tested
        if not tested.any():
            return None
        return class_outcome(
            found.held_out[tested].argmax(1),
            self.y[tested],
            self.names,
            groups=None if self.groups is None else self.groups[tested],
        )

    def error(self, found: Predictions) -> float:
        """Return the mean cross-entropy of the examples that were held out; infinite if none."""
        tested = np.flatnonzero(found.tested)
        if not len(tested):
            return np.inf
        p = found.held_out[tested, self.y[tested]]
        return float(-np.log(np.maximum(p, np.finfo(np.float64).tiny)).mean())

    def constant(self, found: Predictions) -> Outcome:
        """Return which of the examples that were held out are of the most frequent class."""
        y = self.y[found.tested]
        return Outcome(values=y == np.bincount(y).argmax())

    def by_path(self, dataset: Dataset) -> Mapping[str, str | float]:
        """Return path -> class of the labeled examples."""
        pairs = zip(self.rows, self.y, strict=True)
        return {dataset.paths[row]: self.names[k] for row, k in pairs}


@dataclass(frozen=True, kw_only=True)
class TargetTask(_LabelTask):
    """A number, or several labels, of each labeled example."""

    target: Target
    """Targets of the labeled examples; each label is one that some have and some lack."""
    constant_name: ClassVar[str] = "the mean"

    @property
    def kind(self) -> TargetKind:
        """What the labels are."""
        return self.target.kind

    def fit(self, h: torch.Tensor, *others: torch.Tensor, pooled: int | None = None) -> Predictions:
        """Fit ridge regression to a number, or to each label a probe of two classes.

        `pooled` is the number of pooled features among wide ones, which the number may be predicted
        from alone; a label is by one of `others`, if these predict it better.
        """
        rows, groups, y = self.rows, self.groups, self.target.values
        if self.kind == "number":
            return fit_ridge(
                h[rows], y, h, pooled=pooled, groups=groups, held_out_folds=len(y), seed=self.seed
            )
        predictions = [_fit_classes(self, has.astype(np.int64), 2, h, *others) for has in y.T]
        errors = [fit.errors for fit in predictions if fit.errors]
        return Predictions(
            predicted=np.stack([fit.predicted[:, 1] for fit in predictions], axis=1),
            held_out=np.stack([fit.held_out[:, 1] for fit in predictions], axis=1),
            l2=tuple(fit.l2[0] for fit in predictions),
            errors=tuple(np.mean(errors, axis=0).tolist()) if errors else (),
        )

    def outcome(self, found: Predictions) -> Outcome | None:
        """Return the outcome of the number, or of the labels that could be held out."""
        columns = np.flatnonzero(~np.isnan(found.held_out).any(0))
        if not len(columns):
            return None
        target = self.target if self.kind == "number" else self.target.only(columns)
        outcome = target_outcome(target, found.held_out[:, columns], groups=self.groups)
        return replace(outcome, train_examples=len(found.held_out))

    def error(self, found: Predictions) -> float:
        """Return 1 minus the score of the examples that were held out; infinite if none."""
        outcome = self.outcome(found)
        return np.inf if outcome is None else 1 - outcome.value

    def constant(self, found: Predictions) -> Outcome:
        """Return the outcome of predicting the mean, of what could be held out."""
        mean = self.target.values.mean(0) + 0 * found.held_out  # NaN as there
        outcome = self.outcome(replace(found, held_out=mean))
        assert outcome is not None, "it is measured only beside another outcome"
        return outcome

    def by_path(self, dataset: Dataset) -> Mapping[str, str | float]:
        """Return path -> number, or labels joined by |, of the labeled examples."""
        pairs = zip(self.rows, self.target.values, strict=True)
        if self.kind == "number":
            return {dataset.paths[row]: float(value[0]) for row, value in pairs}
        return {dataset.paths[row]: join_labels(has, self.names) for row, has in pairs}


LabelTask = ClassTask | TargetTask


def _fit_classes(
    task: LabelTask, y: NDArray[np.int64], classes: int, *features: torch.Tensor
) -> Predictions:
    h, *others = (readout.numpy() for readout in features)
    return fit_few_labels(
        h, task.rows, y, *others, classes=classes, groups=task.groups, seed=task.seed
    )


def label_task_of(dataset: Dataset, task: str, seed: int) -> LabelTask:
    """Return the labels of `task`, without those that cannot be predicted, with notes on these."""
    if task in dataset.targets:
        return _targets(dataset, dataset.targets[task], seed)
    ids = dataset.labels[task]
    rows = np.flatnonzero(ids >= 0)
    present, y = np.unique(ids[rows], return_inverse=True)  # some labeled files may be unreadable
    names = tuple(dataset.classes[task][k] for k in present)
    if len(names) < 2:
        raise ValueError(f"the labels name {len(names)} class: give labels of at least two classes")
    groups = None if dataset.groups is None else dataset.groups[rows]
    unit = "label" if groups is None else "group"
    single = [names[k] for k in np.flatnonzero(_units(y, groups) == 1)]
    return ClassTask(
        rows=rows,
        names=names,
        y=y.astype(np.int64),
        groups=groups,
        seed=seed,
        notes=_note(f"one {unit} each, and no part in the cross-validation: {{}}", single),
    )


def _targets(dataset: Dataset, target: Target, seed: int) -> TargetTask:
    rows, notes = np.flatnonzero(target.known), tuple[str, ...]()
    groups = None if dataset.groups is None else dataset.groups[rows]
    target = target.subset(rows)
    is_valid = np.ptp(target.values, axis=0) > 0 if len(rows) else np.zeros(1, bool)
    if len(rows) < _MIN_LABELS or not is_valid.any():
        raise ValueError(
            f"{len(rows)} examples have a label, too few or all the same: give {_MIN_LABELS} or "
            "more that differ"
        )
    if target.kind == "labels":
        left = [name for name, kept in zip(target.labels, is_valid, strict=True) if not kept]
        target = target.only(np.flatnonzero(is_valid))
        unit = "example" if groups is None else "group"
        columns = zip(target.labels, target.values.T.astype(np.int64), strict=True)
        single = [name for name, has in columns if _units(has, groups).min() == 1]
        notes = (
            *_note("all or none of the examples have {}: left out", left),
            *_note(f"one {unit} has or lacks, and not cross-validated: {{}}", single),
        )
    return TargetTask(
        rows=rows,
        names=target.labels,
        target=target,
        groups=groups,
        seed=seed,
        notes=notes,
    )


def _units(y: NDArray[np.int64], groups: GroupIds | None) -> NDArray[np.int64]:
    """Return the number of examples, or of groups, that each class 0..K-1 of y [m] occurs in."""
    return np.bincount(y) if groups is None else groups_of_class(y, groups)


def _note(text: str, names: list[str]) -> tuple[str, ...]:
    more = " and others" if len(names) > _MAX_NAMES else ""
    return (text.format(", ".join(map(repr, names[:_MAX_NAMES])) + more),) if names else ()
