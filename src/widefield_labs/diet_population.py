"""Theorem 5.1 of S-DIET: its exact populations, and training on them with isometric heads.

"Memory-efficient self-supervised contrastive learning with a supervised loss" (S-DIET, 2025),
Theorem 5.1, Lemma B.4 to B.8. The lab diet_toy has the equations.

Shapes: S cases, R heads, n examples, m embedding, A views of a class, C classes.
"""

import math

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional

from widefield.methods.diet import one_hot_error
from widefield_labs.lab import Arrays

CLASSES, EXAMPLES, AMBIENT = 2, 8, 16
CIRCLE = 16  # directions of xi in the plane of one other class
NU1 = 0.1
GRID = [(NU1, nu2, phi) for phi in (0.5, 1.0, 2.0) for nu2 in (0.1, 0.3, 0.5, 0.7, 0.9)]
OVERLAP_CASE = (0.02, 0.2, 1.0)
PLAIN_CASES, PLAIN_HEADS = GRID[::4], 2  # that plain DIET is trained on


def plain_ratio(s1: float, s2: float, phi: float, classes: int, dimension: int) -> float:
    """Return rho of plain DIET (Lemma B.4)."""
    background = (classes - 1) * phi**2 / dimension
    return (s1**2 + background) / (s2**2 + background)


def ratio_bounds(nu1: float, nu2: float) -> tuple[float, float]:
    """Return the bounds of rho for normalized DIET that Lemma B.8 implies.

    Theorem 5.1 prints those of 1 / rho, in which nu1 and nu2 change places.
    """
    return (1 - nu2) / (1 + nu1), (1 + nu2) / (1 - nu1)


def population(nu1: float, nu2: float, phi: float) -> Tensor:
    """Return all views of each class, of equal weight, float64 [C, A, 2C]: an exact population.

    e = +-nu, and xi points in one of 16 directions in each other class's (u, v) plane: the proof
    uses the symmetry of these laws only. Directions that W never sees (W p = 0) are left out.
    """
    angle = 2 * math.pi * torch.arange(CIRCLE, dtype=torch.float64) / CIRCLE
    xi = phi * math.sqrt(2 / AMBIENT) * torch.stack([angle.cos(), angle.sin()])
    views = torch.zeros(CLASSES, 2, 2, CIRCLE, 2 * CLASSES, dtype=torch.float64)
    sign = torch.tensor([-1.0, 1.0], dtype=torch.float64)
    for c, other_class in ((0, 1), (1, 0)):
        views[c, ..., c] = 1 + nu1 * sign.view(2, 1, 1)
        views[c, ..., CLASSES + c] = 1 + nu2 * sign.view(1, 2, 1)
        views[c, ..., other_class], views[c, ..., CLASSES + other_class] = xi
    return views.flatten(1, 3)


def stationary_ratio(nu1: float, nu2: float, phi: float) -> float:
    """Return b/a of the stationary point for class sums of equal length, by damped iteration."""
    x = population(nu1, nu2, phi)[0]
    ratio = torch.ones((), dtype=torch.float64)
    for _ in range(500):
        kappa = x[:, 0] + ratio * x[:, CLASSES]
        s = (x[:, 1] + ratio * x[:, CLASSES + 1]) ** 2
        w = s / (kappa**2 + s) ** 1.5
        ratio = 0.5 * ratio + 0.5 * (x[:, CLASSES] * w).sum() / (x[:, 0] * w).sum()
    return float(ratio)


def isometric_heads(count: int, generator: Generator, *, embedding: int = CLASSES) -> Tensor:
    """Draw isometries with m = C < n, or another `embedding`, [R, n, m]."""
    raw = torch.randn(count, EXAMPLES, embedding, generator=generator, dtype=torch.float64)
    return torch.linalg.qr(raw).Q


def class_sums(heads: Tensor) -> Tensor:
    """Return r_c, the sum of W_H^T e_i over the examples of class c, [R, C, m]."""
    return heads.view(len(heads), EXAMPLES // CLASSES, CLASSES, -1).sum(1)


def train_plain(x: Tensor, heads: Tensor, steps: int) -> Tensor:
    """Return plain DIET's rho [S, R, C] after L-BFGS from W = 0, on the library's loss.

    `x` [S, C, A, 2C] of S cases, `heads` [R, n, m]; example i has all views of its class.
    """
    target = torch.arange(EXAMPLES).repeat_interleave(x.shape[2])
    ratios = []
    for views in x:
        seen = views.repeat(EXAMPLES // CLASSES, 1, 1).flatten(0, 1)  # as `class_sums` orders them
        w = torch.zeros(len(heads), heads.shape[-1], x.shape[-1], dtype=x.dtype, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [w], max_iter=steps, tolerance_grad=0, tolerance_change=0, line_search_fn="strong_wolfe"
        )

        def closure(seen: Tensor = seen, w: Tensor = w) -> Tensor:
            errors = [
                one_hot_error(seen @ moving.T, head, target)
                for moving, head in zip(w, heads, strict=True)
            ]
            loss = torch.stack(errors).sum()
            (w.grad,) = torch.autograd.grad(loss, w)
            return loss

        optimizer.step(closure)  # type: ignore[no-untyped-call]
        ratios.append(feature_ratio(w.detach()))
    return torch.stack(ratios)


def descend(x: Tensor, sums: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Return normalized DIET's rho [S, R, C], half way down and at the end of a gradient descent.

    `x` [S, C, A, 2C] of S cases, `sums` [R, C, m] of R heads. With W_H^T W_H = I the loss is a
    constant minus the mean of norm(W x).r_c. Its first step from W = 0 is along E[r_c x^T]. The
    loss does not depend on |W|, which is held at 1 so that one step size suits all cases.
    """

    def on_sphere(w: Tensor) -> Tensor:
        return w / w.square().sum((2, 3), keepdim=True).sqrt()

    w = on_sphere(torch.einsum("rcm,scd->srmd", sums, x.mean(2)))
    velocity, halfway = torch.zeros_like(w), w
    for step in range(steps):
        moving = w.clone().requires_grad_()
        z = functional.normalize(torch.einsum("scad,srmd->srcam", x, moving), dim=-1)
        loss = -(z * sums.unsqueeze(2)).sum(-1).mean(-1).sum() / EXAMPLES
        (gradient,) = torch.autograd.grad(loss, moving)
        velocity = 0.9 * velocity + gradient
        w = on_sphere(w - velocity)
        if step == steps // 2:
            halfway = w
    return feature_ratio(halfway), feature_ratio(w)


def feature_ratio(w: Tensor) -> Tensor:
    """Return |W v_c|/|W u_c| of W [.., m, 2C], [.., C]."""
    alignment = w.square().sum(-2).sqrt()
    return alignment[..., CLASSES:] / alignment[..., :CLASSES]


def theorem(heads: int, steps: int, generator: Generator) -> Arrays:
    """Test Theorem 5.1 over GRID with an orthogonal head, and over random isometries."""
    orthogonal = class_sums(isometric_heads(1, generator, embedding=EXAMPLES))
    isometries = isometric_heads(heads, generator)
    sums = class_sums(isometries)
    x = torch.stack([population(*case) for case in GRID])
    _, ratio = descend(x, orthogonal, steps)
    overlap_x = population(*OVERLAP_CASE).unsqueeze(0)
    halfway, loose = descend(overlap_x, sums, 3 * steps)
    cosine = functional.cosine_similarity(sums[:, 0], sums[:, 1], dim=-1)
    return {
        "ratio": ratio.squeeze(1).numpy(),
        "stationary": np.array([stationary_ratio(*case) for case in GRID]),
        "bounds": np.array([ratio_bounds(nu1, nu2) for nu1, nu2, _ in GRID]),
        "printed": np.array([ratio_bounds(nu2, nu1) for nu1, nu2, _ in GRID]),
        "plain": train_plain(x[::4], isometries[:PLAIN_HEADS], steps=40).numpy(),
        "plain_predicted": np.array(
            [plain_ratio(nu1, nu2, phi, CLASSES, AMBIENT) for nu1, nu2, phi in PLAIN_CASES]
        ),
        "overlap": cosine.abs().numpy(),
        "overlap_ratio": loose.squeeze(0).numpy(),
        "overlap_halfway": halfway.squeeze(0).numpy(),
        "overlap_bounds": np.array(ratio_bounds(*OVERLAP_CASE[:2])),
    }
