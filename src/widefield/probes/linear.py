"""Linear probe: multinomial logistic regression on frozen features, all tasks solved together.

With features standardized to x and one weight matrix W[K, D] and bias b[K] per task, minimize

    f(W, b) = mean_i -log softmax(W x_i + b)[y_i]  +  l2 / 2 |W|^2        (no penalty on b).

Every task at every L2 strength is one problem over the same x; `lbfgs.py` minimizes them side by
side. It converges fastest on uncorrelated columns, so x is first turned to its principal axes. That
leaves f as it is: |W| is the same in any orthonormal basis.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor

from widefield.core.scale import power_of_two
from widefield.probes.checks import check_probe
from widefield.probes.lbfgs import Problems, minimize

L2_GRID = (1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)
_LOGITS = 2**25
"""Logits held in memory together, 128 MiB; a larger grid is solved a few problems at a time."""


@dataclass(frozen=True, slots=True)
class LinearResult:
    """The probe of one task; `h @ weight.T + bias` are its logits on features as given."""

    accuracy: float
    """Share of test examples classified correctly."""
    low: float
    high: float
    """The ends of the 95 % Wilson interval of `accuracy`."""
    l2: float
    """The strength that the validation split chose."""
    validation: dict[float, float]
    """Accuracy on the validation split at every strength of the grid."""
    weight: Tensor
    """Float32 [K, D]."""
    bias: Tensor
    """Float32 [K]."""
    guess: Tensor
    """Class id of each test example, int64 [n]."""


def fit_linear(
    train_h: Tensor,
    train_labels: dict[str, Tensor],
    test_h: Tensor,
    test_labels: dict[str, Tensor],
    *,
    classes: dict[str, int],
    l2_grid: Sequence[float] = L2_GRID,
    seed: int = 0,
) -> dict[str, LinearResult]:
    """Fit and test one probe for every task in `classes` (task -> number of classes K).

    Features are float [n, D] and labels int64 [n] in 0..K-1. A class-stratified fifth of the
    training examples, drawn by `seed`, chooses each task's L2 strength by accuracy (and by
    cross-entropy among equals); the probe is then refitted on all training examples. Test examples
    decide nothing.

    Raises `ValueError` for non-finite features, labels that do not fit the features or `classes`,
    a task with fewer than two classes in its training labels, and a class with one example.

    Example:
        >>> h = torch.randn(300, 8, generator=torch.Generator().manual_seed(0))
        >>> y = (h[:, 0] > 0).long()
        >>> train, test = {"sign": y[:200]}, {"sign": y[200:]}
        >>> result = fit_linear(h[:200], train, h[200:], test, classes={"sign": 2})
        >>> result["sign"].accuracy > 0.9
        True
    """
    check_probe(train_h, train_labels, test_h, test_labels, classes)
    if not l2_grid or min(l2_grid) <= 0:
        raise ValueError(f"l2_grid is {list(l2_grid)}: give at least one strength, all above 0")
    frame = _Frame.of(train_h.float())
    x, grid = frame.coordinates(train_h), sorted(l2_grid)
    target = torch.stack([train_labels[task].to(x.device) for task in classes])
    sizes = torch.tensor(list(classes.values()), device=x.device)
    trials = _search(x, target, sizes, grid, seed)
    best = trials.best()
    all_examples = torch.ones_like(target, dtype=torch.bool)
    final = _problems(x, target, all_examples, sizes, torch.tensor(grid, device=x.device)[best])
    start = trials.weight[torch.arange(len(best), device=x.device), best]
    weights = minimize(x, final, start, tolerance=1e-4)

    results, test_z = {}, frame.standardize(test_h)
    for j, (task, count) in enumerate(classes.items()):
        weight, bias = weights[j, :count, :-1] @ frame.axes.T, weights[j, :count, -1]
        guess = (test_z @ weight.T + bias).argmax(1)
        right = int((guess == test_labels[task].to(x.device)).sum())
        low, high = wilson(right, len(guess))
        raw = weight / frame.scale
        results[task] = LinearResult(
            accuracy=right / len(guess),
            low=low,
            high=high,
            l2=grid[int(best[j])],
            validation=dict(zip(grid, trials.accuracy[j].tolist(), strict=True)),
            weight=raw,
            bias=(bias - raw.double() @ frame.mean.double()).float(),
            guess=guess,
        )
    return results


class _Trials(NamedTuple):
    """Every task at every strength: probes fitted without the validation split, judged on it."""

    accuracy: Tensor
    """float64 [tasks, grid]."""
    loss: Tensor
    """Mean cross-entropy, float64 [tasks, grid]."""
    weight: Tensor
    """[tasks, grid, K, d]."""

    def best(self) -> Tensor:
        """Return the position in the grid of the best strength of each task, int64 [tasks]."""
        top = self.accuracy == self.accuracy.amax(1, keepdim=True)
        return torch.where(top, self.loss, torch.inf).argmin(1)


def _search(x: Tensor, target: Tensor, sizes: Tensor, grid: Sequence[float], seed: int) -> _Trials:
    strengths = torch.tensor(grid, device=x.device).repeat(len(target))
    held_out = _stratified_fifth(target, seed).repeat_interleave(len(grid), dim=0)
    target = target.repeat_interleave(len(grid), dim=0)
    sizes = sizes.repeat_interleave(len(grid))
    parts = []
    at_once = max(1, _LOGITS // (len(x) * int(sizes.max())))
    for first in range(0, len(target), at_once):
        part = slice(first, first + at_once)
        truth, held, l2 = target[part], held_out[part], strengths[part]
        problems = _problems(x, truth, ~held, sizes[part], l2)
        start = x.new_zeros(*problems.absent.shape, x.shape[1])
        weight = minimize(x, problems, start, tolerance=1e-3)
        logits = problems.logits(x, weight)
        hits = (logits.argmax(1) == truth) & held
        loss, _ = _problems(x, truth, held, sizes[part], 0 * l2).loss(logits, weight)
        parts.append(_Trials(hits.sum(1).double() / held.sum(1), loss, weight))
    whole = (torch.cat(pieces) for pieces in zip(*parts, strict=True))
    return _Trials(*(t.view(-1, len(grid), *t.shape[1:]) for t in whole))


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a proportion (Wilson 1927), in [0, 1] even at 0 and 1.

    Example:
        >>> [round(end, 3) for end in wilson(10, 10)]
        [0.722, 1.0]
    """
    z = 1.959964  # the normal quantile at 0.975
    share, spread = hits / trials, z * z / trials
    center = (share + spread / 2) / (1 + spread)
    half = math.sqrt(share * (1 - share) * spread + spread * spread / 4) / (1 + spread)
    # Rounding must not put the share itself outside.
    return min(share, max(0.0, center - half)), max(share, min(1.0, center + half))


@dataclass(frozen=True, slots=True)
class _Frame:
    """Standardization of features, and the principal axes of the standardized ones."""

    mean: Tensor
    scale: Tensor
    """Standard deviations; infinite for constant features, which makes them zero."""
    axes: Tensor
    """Orthonormal columns, [D, min(n, D)]."""

    @classmethod
    def of(cls, h: Tensor) -> "_Frame":
        """Return the frame of training features [n, D]."""
        scale = power_of_two(h.abs().amax())
        near = h / scale  # squares of the features as they are could vanish or overflow
        largest, mean = near.abs().amax(0), near.mean(0)
        deviation = near.sub_(mean).square_().mean(0).sqrt()
        # A constant feature deviates too, by rounding: it must not be blown up to noise.
        constant = deviation <= 1e-6 * largest
        frame = cls(
            mean * scale, torch.where(constant, torch.inf, deviation * scale), torch.empty(0)
        )
        z = frame.standardize(h)
        if len(h) >= h.shape[1]:
            axes = _eigenvectors(z.T @ z)
        else:  # a solution lies in the span of the training examples
            span, triangle = torch.linalg.qr(z.T)
            axes = span @ _eigenvectors(triangle @ triangle.T)
        return replace(frame, axes=axes)

    def standardize(self, h: Tensor) -> Tensor:
        return (h.to(self.mean) - self.mean) / self.scale

    def coordinates(self, h: Tensor) -> Tensor:
        """Return h [n, D] along the axes and a column of ones for the bias, [n, min(n, D) + 1]."""
        z = self.standardize(h)
        return torch.cat([z @ self.axes, z.new_ones(len(z), 1)], dim=1)


def _eigenvectors(gram: Tensor) -> Tensor:
    """Return orthonormal eigenvectors of a symmetric matrix, as columns, or else the identity.

    On features mostly constant LAPACK may give up in float32, or return NaN and say nothing, and
    now and then in float64 too. Any orthonormal columns lead to the same optimum then; eigenvectors
    make the search shorter.
    """
    for matrix in (gram, gram.double()):
        try:
            vectors = torch.linalg.eigh(matrix)[1].to(gram)
        except RuntimeError:
            continue
        if vectors.isfinite().all():
            return vectors
    return torch.eye(len(gram)).to(gram)


def _problems(x: Tensor, target: Tensor, used: Tensor, sizes: Tensor, l2: Tensor) -> Problems:
    """Return problems over the examples `used`, bool [P, n], with no penalty on x's last column."""
    present = torch.arange(int(sizes.max()), device=x.device) < sizes[:, None]
    penalty = l2[:, None].repeat(1, x.shape[1])
    penalty[:, -1] = 0
    return Problems(
        target=target,
        share=used / used.sum(1, keepdim=True),
        l2=penalty,
        absent=torch.where(present, 0.0, -torch.inf),
    )


def _stratified_fifth(target: Tensor, seed: int) -> Tensor:
    """Mark a fifth of each class of each task, at least one and never all; bool [tasks, n]."""
    held_out = torch.zeros_like(target, dtype=torch.bool)
    for j, labels in enumerate(target.cpu()):
        # Anew for each task, whose score must not depend on which others are fitted with it.
        generator = torch.Generator().manual_seed(seed)
        for label in torch.unique(labels):
            members = (labels == label).nonzero()[:, 0]
            shuffled = members[torch.randperm(len(members), generator=generator)]
            held_out[j, shuffled[: max(1, round(len(members) / 5))]] = True
    return held_out
