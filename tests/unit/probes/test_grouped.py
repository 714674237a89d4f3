"""Folds and intervals of examples in groups, against loops, and against plain ones as control."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t as student

from widefield.probes.few_labels import fit_few_labels
from widefield.probes.folds import (
    class_splits,
    group_folds,
    groups_of_class,
    smallest_class,
    validation_split,
)
from widefield.probes.linear import fit_linear
from widefield.probes.paired import share_interval, wilson
from widefield.probes.suggest import suggest


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 12), st.integers(0, 10**6))
def test_the_interval_is_that_of_the_formula(count: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = np.sort(np.concatenate([np.arange(count), rng.integers(0, count, 40)]))
    hits = rng.random(len(groups)) < rng.random(count)[groups]
    n, p = len(hits), hits.mean()
    total = square = 0.0
    for group in range(count):
        size = (groups == group).sum()
        total += (hits[groups == group].sum() - p * size) ** 2
        square += size**2
    variance = count / (count - 1) * total / n**2
    alike = 1 / (1 + 2 * p * (1 - p) * count)
    apart = 0 if p in (0, 1) else variance / (p * (1 - p))
    inverse = (1 - alike) * apart + alike * square / n**2
    effective = min(n, 1 / inverse * (1.959964 / student.ppf(0.975, count - 1)) ** 2)
    found = share_interval(hits, groups * 7 - 3)  # ids of any value
    assert found == pytest.approx(wilson(p * effective, effective))
    assert 0 <= found[0] <= p <= found[1] <= 1


def covered(count: int, each: int, alike: float, *, clustered: bool) -> float:
    """Return in how many of 400 draws the interval holds 50 %.

    Each group has its own share of hits, 0 or 1 for the most `alike` ones.
    """
    rng, groups = np.random.default_rng(0), np.repeat(np.arange(count), each)
    inside = 0
    for _ in range(400):
        shares = rng.beta(1 / alike - 1 + 1e-9, 1 / alike - 1 + 1e-9, count)
        hits = rng.random(len(groups)) < shares[groups]
        low, high = share_interval(hits, groups if clustered else None)
        inside += low <= 0.5 <= high
    return inside / 400


@pytest.mark.parametrize("alike", [1.0, 0.8, 0.5])
@pytest.mark.parametrize(("count", "each"), [(6, 8), (12, 5), (40, 20)])
def test_the_interval_holds_the_truth_as_often_as_it_says(
    count: int, each: int, alike: float
) -> None:
    assert covered(count, each, alike, clustered=True) > 0.93
    control = covered(count, each, alike, clustered=False)  # examples taken as independent
    assert control < 0.88


def test_groups_of_one_and_one_group() -> None:
    hits = np.arange(400) % 4 > 0
    plain, alone = share_interval(hits), share_interval(hits, np.arange(400))
    assert alone == pytest.approx(plain, abs=0.002)
    assert share_interval(hits, np.zeros(400, np.int64)) == (0, 1)


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 7), st.integers(0, 10**6))
def test_a_group_with_all_of_a_class_is_in_every_fit(count: int, seed: int) -> None:
    """Class 2 is in one group, beside some of class 0; the others are held out once each."""
    rng = np.random.default_rng(seed)
    groups = np.concatenate([np.arange(2 * count), rng.integers(0, 2 * count, 30), [99, 99]])
    y = np.append(groups[:-2] % 2, [2, 0])
    splits = class_splits(y, groups, seed=seed)
    assert len(splits) == min(5, count)
    held_out = np.concatenate([rest for _, rest in splits])
    assert sorted(held_out.tolist()) == list(range(len(y) - 2))
    for fit, rest in splits:
        assert set(groups[fit]).isdisjoint(groups[rest])
        assert sorted([*fit, *rest]) == list(range(len(y)))
        assert set(y[fit].tolist()) == {0, 1, 2}
    assert class_splits(y[y > 0], groups[y > 0], seed=seed) == []  # one class could be held out


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 5), st.integers(2, 4), st.integers(0, 10**6))
def test_folds_divide_no_group_and_leave_every_class(folds: int, classes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    class_of = np.repeat(np.arange(classes), folds + rng.integers(0, 4, classes))
    groups = np.concatenate([np.arange(len(class_of)), rng.integers(0, len(class_of), 60)])
    fold = group_folds(class_of[groups], groups, folds, seed=seed)
    for group in range(len(class_of)):
        assert len(set(fold[groups == group].tolist())) == 1
    assert smallest_class(class_of[groups], fold) > 0
    assert groups_of_class(class_of[groups], groups).tolist() == np.bincount(class_of).tolist()
    assert set(fold.tolist()) == set(range(folds))


def test_the_validation_share_has_whole_groups() -> None:
    groups = np.arange(200) // 8
    y = torch.from_numpy(groups % 3)
    part = validation_split(torch.stack([y, y]), 0, groups)
    for row in part:
        assert all(len(set(row[groups == g].tolist())) == 1 for g in range(25))
        assert 0.1 < row.float().mean() < 0.3
        assert len(set(y[~row].tolist())) == 3
    plain = validation_split(y[None], 0)[0]
    assert any(len(set(plain[groups == g].tolist())) == 2 for g in range(25))  # the control
    alone = np.arange(200) // 100  # one group a class: examples are held out
    assert validation_split(torch.from_numpy(alone)[None], 0, alone).sum() == 40


def memory(seed: int = 0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return features that identify the group, its random class, and the group."""
    rng = np.random.default_rng(seed)
    groups = np.repeat(np.arange(24), 6)
    h = rng.normal(size=(24, 30))[groups] + 0.1 * rng.normal(size=(144, 30))
    return h.astype(np.float32), rng.permutation(np.arange(24) % 2)[groups], groups


def test_the_strength_is_not_chosen_by_what_the_probe_remembers() -> None:
    h, y, groups = memory()
    x, labels = torch.from_numpy(h), {"t": torch.from_numpy(y)}
    grouped, plain = (
        fit_linear(x, labels, x, labels, classes={"t": 2}, groups=pair)["t"]
        for pair in ((groups, groups), None)
    )
    assert max(plain.validation.values()) == 1.0
    assert max(grouped.validation.values()) < 0.9


def test_few_labels_are_held_out_with_their_group() -> None:
    h, y, groups = memory()
    grouped, plain = (
        fit_few_labels(h, np.arange(144), y, classes=2, groups=ids) for ids in (groups, None)
    )
    low, high = share_interval(grouped.held_out.argmax(1) == y, groups)
    assert low < 0.5 < high
    assert (plain.held_out.argmax(1) == y).mean() > 0.95  # the control
    assert np.abs(grouped.predicted - 0.5).mean() < np.abs(plain.predicted - 0.5).mean()
    assert not fit_few_labels(h, np.arange(144), y, classes=2, groups=y).tested.any()


def test_suggestions_are_of_different_groups() -> None:
    h, _, groups = memory()
    groups = np.random.default_rng(1).permutation(groups)
    labeled, doubt = np.flatnonzero(groups == 0), np.full((144, 2), 0.5)
    found = suggest(h, labeled, doubt, 23, groups=groups)
    assert sorted(groups[found].tolist()) == list(range(1, 24))
    more = suggest(h, labeled, doubt, 30, groups=groups)
    assert more[:23].tolist() == found.tolist()
    assert len(set(more.tolist())) == 30
    plain = suggest(h, labeled, doubt, 23)
    assert len(set(groups[plain].tolist())) < 20  # the control
