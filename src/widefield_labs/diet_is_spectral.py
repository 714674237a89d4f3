"""DIET and the spectral contrastive loss share their global minimizers.

"Memory-efficient self-supervised contrastive learning with a supervised loss" (S-DIET, 2025),
section 4 and Appendix B.2. Linear encoder f(x) = W x, head W_H in R^{n x m}, m <= n; the label y is
which of the n examples x is a view of. With M = E[x x^T], B = E[e_y x^T] and M_pos = B^T B:

    DIET      L = 1/2 E|W_H W x - e_y|^2
                = 1/2 tr(W_H^T W_H W M W^T) - tr(W_H W B^T) + 1/2                              (4)
    spectral  L = -E[[y1 = y2] f1.f2] + 1/2 E[(f1.f2)^2]
                = -tr(W M_pos W^T) + 1/2 tr((W M W^T)^2)                                       (2)

Theorem 4.3: with W_H an isometry, both are least exactly where W^T W M = [M^+ M_pos]_m, the part of
M^+ M_pos in its m leading eigenvectors. With eigenvalues lam_i, the least values are
(1 - sum_{i<=m} lam_i)/2 and -sum_{i<=m} lam_i^2 / 2.

Shapes: R data sets, n examples, d input dimensions, m embedding dimensions.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt
from torch import Generator, Tensor
from torch.nn import functional

from widefield.core.validation import require
from widefield.methods.diet import one_hot_error
from widefield.methods.spectral import spectral_contrastive
from widefield_labs.lab import Arrays, Check, Figure, Scale, at_least, at_most, at_scale

CONVERGED = 1e-4
"""Relative distance that counts as equal. Both minimizers run to rounding in the value of the loss,
1e-15; W is then right to its root, 3e-8, over the root of an eigengap, 1e-3 of a value or more."""


@dataclass(frozen=True)
class DataSets:
    """R data sets: their views, and the moments that both losses depend on, float64."""

    x: Tensor
    """Views [R, n, V, d] of n examples."""
    m: Tensor
    """M = E[x x^T], [R, d, d]."""
    b: Tensor
    """B = E[e_y x^T], [R, n, d]."""

    @classmethod
    def from_views(cls, x: Tensor) -> "DataSets":
        """Take the moments of views x [R, n, V, d]."""
        _, examples, views, _ = x.shape
        flat = x.flatten(1, 2)
        return cls(x, flat.mT @ flat / (examples * views), x.mean(2) / examples)

    @property
    def m_pos(self) -> Tensor:
        """M_pos = E[[y1 = y2] x1 x2^T] over pairs of views, [R, d, d]."""
        return self.b.mT @ self.b


def leading_part(data: DataSets, rank: int) -> tuple[Tensor, Tensor]:
    """Return [M^+ M_pos]_m [R, d, d] and the eigenvalues of M^+ M_pos [R, d], largest first.

    M^+ M_pos is not symmetric but similar to M^{+1/2} M_pos M^{+1/2}, which is.
    """
    values, vectors = torch.linalg.eigh(data.m)
    nonzero = values > 1e-10 * values[:, -1:]
    root = torch.where(nonzero, values, 0.0).sqrt()
    inverse = torch.where(nonzero, 1 / root.clamp_min(1e-150), 0.0)
    half, inverse_half = ((vectors * s.unsqueeze(1)) @ vectors.mT for s in (root, inverse))
    lam, q = torch.linalg.eigh(inverse_half @ data.m_pos @ inverse_half)
    lam, q = lam.flip(-1), q.flip(-1)
    top: Tensor = (q[..., :rank] * lam[:, None, :rank]) @ q[..., :rank].mT
    target: Tensor = inverse_half @ top @ half
    return target, lam


def diet_loss(data: DataSets, w: Tensor, head: Tensor) -> Tensor:
    """Return the library's DIET with squared error, W [R, m, d] and W_H [R, n, m], over all views.

    It is (4), the mean over the views.
    """
    _, examples, views, _ = data.x.shape
    example = torch.arange(examples).repeat_interleave(views)
    z = data.x.flatten(1, 2) @ w.mT
    return torch.vmap(one_hot_error, in_dims=(0, 0, None))(z, head, example)


def spectral_loss(data: DataSets, w: Tensor) -> Tensor:
    """Return the library's spectral loss of W [R, m, d] over all pairs of views, [R].

    The library takes one view of each example twice, and n times the expectations of (2). Its mean
    over all choices of the two views, divided by n, is (2).
    """
    z = (data.x @ w.mT.unsqueeze(1)).transpose(1, 2)  # [R, V, n, m]
    first_fixed = torch.vmap(spectral_contrastive, in_dims=(None, 0))
    all_pairs = torch.vmap(torch.vmap(first_fixed, in_dims=(0, None)))
    return all_pairs(z, z).mean((1, 2)) / data.x.shape[1]


def matching_head(data: DataSets, w: Tensor) -> Tensor:
    """Return the best isometry W_H for a given W: the polar factor of B W^T (proof of 4.3)."""
    u, _, vh = torch.linalg.svd(data.b @ w.mT, full_matrices=False)
    return u @ vh


def minimize_diet(
    data: DataSets, w: Tensor, head: Tensor, rounds: int, *, free: bool = False
) -> tuple[Tensor, list[Tensor]]:
    """Alternate the best W for the head and the best head for W, ten times a round.

    Returns the last head and the W of each round.

    Of the W that are least for a head, the one nearest to the last W is taken, as gradient descent
    would: outside the span of the data W stays where it started. A `free` head is a least-squares
    fit, otherwise it is an isometry.
    """
    inverse, path = torch.linalg.pinv(data.m, hermitian=True), [w]
    for _ in range(rounds):
        for _ in range(10):
            # A correction of w, not a new w: it leaves what lies outside the span of the data.
            wanted = torch.linalg.solve(head.mT @ head, head.mT @ data.b)
            w = w + (wanted - w @ data.m) @ inverse
            if free:
                head = torch.linalg.solve(w @ data.m @ w.mT, w @ data.b.mT).mT
            else:
                head = matching_head(data, w)
        path.append(w)
    return head, path


def minimize_spectral(data: DataSets, w: Tensor, rounds: int) -> list[Tensor]:
    """Run L-BFGS on the sum over data sets, ten iterations a round; return the W of each round."""
    moving = w.clone().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [moving],
        max_iter=10,
        history_size=50,
        tolerance_grad=1e-12,
        tolerance_change=0.0,
        line_search_fn="strong_wolfe",
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        total = spectral_loss(data, moving).sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    path = [w]
    for _ in range(rounds):
        optimizer.step(closure)  # type: ignore[no-untyped-call]
        path.append(moving.detach().clone())
    return path


def random_start(data: DataSets, rank: int, generator: Generator) -> tuple[Tensor, Tensor]:
    """Draw W [R, m, d] and a head that is no isometry [R, n, m]."""
    sets, examples, dimension = data.b.shape
    w = 0.3 * torch.randn(sets, rank, dimension, generator=generator, dtype=torch.float64)
    return w, torch.randn(sets, examples, rank, generator=generator, dtype=torch.float64)


def distance(data: DataSets, path: list[Tensor], target: Tensor) -> Tensor:
    """Return |W^T W M - target|/|target| of each W of a path, [rounds, R]."""
    w = torch.stack(path)
    gap: Tensor = torch.linalg.matrix_norm(w.mT @ w @ data.m - target)
    size: Tensor = torch.linalg.matrix_norm(target)
    return gap / size


def solve_diet(
    data: DataSets, rank: int, rounds: int, start: tuple[Tensor, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """Minimize DIET with an isometric head; return the last W, and what the theorem says of it."""
    target, lam = leading_part(data, rank)
    head, path = minimize_diet(data, start[0], torch.linalg.qr(start[1]).Q, rounds)
    return path[-1], {
        "diet": distance(data, path, target),
        "diet_value": diet_loss(data, path[-1], head),
        "diet_least": 0.5 * (1 - lam[:, :rank].sum(1)),
    }


def solve(data: DataSets, rank: int, rounds: int, generator: Generator) -> dict[str, Tensor]:
    """Minimize each loss from random starts; return distances to the theorem's W^T W M."""
    target, lam = leading_part(data, rank)
    start = random_start(data, rank, generator)
    w, diet = solve_diet(data, rank, rounds, start)
    free_head, free = minimize_diet(data, *start, rounds, free=True)
    spectral = minimize_spectral(data, start[0], rounds)
    # Lemma 4.2: an isometry and another W with the same product, by W_H = Q R.
    absorbed = torch.linalg.qr(free_head).R @ free[-1]
    return {
        **diet,
        "spectral": distance(data, spectral, target),
        "free": distance(data, free, target),
        "absorbed": distance(data, [absorbed], target),
        "spectral_value": spectral_loss(data, spectral[-1]),
        "borrowed_value": diet_loss(data, spectral[-1], matching_head(data, spectral[-1])),
        "spectral_least": -0.5 * lam[:, :rank].square().sum(1),
        "entries": torch.stack([end.mT @ end @ data.m for end in (w, spectral[-1])]),
        "target": target,
    }


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test Theorem 4.3 and Lemma 4.2, as relative distances (largest of the data sets)."""
    pairs = (("diet", "diet"), ("spectral", "spectral"), ("borrowed", "diet"))
    gap = {
        name: np.abs(arrays[f"{name}_value"] / arrays[f"{least}_least"] - 1).max()
        for name, least in pairs
    }
    return (
        at_most(
            "W^T W M of DIET's minimizer is [M^+ M_pos]_m (largest relative distance)",
            arrays["diet"][-1].max(),
            CONVERGED,
        ),
        at_most(
            "W^T W M of the spectral loss's minimizer is the same (largest relative distance)",
            arrays["spectral"][-1].max(),
            CONVERGED,
        ),
        at_most("DIET's least value is (1 - sum lam)/2 (relative)", gap["diet"], 1e-6),
        at_most("the spectral loss's is -sum lam^2 / 2 (relative)", gap["spectral"], 1e-6),
        at_most(
            "a spectral minimizer with a suitable isometry has DIET's least value (relative)",
            gap["borrowed"],
            1e-6,
        ),
        at_most(
            "Lemma 4.2: a free head's W, with the head made an isometry, agrees too",
            arrays["absorbed"].max(),
            CONVERGED,
        ),
        at_least(
            "boundary: with the free head itself W^T W M differs (smallest relative distance)",
            arrays["free"][-1].min(),
            100 * CONVERGED,
        ),
        at_least(
            "boundary: where lam_m = lam_{m+1} the minimizer is one of many (smallest distance)",
            arrays["tie_diet"][-1].min(),
            100 * CONVERGED,
        ),
        at_least(
            "boundary: where M is singular a random start keeps its share outside the data",
            arrays["singular_diet"][-1].min(),
            100 * CONVERGED,
        ),
    )


def notes(arrays: Arrays) -> tuple[str, ...]:
    """Name the conditions that the formula needs beyond the theorem's."""
    tie = np.abs(arrays["tie_diet_value"] / arrays["tie_diet_least"] - 1).max()
    return (
        "The head must be an isometry: a free head reaches the same value with W^T W M a relative "
        f"{np.median(arrays['free'][-1]):.2f} away (median).",
        "The formula names one minimizer only if lam_m > lam_{m+1}: in a tie the value is right "
        f"(to {tie:.0e}), W^T W M is a relative {np.median(arrays['tie_diet'][-1]):.2f} away.",
        "Where M is singular (data in a subspace) the losses do not see W outside the "
        "data's span: both sets of minimizers still coincide, but W^T W M = [M^+ M_pos]_m holds "
        "only for the W inside it, from W = 0 say; from a random start it is a relative "
        f"{np.median(arrays['singular_diet'][-1]):.2f} away.",
    )


def draw(arrays: Arrays, figure: Figure) -> None:
    """Draw the distance to the predicted W^T W M while minimizing, and its entries at the end."""
    left, right = figure.subplots(1, 2, width_ratios=[3, 2])
    shown = (
        ("diet", "DIET, isometric head", "o"),
        ("spectral", "spectral contrastive", "s"),
        ("free", "DIET, free head", "^"),
        ("tie_diet", "DIET, equal eigenvalues", "D"),
        ("singular_diet", "DIET, singular M", "v"),
    )
    for name, label, marker in shown:
        curve = np.median(arrays[name], axis=1)
        left.plot(10 * np.arange(len(curve)), curve, marker=marker, ms=4, markevery=3, label=label)
    left.set(
        yscale="log",
        xlabel="alternations (DIET) or L-BFGS iterations (spectral)",
        title="Distance while minimizing",
    )
    left.set(ylabel="|WᵀWM − [M⁺M_pos]_m| / |[M⁺M_pos]_m|")
    target = arrays["target"][0].ravel()
    for entries, label, marker, size in zip(
        arrays["entries"][:, 0], ("DIET", "spectral contrastive"), "ox", (7, 4), strict=True
    ):
        right.plot(target, entries.ravel(), marker, mfc="none", ms=size, ls="none", label=label)
    right.axline((0, 0), slope=1, color="black", lw=0.8, ls="-")
    right.set(xlabel="entries of [M⁺M_pos]_m", ylabel="entries of WᵀWM", title="At the minimum")


def random_data(
    sets: int, shape: tuple[int, int, int], strong: int, noise: float, generator: Generator
) -> DataSets:
    """Draw Gaussian examples with views x + noise N(0, I); shape = (n, V, d).

    The first `strong` coordinates deviate by 1 and the others by 0.2, which keeps their eigenvalues
    apart: near a tie both minimizers would need ever more iterations.
    """
    examples, views, dimension = shape
    deviation = torch.full((dimension,), 0.2, dtype=torch.float64)
    deviation[:strong] = 1.0
    x = torch.randn(sets, examples, 1, dimension, generator=generator, dtype=torch.float64)
    jitter = torch.randn(sets, examples, views, dimension, generator=generator, dtype=torch.float64)
    return DataSets.from_views(deviation * x + noise * jitter)


def measure(
    *,
    scale: Scale,
    generator: Generator,
    examples: Annotated[int, Ge(2)] = 12,
    dimension: Annotated[int, Ge(2)] = 10,
    embedding: Annotated[int, Ge(1)] = 3,
    views: Annotated[int, Ge(1)] = 6,
    noise: Annotated[float, Gt(0)] = 0.5,
) -> Arrays:
    """Minimize both losses on random data sets and compare W^T W M with the theorem's.

    A data set has `views` of each of its `examples` in `dimension` dimensions. `embedding` is m.
    `noise` is the standard deviation of a view around its example, in units of the examples'.
    """
    limit = min(examples, dimension) - 1
    allowed = f"in 1..{limit} (an isometric head needs embedding <= examples, a rank < dimension)"
    require(embedding <= limit, "embedding", embedding, allowed)
    enough = f"at least {math.ceil(dimension / examples)}, for examples * views >= dimension"
    require(examples * views >= dimension, "views", views, enough)
    sets = at_scale(scale, tiny=4, default=16)
    rounds = at_scale(scale, tiny=25, default=60)
    generic = random_data(sets, (examples, views, dimension), embedding, noise, generator)
    # n one-hot examples without noise: M = I/n, M_pos = I/n^2, so that all eigenvalues are 1/n.
    eye = torch.eye(examples, dtype=torch.float64).view(1, examples, 1, examples)
    tie = DataSets.from_views(eye.expand(sets, -1, -1, -1))
    # The same data in twice the dimensions: M is singular, its eigenvalues are the same.
    singular = DataSets.from_views(functional.pad(generic.x, (0, dimension)))
    solved = solve(generic, embedding, rounds, generator)
    for name, data in (("tie", tie), ("singular", singular)):
        _, special = solve_diet(data, embedding, rounds, random_start(data, embedding, generator))
        solved |= {f"{name}_{key}": value for key, value in special.items()}
    return {name: value.numpy() for name, value in solved.items()}
