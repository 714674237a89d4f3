"""Linear probe: multinomial logistic regression on frozen features, for all tasks at once.

With features standardized to x and one weight matrix W[K, D] and bias b[K] per task, minimize

    f(W, b) = mean_i -log softmax(W x_i + b)[y_i]  +  l2 / 2 |W|^2        (no penalty on b).

Every task at every L2 strength is one problem over the same x; `lbfgs.py` minimizes them as a
batch. It converges fastest on uncorrelated columns, so x is first rotated to its principal axes,
which does not change f: |W| is the same in any orthonormal basis.

Wide features are pooled ones and further columns, whose weights W_2 have the penalty
l2 / 2 |W_2 / s|^2 with s of 1, 10, 0.1 or 0, as in banded ridge regression (Nunez-Elizalde, Huth &
Gallant 2019). The weights of whichever columns are mostly noise are then small or 0.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from widefield.probes.checks import check_classes, check_rows
from widefield.probes.design import DenseDesign, DesignMatrix, RotatedDesign
from widefield.probes.folds import GroupIds, SplitGroups, validation_split
from widefield.probes.lbfgs import Problems, minimize
from widefield.probes.outcome import Outcome
from widefield.probes.standardize import Standardization

# Both chosen by hand, a factor of ten apart.
L2_GRID = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
_SCALES = (10.0, 0.1, 0.0)
"""Scales s of the columns beside pooled ones, other than 1."""
_ROWS = 4096
"""Rows that are standardized at a time: wide features of all would take gigabytes."""
_COLUMNS = 512
"""Columns whose products with themselves and those before them are computed at a time."""
_LOGITS = 2**25
"""Maximum number of logits in memory, 128 MiB; a larger grid is solved in parts."""
_COORDINATES = 2**26
"""Maximum number of coordinates in memory, 256 MiB; more are computed at each use."""


@dataclass(frozen=True, slots=True)
class LinearProbe:
    """Probe of one task; its logits are `h @ weight.T + bias`, without standardizing h."""

    outcome: Outcome
    """Which test examples are classified correctly."""
    l2: float
    """L2 strength selected on the validation split."""
    validation: dict[float, float]
    """Validation accuracy of every strength of the grid."""
    validation_error: float
    """Least validation cross-entropy."""
    weight: Tensor
    """Float32 [K, D]."""
    bias: Tensor
    """Float32 [K]."""
    predicted: Tensor
    """Predicted class id of each test example, int64 [n]."""


def fit_linear(
    train_h: Tensor,
    train_labels: dict[str, Tensor],
    test_h: Tensor,
    test_labels: dict[str, Tensor],
    *,
    classes: dict[str, int],
    pooled: int | None = None,
    groups: SplitGroups | None = None,
    l2_grid: Sequence[float] = L2_GRID,
    seed: int = 0,
) -> dict[str, LinearProbe]:
    """Fit and test one probe for every task in `classes` (task -> number of classes K).

    Features are float [n, D], or uint8, which take a quarter of the memory. Labels are int64 [n] in
    0..K-1. A class-stratified fifth of the training examples, sampled by `seed`, is the validation
    split: it selects each task's L2 strength by accuracy, and by cross-entropy among equals. The
    probe is then refitted on all training examples. Test examples select nothing. With `groups`,
    the validation split has whole groups, as far as every class is left in others, and intervals
    are clustered.

    The first `pooled` columns of wide features are the pooled ones. The scale s of the others and
    the L2 strength are then selected as a pair, by validation cross-entropy: among so many pairs,
    the most accurate is often so by chance. By default s is 1.

    Raises `ValueError` for non-finite features, labels that do not fit the features or `classes`,
    a task with fewer than two classes in its training labels, and a class with one example.

    Example:
        >>> h = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
        >>> y = (h[:, 0] > 0).long()
        >>> train, test = {"sign": y[:200]}, {"sign": y[200:]}
        >>> result = fit_linear(h[:200], train, h[200:], test, classes={"sign": 2})
        >>> result["sign"].outcome.value > 0.9
        True
    """
    check_rows(train_h, train_labels, test_h, test_labels, classes)
    check_classes(train_labels, classes)
    if not l2_grid or min(l2_grid) <= 0:
        raise ValueError(f"l2_grid is {list(l2_grid)}: give at least one strength, all above 0")
    h = train_h if train_h.dtype == torch.uint8 else train_h.float()
    frames = [_Frame.of(h, Standardization.of(h))]
    if pooled is not None:
        frames += [frames[0].scaled(h, pooled, scale) for scale in _SCALES]
    grid = sorted(l2_grid)
    target = torch.stack([train_labels[task].to(h.device) for task in classes])
    sizes = torch.tensor(list(classes.values()), device=h.device)
    train_groups = None if groups is None else groups[0]
    trials = [_search(frame.design(h), target, sizes, grid, seed, train_groups) for frame in frames]
    frame_of = torch.stack([t.loss.amin(1) for t in trials]).argmin(0).tolist()
    results: dict[str, LinearProbe] = {}
    for i in set(frame_of):
        tasks = torch.tensor([j for j, k in enumerate(frame_of) if k == i], device=h.device)
        best = (trials[i].best() if pooled is None else trials[i].loss.argmin(1))[tasks]
        l2 = torch.tensor(grid, device=h.device)[best]
        start = trials[i].weight[tasks, best]
        x, used = frames[i].design(h), torch.ones_like(target[tasks], dtype=torch.bool)
        problems = _problems(x, target[tasks], used, sizes[tasks], l2)
        start = start[:, : int(problems.classes.max())]
        weights = minimize(x, problems, start, tolerance=1e-4)
        for j, k, weight in zip(tasks.tolist(), best.tolist(), weights, strict=True):
            task = list(classes)[j]
            results[task] = _probe(
                frames[i],
                weight[: classes[task]],
                test_h,
                test_labels[task],
                groups=None if groups is None else groups[1],
                l2=grid[k],
                validation=dict(zip(grid, trials[i].accuracy[j].tolist(), strict=True)),
                validation_error=float(trials[i].loss[j].min()),
            )
    return {task: results[task] for task in classes}


def _probe(
    frame: "_Frame",
    weight: Tensor,
    test_h: Tensor,
    test_labels: Tensor,
    *,
    groups: GroupIds | None,
    l2: float,
    validation: dict[float, float],
    validation_error: float,
) -> LinearProbe:
    """Return the probe with weights [K, d + 1] of the coordinates in `frame`."""
    bias, weight = weight[:, -1], weight[:, :-1] @ frame.axes.T
    predicted = frame.predict(test_h, weight, bias)
    hits = (predicted == test_labels.to(predicted.device)).cpu().numpy()
    raw = weight / frame.standardize.scale
    return LinearProbe(
        outcome=Outcome(values=hits, groups=groups),
        l2=l2,
        validation=validation,
        validation_error=validation_error,
        weight=raw,
        bias=(bias - raw.double() @ frame.standardize.mean.double()).float(),
        predicted=predicted,
    )


class _Trials(NamedTuple):
    """Probes of every task at every strength, fitted without the validation split."""

    accuracy: Tensor
    """float64 [tasks, grid]."""
    loss: Tensor
    """Mean cross-entropy, float64 [tasks, grid]."""
    weight: Tensor
    """[tasks, grid, K, d]."""

    def best(self) -> Tensor:
        """Return the grid index of the best strength of each task, int64 [tasks]."""
        top = self.accuracy == self.accuracy.amax(1, keepdim=True)
        return torch.where(top, self.loss, torch.inf).argmin(1)


def _search(
    x: DesignMatrix,
    target: Tensor,
    sizes: Tensor,
    grid: Sequence[float],
    seed: int,
    groups: GroupIds | None,
) -> _Trials:
    grid_l2 = torch.tensor(grid, device=target.device).repeat(len(target))
    validation = validation_split(target, seed, groups).repeat_interleave(len(grid), dim=0)
    target = target.repeat_interleave(len(grid), dim=0)
    sizes = sizes.repeat_interleave(len(grid))
    parts = []
    at_once = max(1, _LOGITS // (target.shape[1] * int(sizes.max())))
    for first in range(0, len(target), at_once):
        part = slice(first, first + at_once)
        truth, is_val, l2 = target[part], validation[part], grid_l2[part]
        problems = _problems(x, truth, ~is_val, sizes[part], l2)
        start = problems.l2.new_zeros(len(truth), int(sizes[part].max()), x.width)
        # Coarser than the refit, 1e-4: it only ranks strengths, and the refit starts from it. Both
        # are chosen by hand; accuracies agree with scikit-learn's (tests/unit/probes).
        weight = minimize(x, problems, start, tolerance=1e-3)
        logits = problems.logits(x, weight)
        hits = (logits.argmax(1) == truth) & is_val
        loss, _ = _problems(x, truth, is_val, sizes[part], 0 * l2).loss(logits, weight)
        parts.append(_Trials(hits.sum(1).double() / is_val.sum(1), loss, weight))
    whole = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
    return _Trials(*(t.view(-1, len(grid), *t.shape[1:]) for t in whole))


@dataclass(frozen=True, slots=True)
class _Frame:
    """Standardization of features, and the principal axes of the standardized ones."""

    standardize: Standardization
    axes: Tensor
    """Orthonormal columns, [D, d]; see `_principal_axes`."""
    variance: Tensor
    """Mean squares along the axes, [d]."""

    @classmethod
    def of(cls, h: Tensor, standardize: Standardization) -> "_Frame":
        """Return the frame of training features [n, D]."""
        axes, variance = _principal_axes(h, standardize)
        return cls(standardize, axes, variance)

    def scaled(self, h: Tensor, pooled: int, factor: float) -> "_Frame":
        """Return the frame in which the columns after the first `pooled` are `factor` as large."""
        scale = self.standardize.scale.clone()
        scale[pooled:] /= factor  # infinite for 0
        return self.of(h, Standardization(self.standardize.mean, scale))

    def design(self, h: Tensor) -> DesignMatrix:
        """Return h [n, D] along the axes, and a column of ones for the bias."""
        n, width = h.shape
        if n >= width and n * width > _COORDINATES:
            return RotatedDesign(h, self.standardize, self.axes, self.variance)
        x = self.axes.new_ones(n, self.axes.shape[1] + 1)
        for part, rows in zip(torch.split(x, _ROWS), torch.split(h, _ROWS), strict=True):
            torch.mm(self.standardize(rows), self.axes, out=part[:, :-1])
        return DenseDesign(x)

    def predict(self, h: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """Return the class ids [n] of h [n, D] by weights [K, D] of standardized features."""
        parts = (self.standardize(rows) for rows in torch.split(h, _ROWS))
        return torch.cat([(z @ weight.T + bias).argmax(1) for z in parts])


def _principal_axes(h: Tensor, standardize: Standardization) -> tuple[Tensor, Tensor]:
    """Return orthonormal columns [D, d] that span the standardized rows of h [n, D].

    d is the number of columns that are not constant, or n if that is fewer. With them are the mean
    squares of the rows along them, [d].
    """
    finite = standardize.scale.isfinite()
    count = int(finite.sum())
    parts = (standardize(part)[:, finite] for part in torch.split(h, _ROWS))
    if len(h) >= count:
        gram = standardize.mean.new_zeros(count, count)
        for z in parts:
            for end in range(count, 0, -_COLUMNS):  # the half below the diagonal is enough
                block = slice(max(0, end - _COLUMNS), end)
                gram[block, :end].addmm_(z[:, block].T, z[:, :end])
        squares, inner = _eigenvectors(gram)
    else:  # a solution lies in the span of the training examples
        span, factor = torch.linalg.qr(torch.cat(list(parts)).T)
        squares, inner = _eigenvectors(factor @ factor.T)
        inner = span @ inner
    axes = inner.new_zeros(h.shape[1], inner.shape[1])
    axes[finite] = inner
    return axes, squares.clamp(min=0) / len(h)


def _eigenvectors(gram: Tensor) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and orthonormal eigenvectors, as columns, or else diagonal and identity.

    Of the symmetric matrix only the half below the diagonal is used. For mostly constant features
    LAPACK may fail or return NaN, in float32 and sometimes in float64. Any orthonormal columns give
    the same optimum; eigenvectors only speed up convergence.
    """
    for matrix in (gram, gram.double()):
        try:
            values, vectors = (found.to(gram) for found in torch.linalg.eigh(matrix))
        except RuntimeError:
            continue
        if vectors.isfinite().all():
            return values, vectors
    return gram.diagonal(), torch.eye(len(gram)).to(gram)


def _problems(x: DesignMatrix, target: Tensor, used: Tensor, sizes: Tensor, l2: Tensor) -> Problems:
    """Return problems over the examples `used`, bool [P, n], the last column unpenalized."""
    penalty = l2[:, None].repeat(1, x.width)
    penalty[:, -1] = 0
    return Problems(
        target=target, share=used / used.sum(1, keepdim=True), l2=penalty, classes=sizes
    )
