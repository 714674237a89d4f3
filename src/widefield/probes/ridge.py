"""Ridge regression on frozen features: one or several targets, a penalty for each.

With features standardized to x and a column y of the targets, minimize

    f(w, b) = mean_i (y_i - w x_i - b)^2  +  l2 |w|^2        (no penalty on b).

With X and y centered, its solution is w = (X' X / n + l2 I)^-1 X' y / n, or, where there are more
features than examples, w = X' (X X' / n + l2 I)^-1 y / n (Hoerl & Kennard 1970). A target of 0 and
1 is treated as a number: its prediction ranks examples by how likely the label is.

Each target has the penalty with the least squared error on held-out examples; what is predicted for
a held-out example is by the penalty that is best for the other folds. Wide features are
pooled ones and further columns, which are also tried at ten times and a tenth of their size, and
without them.
"""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.probes.checks import check_features
from widefield.probes.folds import GroupIds, random_folds
from widefield.probes.outcome import Predictions
from widefield.probes.standardize import Standardization

# Whole powers of ten, chosen by hand, as those of the linear probe are.
RIDGE_GRID = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0, 100.0, 1000.0)
_SCALES = (1.0, 10.0, 0.1, 0.0)
"""Sizes of the columns beside pooled ones."""
# As many as the parts of the linear probe (folds.py).
_FOLDS = 5
# Chosen by hand.
_CHUNK = 8192
"""Rows that are converted to float64 at once."""


def fit_ridge(
    train_h: Tensor,
    y: NDArray[np.float64],
    test_h: Tensor,
    *,
    pooled: int | None = None,
    groups: GroupIds | None = None,
    held_out_folds: int = 1,
    seed: int = 0,
) -> Predictions:
    """Fit ridge regression to features [n, D] and targets y [n, L], and predict test ones [m, D].

    `pooled` is the number of pooled features among wide ones. No fold divides one of the `groups`
    [n]. `held_out_folds` of five folds are held out in turn to choose the penalties.
    """
    check_features(train_h, test_h)
    train_h, test_h = train_h.cpu().float(), test_h.cpu().float()
    standardize = Standardization.of(train_h, torch.float64)
    x, test_x = (standardize(h).float() for h in (train_h, test_h))
    target = torch.from_numpy(y)
    scales = (1.0,) if pooled is None else _SCALES
    grid = [(scale, l2) for scale in scales for l2 in RIDGE_GRID]
    fold = random_folds(len(y), min(_FOLDS, len(y)), groups, seed=seed)
    held_out = torch.full((len(grid), *y.shape), torch.nan, dtype=torch.float64)
    for k in np.unique(fold)[:held_out_folds] if len(np.unique(fold)) > 1 else ():
        part = torch.from_numpy(fold == k)
        for i, scale in enumerate(scales):
            fit = _Fit(_scaled(x[~part], pooled, scale), target[~part])
            rest = _scaled(x[part], pooled, scale)
            for j, l2 in enumerate(RIDGE_GRID):
                held_out[i * len(RIDGE_GRID) + j, part] = fit.predict(rest, l2)
    squared = torch.nan_to_num((held_out - target) ** 2)
    best = _best(squared)
    validated = torch.full(y.shape, torch.nan, dtype=torch.float64)
    for k in np.unique(fold):
        part = torch.from_numpy(fold == k)
        of_rest = _best(squared[:, ~part])
        columns = [held_out[of_rest[j], part, j] for j in range(y.shape[1])]
        validated[part] = torch.stack(columns, dim=1)
    predicted = torch.empty(len(test_x), y.shape[1], dtype=torch.float64)
    for index in set(best.tolist()):
        scale, l2 = grid[index]
        columns = best == index
        fit = _Fit(_scaled(x, pooled, scale), target[:, columns])
        predicted[:, columns] = fit.predict(_scaled(test_x, pooled, scale), l2)
    return Predictions(
        predicted=predicted.numpy(),
        held_out=validated.numpy(),
        l2=tuple(grid[index][1] for index in best.tolist()),
        errors=tuple(squared.mean(1).amin(0).tolist()),
    )


def _best(squared: Tensor) -> Tensor:
    """Return the least of the squared errors [grid, n, L] of each target, int64 [L]."""
    error = squared.sum(1)
    if not bool(error.any()):  # nothing was held out, or all of it is predicted exactly
        return torch.full((error.shape[1],), RIDGE_GRID.index(1.0))
    return error.argmin(0)


class _Fit:
    """The centered moments of features x [n, D] and targets y [n, L]."""

    def __init__(self, x: Tensor, y: Tensor) -> None:
        n, width = x.shape
        self.mean, self.target_mean = x.double().mean(0), y.mean(0)
        self.is_dual = n < width
        centered = y - self.target_mean
        if self.is_dual:
            self.centered = x.double() - self.mean
            self.gram = self.centered @ self.centered.T / n
            self.right = centered / n
            return
        self.gram = torch.zeros(width, width, dtype=torch.float64)
        self.right = torch.zeros(width, y.shape[1], dtype=torch.float64)
        for rows, targets in zip(
            torch.split(x, _CHUNK), torch.split(centered, _CHUNK), strict=True
        ):
            z = rows.double() - self.mean
            self.gram += z.T @ z / n
            self.right += z.T @ targets / n

    def predict(self, x: Tensor, l2: float) -> Tensor:
        penalty = l2 * torch.eye(len(self.gram), dtype=torch.float64)
        solution = torch.cholesky_solve(self.right, torch.linalg.cholesky(self.gram + penalty))
        weights = self.centered.T @ solution if self.is_dual else solution
        parts = [(rows.double() - self.mean) @ weights for rows in torch.split(x, _CHUNK)]
        return torch.cat(parts) + self.target_mean


def _scaled(x: Tensor, pooled: int | None, scale: float) -> Tensor:
    if scale == 1:
        return x
    return torch.cat([x[:, :pooled], scale * x[:, pooled:]], dim=1)
