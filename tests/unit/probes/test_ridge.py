"""Ridge regression against scikit-learn's, and the choice of its penalty."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge
from sklearn.preprocessing import StandardScaler

from widefield.probes.folds import random_folds
from widefield.probes.ridge import RIDGE_GRID, fit_ridge


def _data(n: int, width: int, noise: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    h = rng.normal(size=(n, width)) * rng.uniform(0.01, 100, width) + rng.normal(size=width)
    y = (h / h.std(0))[:, :2] @ np.array([[3.0, 0.5], [-1.0, 2.0]]) + 7
    return h, y + noise * rng.normal(size=y.shape)


@pytest.mark.parametrize(("n", "width"), [(80, 6), (40, 90)])  # the primal and the dual solution
def test_it_is_the_ridge_regression_of_scikit_learn(n: int, width: int) -> None:
    h, y = _data(n + 20, width)
    found = fit_ridge(torch.from_numpy(h[:n]), y[:n], torch.from_numpy(h[n:]))
    scaler = StandardScaler().fit(h[:n])
    for k, l2 in enumerate(found.l2):
        # its objective is the sum of the squares, not their mean
        other = Ridge(alpha=n * l2).fit(scaler.transform(h[:n]), y[:n, k])
        expected = other.predict(scaler.transform(h[n:]))
        assert np.abs(found.predicted[:, k] - expected).max() < 1e-4


def test_the_penalty_has_the_least_error_on_what_was_held_out() -> None:
    """Without noise it is weak, with pure noise strong; the control is the other one."""
    h, y = _data(120, 40, noise=0.0)
    noise = np.random.default_rng(1).normal(size=(120, 1))
    train, test = torch.from_numpy(h), torch.from_numpy(h[:1])
    found = fit_ridge(train, np.concatenate([y[:, :1], noise], axis=1), test, held_out_folds=5)
    assert found.l2[0] <= 1e-3
    assert found.l2[1] >= 1.0
    scaled = StandardScaler().fit_transform(h)
    held_out = ~np.isnan(found.held_out[:, 1])
    assert held_out.all()
    assert ((found.held_out[:, 0] - y[:, 0]) ** 2).mean() < 1e-3
    fifth = fit_ridge(train, y, test)
    part = ~np.isnan(fifth.held_out[:, 0])
    assert part.sum() == 24
    errors = []
    for l2 in RIDGE_GRID:
        other = Ridge(alpha=96 * l2).fit(scaled[~part], y[~part, 0])
        errors.append(((other.predict(scaled[part]) - y[part, 0]) ** 2).mean())
    assert fifth.l2[0] == RIDGE_GRID[int(np.argmin(errors))]


def test_each_fold_is_predicted_by_the_penalty_that_is_best_for_the_others() -> None:
    """By loops over folds; one penalty for all of them predicts otherwise."""
    rng = np.random.default_rng(2)
    h = rng.normal(size=(15, 8))
    y = h[:, 0] + 3 * rng.normal(size=15)
    fold, z = random_folds(15, 5, seed=0), StandardScaler().fit_transform(h)
    x = torch.from_numpy(h)
    found = fit_ridge(x, y[:, None], x, held_out_folds=5)
    p = np.empty((len(RIDGE_GRID), 15))
    for i, l2 in enumerate(RIDGE_GRID):
        for k in range(5):
            train, rest = fold != k, fold == k
            model = Ridge(alpha=train.sum() * l2).fit(z[train], y[train])
            p[i, rest] = model.predict(z[rest])
    squared = (p - y) ** 2
    best = [int(squared[:, fold != k].sum(1).argmin()) for k in range(5)]
    assert len(set(best)) > 1
    for k in range(5):
        np.testing.assert_allclose(found.held_out[fold == k, 0], p[best[k], fold == k], atol=1e-4)
    assert found.l2[0] == RIDGE_GRID[int(squared.sum(1).argmin())]


def test_groups_are_held_out_whole() -> None:
    h, y = _data(60, 5)
    groups = np.arange(60) // 6
    found = fit_ridge(torch.from_numpy(h), y, torch.from_numpy(h), groups=groups)
    part = ~np.isnan(found.held_out[:, 0])
    assert 0 < part.sum() < 60
    assert len(np.unique(groups[part])) * 6 == part.sum()
    one = fit_ridge(torch.from_numpy(h), y, torch.from_numpy(h), groups=np.zeros(60, np.int64))
    assert np.isnan(one.held_out).all()  # nothing can be held out
    assert one.l2 == (1.0, 1.0)


def test_columns_beside_pooled_ones_can_be_left_out() -> None:
    rng = np.random.default_rng(0)
    h, y = _data(100, 4, noise=0.1)
    wide = np.concatenate([h, rng.normal(size=(100, 400))], axis=1)
    rest = torch.from_numpy(wide[70:])
    errors = {}
    for pooled in (4, None):
        found = fit_ridge(torch.from_numpy(wide[:70]), y[:70], rest, pooled=pooled)
        errors[pooled] = ((found.predicted - y[70:]) ** 2).mean()
    assert errors[4] < 0.1 < errors[None]


def test_features_have_to_be_finite_rows() -> None:
    h = torch.zeros(4, 3)
    with pytest.raises(ValueError, match="NaN or infinity"):
        fit_ridge(torch.full((4, 3), torch.nan), np.zeros((4, 1)), h)
    with pytest.raises(ValueError, match="3 columns and test features 2"):
        fit_ridge(h, np.zeros((4, 1)), torch.zeros(4, 2))
    constant = fit_ridge(h, np.arange(4.0)[:, None], h)
    assert np.allclose(constant.predicted, 1.5)
