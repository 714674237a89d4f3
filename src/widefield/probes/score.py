"""Outcomes of probes on frozen features: classes by a linear probe, numbers and labels by ridge."""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from widefield.data.table import Table
from widefield.probes.folds import SplitGroups
from widefield.probes.knn import knn
from widefield.probes.linear import fit_linear
from widefield.probes.outcome import Outcome, class_outcome, target_outcome
from widefield.probes.ridge import fit_ridge


def score(
    train_h: Tensor,
    train: Table,
    test_h: Tensor,
    test: Table,
    *,
    pooled: int | None = None,
    with_knn: bool = True,
    seed: int = 0,
) -> dict[str, Outcome]:
    """Score every task: classes by a linear probe and, unless left out, kNN; others by ridge.

    Features are float [n, D] on one device. Penalties are chosen on a validation split of the
    training examples, sampled by `seed`. Groups, if both have them, are kept whole there, and
    intervals are clustered by them. `pooled` is the number of pooled features among wide ones.
    Raises `ValueError` as `fit_linear` does.

    Example:
        >>> from widefield.data.table import Table
        >>> h = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
        >>> y = {"sign": (h[:, 0] > 0).long().numpy()}
        >>> both = Table(names=[str(i) for i in range(300)], labels=y, classes={"sign": ("-", "+")})
        >>> score(h, both, h, both)["sign"].value > 0.95
        True
    """
    groups = split_groups(train, test)
    # One ridge fit serves all numbers and labels, as one linear probe does all classes.
    found = _score_targets(train_h, train, test_h, test, pooled, groups, seed)
    if not train.labels:
        return found
    train_y, test_y = (
        {task: torch.from_numpy(y).to(train_h.device) for task, y in half.labels.items()}
        for half in (train, test)
    )
    classes = {task: len(train.classes[task]) for task in train_y}
    provided = (train_h, train_y, test_h, test_y)
    results = fit_linear(*provided, classes=classes, pooled=pooled, groups=groups, seed=seed)
    knn_scores = knn(*provided, classes=classes) if with_knn else {}
    outcomes = {
        task: replace(
            class_outcome(
                probe.predicted.cpu().numpy(),
                test.labels[task],
                train.classes[task],
                groups=None if groups is None else groups[1],
            ),
            knn=knn_scores.get(task),
            l2=(probe.l2,),
            validation_error=probe.validation_error,
            train_examples=len(train_h),
        )
        for task, probe in results.items()
    }
    return outcomes | found


def _score_targets(
    train_h: Tensor,
    train: Table,
    test_h: Tensor,
    test: Table,
    pooled: int | None,
    groups: SplitGroups | None,
    seed: int,
) -> dict[str, Outcome]:
    if not train.targets:
        return {}
    columns = [target.values for target in train.targets.values()]
    ridge = fit_ridge(
        train_h,
        np.concatenate(columns, axis=1),
        test_h,
        pooled=pooled,
        groups=None if groups is None else groups[0],
        seed=seed,
    )
    outcomes, first = {}, 0
    for task, values in zip(train.targets, columns, strict=True):
        members = slice(first, first + values.shape[1])
        outcome = target_outcome(
            test.targets[task],
            ridge.predicted[:, members],
            groups=None if groups is None else groups[1],
        )
        outcomes[task] = replace(
            outcome,
            l2=ridge.l2[members],
            train_examples=len(train_h),
            validation_error=float(np.mean(ridge.errors[members])),
        )
        first = members.stop
    return outcomes


def split_groups(train: Table, test: Table) -> SplitGroups | None:
    """Return the groups of both; None if one of them is not grouped."""
    if train.groups is None or test.groups is None:
        return None
    return train.groups, test.groups
