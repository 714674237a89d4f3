"""How much of the features of one encoder a linear map of those of another one explains.

A run from initial weights keeps the largest share of their change that still explains them.
"""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from widefield.data import Dataset
from widefield.encoders import averaged
from widefield.probes.features import extract
from widefield.probes.folds import GroupIds, random_folds
from widefield.probes.ridge import RIDGE_GRID

# Chosen by hand: the time of the fits grows with the cube of the examples.
_EXAMPLES = 1000
_VARIANCE = 0.95
"""Share of the variance of the standardized features that their directions have."""
_EXAMPLES_PER_DIRECTION = 10
_MIN_BASELINE = 0.1
"""Held-out R^2 of features by themselves below which it is not known what others explain."""
SHARES = (1.0, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12, 0.09, 0.06)
"""Shares of the trained weights, the largest first."""
# Study start-thresholds: with 0.7 and less, accuracies from few labels can be below the start's.
MIN_EXPLAINED = 0.8
"""`Explained.r2` of the initial features that an average has to keep."""
_DEFAULT_WEIGHT = 0.5
"""Share where there are too few examples: the default of Wortsman et al. 2022 (WiSE-FT)."""


@dataclass(frozen=True, kw_only=True)
class Explained:
    """How much of the features of an encoder is explained."""

    r2: float
    """Held-out R^2 over all directions, over that of the features by themselves; at most 1."""
    directions: float
    """Share of the directions in which this is above .5."""


def explained(
    before: Tensor, after: Tensor, *, groups: GroupIds | None = None, seed: int = 0
) -> Explained | None:
    """Return how much of features `before` [n, D] a linear map of `after` [n, E] explains.

    Directions y are the first principal axes of the standardized features `before` that have 95 %
    of their variance, at most one for ten examples. With the standardized features Z `after` of one
    half of the examples, those of the other half are predicted, and in turn:

        y(z) = z' Z' (Z Z' + n l2 I)^-1 Y        (kernel ridge regression; l2 of the largest R^2)

    At most 1,000 examples are used. R^2 is divided by that of `before` in place of `after`, which
    is below 1 with few examples or uneven groups. None if it is below 0.1, there are fewer than 20
    examples, or `before` is constant.
    """
    rows = np.linspace(0, len(before) - 1, min(len(before), _EXAMPLES)).astype(np.int64)
    h, z = (_standardized(features.cpu()[rows]) for features in (before, after))
    if len(rows) < 2 * _EXAMPLES_PER_DIRECTION or not bool(h.any()):
        return None
    u, s, _ = torch.linalg.svd(h, full_matrices=False)
    share = (s**2).cumsum(0) / (s**2).sum()
    count = min(int((share < _VARIANCE).sum()) + 1, len(rows) // _EXAMPLES_PER_DIRECTION)
    y = (u * s)[:, :count]
    fold = torch.from_numpy(
        random_folds(len(rows), 2, None if groups is None else groups[rows], seed=seed)
    )
    parts = ((fold == 0, fold == 1), (fold == 1, fold == 0))
    total = y.square().sum(0)
    baseline, found = (total - _least_errors(features, y, parts) for features in (h, z))
    if baseline.sum() < _MIN_BASELINE * total.sum():
        return None
    return Explained(
        r2=min(float(found.sum() / baseline.sum()), 1.0),
        directions=float((found > 0.5 * baseline)[baseline > 0].double().mean()),
    )


def _least_errors(z: Tensor, y: Tensor, parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the squared errors of predictions of y [n, K] from features z [n, E], [K]."""
    errors = torch.zeros(len(RIDGE_GRID), y.shape[1], dtype=torch.float64)
    kernel = z @ z.T
    for train, test in parts:
        values, vectors = torch.linalg.eigh(kernel[train][:, train])
        cross, target = kernel[test][:, train] @ vectors, vectors.T @ y[train]
        for k, l2 in enumerate(RIDGE_GRID):
            predicted = cross @ (target / (values + len(values) * l2)[:, None])
            errors[k] += (y[test] - predicted).square().sum(0)
    return errors[errors.sum(1).argmin()]


def _standardized(h: Tensor) -> Tensor:
    """Return features [n, D] with mean 0 and deviation 1; 0 where they hardly vary."""
    centered = h.double() - h.double().mean(0)
    std = centered.square().mean(0).sqrt()
    return torch.where(std > 1e-3 * std.max(), centered / std, 0.0)


def trained_share(
    initial: nn.Module, trained: nn.Module, dataset: Dataset, *, device: torch.device
) -> float:
    """Return the largest share of trained weights whose average keeps the initial features.

    They are kept if a linear map of the features of the average explains `MIN_EXPLAINED` of what
    they explain of themselves or more, on held-out examples. If no average does, it is the smallest
    share.
    """
    sample = dataset.subset(dataset.spread_rows(_EXAMPLES)).first_read()
    before = extract(initial, sample.inputs, device=device)

    def is_kept(share: float) -> bool:
        after = extract(averaged(initial, trained, share), sample.inputs, device=device)
        found = explained(before, after, groups=sample.groups)
        return found is not None and found.r2 >= MIN_EXPLAINED

    if explained(before, before, groups=sample.groups) is None:
        return _DEFAULT_WEIGHT
    # The further from the initial weights, the less is kept, so that half of the shares are out
    # after each measurement.
    return SHARES[min(bisect_left(SHARES, True, key=is_kept), len(SHARES) - 1)]
