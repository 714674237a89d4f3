"""Plain DIET learns the less noisy feature only; normalized DIET learns both.

"Memory-efficient self-supervised contrastive learning with a supervised loss" (S-DIET, 2025),
sections 5.1 and 6.1, Figure 1 and Theorem 5.1. Example i has class c(i) and views

    x = (1 + e1) u_c + (1 + e2) v_c + xi

with orthonormal u, v (here coordinates c and C + c), e1 and e2 symmetric of deviation s1 < s2 and
bounded by nu1, nu2, and xi of variance phi^2/d across them; a view redraws e1, e2 and xi. The
encoder W starts at 0 and the loss is |W_H g(W x) - e_i|^2 with g the identity or norm(z) = z/|z|.
The alignment with a feature is |W u_c| or |W v_c|; rho = |W v_c|/|W u_c|.

Plain DIET is least squares, so that for every head

    rho = (s1^2 + (C - 1) phi^2/d) / (s2^2 + (C - 1) phi^2/d)                        (Lemma B.4)

Normalized DIET with a fixed isometric head sees only its class sums r_c = sum_{c(i)=c} W_H^T e_i.
If they are orthogonal, W u_c = a r_c and W v_c = b r_c, and a stationary point has

    b/a = E[(1 + e2) w] / E[(1 + e1) w],   w = S / (kappa^2 + S)^{3/2} > 0        (from Lemma B.8)
    kappa = a (1 + e1) + b (1 + e2),   S = |W xi|^2/|r_c|^2

so that rho lies in [(1 - nu2)/(1 + nu1), (1 + nu2)/(1 - nu1)]. Theorem 5.1 prints the bounds of
1/rho, [(1 - nu1)/(1 + nu2), (1 + nu1)/(1 - nu2)], which Lemma B.8 derives for a/b.

Shapes: R trials, 2 variants (0 plain, 1 normalized), n examples, m embedding, d input, C classes.
"""

import math
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt, Interval
from torch import Generator
from torch.nn import functional

from widefield.core.validation import require
from widefield.methods.diet import one_hot_error
from widefield_labs.diet_population import (
    AMBIENT,
    CLASSES,
    EXAMPLES,
    GRID,
    NU1,
    plain_ratio,
    theorem,
)
from widefield_labs.lab import Arrays, Check, Figure, Scale, at_least, at_most, at_scale, close


def train_toy(
    *,
    shape: tuple[int, int, int, int, int],
    deviations: tuple[float, float, float],
    learning_rate: float,
    steps: int,
    generator: Generator,
) -> Arrays:
    """Train the toy of Figure 1 by Adam: a trainable head, one view of every example a step.

    `shape` = (R, n, m, d, C), `deviations` = (s1, s2, phi). Both variants of a trial share draws.
    """
    trials, examples, embedding, dimension, classes = shape
    s1, s2, phi = deviations
    w = torch.zeros(trials, 2, embedding, dimension, requires_grad=True)
    start = torch.randn(trials, 1, examples, embedding, generator=generator)
    head = (start / math.sqrt(embedding)).repeat(1, 2, 1, 1).requires_grad_()
    optimizer = torch.optim.Adam([w, head], lr=learning_rate)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    row, label = torch.arange(examples), torch.arange(examples) % classes
    batched_error = torch.vmap(torch.vmap(one_hot_error, (0, 0, None)), (0, 0, None))
    curve = []
    for step in range(steps):
        x = (
            phi
            / math.sqrt(dimension)
            * torch.randn(trials, 1, examples, dimension, generator=generator)
        )
        e1, e2 = torch.randn(2, trials, 1, examples, generator=generator)
        x[:, :, row, label] = 1 + s1 * e1
        x[:, :, row, classes + label] = 1 + s2 * e2
        plain, normalized = (x @ w.mT).unbind(1)
        z = torch.stack([plain, functional.normalize(normalized, dim=-1)], dim=1)
        loss = 2 / examples * batched_error(z, head, row).sum()  # a mean over the n^2 entries
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        if step == 0:  # the normalization's slope at z = 0 is 1/eps, which Adam would remember
            optimizer.state.clear()
        if step % (steps // 50) == 0 or step == steps - 1:
            curve.append(w.detach()[..., : 2 * classes].square().sum(-2).sqrt())
    alignment = torch.stack(curve).view(-1, trials, 2, 2, classes)  # [time, R, 2, (u, v), C]
    return {
        "toy_alignment": alignment.numpy(),
        "toy_step": np.linspace(0, steps, len(curve)),
        "toy_predicted": np.array(plain_ratio(s1, s2, phi, classes, dimension)),
    }


def outside(ratio: np.ndarray, bounds: np.ndarray) -> np.ndarray:
    """Return how far ratios [.., C] lie outside bounds [.., 2]; negative within them."""
    return np.maximum(bounds[..., :1] - ratio, ratio - bounds[..., 1:]).max(-1)


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test Figure 1 and both halves of Theorem 5.1."""
    last = arrays["toy_alignment"][-1].mean(-1)  # over classes: [R, 2, (u, v)]
    ratio = last[..., 1] / last[..., 0]
    # Four standard errors, and 5 %: the last steps' noise makes the norm of a small W v larger.
    error = 4 * ratio[:, 0].std() / math.sqrt(len(ratio)) + 0.05 * arrays["toy_predicted"]
    plain_gap = np.abs(arrays["plain"] / arrays["plain_predicted"][:, None, None] - 1)
    stationary_gap = np.abs(arrays["ratio"] / arrays["stationary"][:, None] - 1)
    printed = outside(arrays["ratio"], arrays["printed"])
    # Overlapping sums converge slowly: outside counts if half the descent did not lead back.
    excess = outside(arrays["overlap_ratio"], arrays["overlap_bounds"])
    before = outside(arrays["overlap_halfway"], arrays["overlap_bounds"])
    left = (excess > 0) & (excess > before - 1e-3)
    return (
        close(
            "Figure 1a, trainable head: |Wv|/|Wu| of DIET is Lemma B.4's",
            ratio[:, 0].mean(),
            float(arrays["toy_predicted"]),
            tolerance=error,
        ),
        close(
            "Figure 1b, trainable head: |Wv|/|Wu| of normalized DIET is that of equals (mean)",
            ratio[:, 1].mean(),
            1.0,
            tolerance=0.05,
        ),
        at_most(
            "Figure 1b: furthest that it is from 1 in a trial", abs(ratio[:, 1] - 1).max(), 0.1
        ),
        at_most(
            "Theorem 5.1, DIET trained with isometric heads: |Wv|/|Wu| is Lemma B.4's (largest "
            "relative gap)",
            plain_gap.max(),
            1e-4,
        ),
        at_most(
            "Theorem 5.1, normalized: |Wv|/|Wu| within Lemma B.8's bounds (largest excess)",
            outside(arrays["ratio"], arrays["bounds"]).max(),
            0.0,
        ),
        at_most(
            "normalized: |Wv|/|Wu| is the stationary b/a (largest relative gap)",
            stationary_gap.max(),
            1e-5,
        ),
        at_least(
            "erratum: the bounds as printed are left where nu2 = 0.9 (largest excess)",
            printed.max(),
            0.02,
        ),
        at_least(
            "boundary: share of random isometries with m < n that leave Lemma B.8's bounds",
            left.mean(),
            0.1,
        ),
    )


def notes(arrays: Arrays) -> tuple[str, ...]:
    """Say what the theorem needs beyond its statement."""
    worst = outside(arrays["ratio"], arrays["printed"]).argmax()
    nu1, nu2, phi = GRID[worst]
    left = outside(arrays["overlap_ratio"], arrays["overlap_bounds"]) > 0
    plain = plain_ratio(0.02, 0.2, 1.0, CLASSES, AMBIENT)
    return (
        "Erratum of Theorem 5.1: the printed interval bounds |Wu|/|Wv|, as in its proof, not "
        f"|Wv|/|Wu|. At nu1 = {nu1}, nu2 = {nu2}, phi = {phi} the ratio is "
        f"{arrays['ratio'][worst].mean():.3f}, below the printed {arrays['printed'][worst][0]:.3f} "
        f"and above the right {arrays['bounds'][worst][0]:.3f}.",
        "The proof needs orthogonal class sums: Lemma B.5 says that W_H^T e_i and W_H^T e_j are "
        "orthogonal, which for rows that are all non-zero holds only for m = n. Of random "
        f"isometries with m = {CLASSES} < n = {EXAMPLES}, {left.mean():.0%} end outside the "
        "bounds, those whose class sums overlap.",
        "DIET's s1^2/s2^2 + o(1) asks for (C - 1) phi^2/d far below s1^2. With s1 = 0.02, "
        f"s2 = 0.2, phi = 1, C = 2, d = {AMBIENT} the exact ratio is {plain:.2f}, not 0.01.",
        "Without xi (phi = 0) the first step from W = 0 is already least: |Wv| = |Wu| exactly.",
    )


def draw(arrays: Arrays, figure: Figure) -> None:
    """Draw Figure 1a and 1b, and the ratio over nu2 and over the overlap of class sums."""
    figure.set_size_inches(9, 6)
    (plain, normalized), (bounds, overlap) = figure.subplots(2, 2)
    mean = arrays["toy_alignment"].mean((1, -1))  # [time, 2, (u, v)]
    for variant, (axes, title) in enumerate(
        ((plain, "DIET (Fig. 1a)"), (normalized, "Normalized DIET (Fig. 1b)"))
    ):
        for feature, label in enumerate(("clean feature |W u|", "noisy feature |W v|")):
            axes.plot(arrays["toy_step"], mean[:, variant, feature], label=label)
        axes.set(xlabel="Adam step", ylabel="alignment", title=title, ylim=(0, None))
    few = [i for i, (_, _, phi) in enumerate(GRID) if phi == GRID[0][2]]
    nu2 = [GRID[i][1] for i in few]
    bounds.plot(nu2, arrays["ratio"][few].mean(-1), "o", ls="none", label="gradient descent")
    bounds.plot(nu2, arrays["stationary"][few], label="stationary b/a")
    bounds.plot(nu2, arrays["bounds"][few, 0], label="lower bound, Lemma B.8")
    bounds.plot(nu2, arrays["printed"][few, 0], label="lower bound, as printed")
    bounds.set(xlabel="ν₂, bound of the noise on v", ylim=(0, 1.05))
    bounds.set(ylabel="|Wv| / |Wu|", title=f"Orthogonal head, ν₁ = {NU1}, φ = {GRID[0][2]}")
    low, high = arrays["overlap_bounds"]
    overlap.plot(
        np.repeat(arrays["overlap"], CLASSES), arrays["overlap_ratio"].ravel(), ".", ls="none"
    )
    for bound in (low, high):
        overlap.axhline(bound, color="black", ls="--", lw=1)
    overlap.set(xlabel="|cos| between the two class sums of a random isometry")
    overlap.set(ylabel="|Wv| / |Wu|", title="Isometric head, m < n (dashed: bounds)")


def measure(
    *,
    scale: Scale,
    generator: Generator,
    classes: Annotated[int, Ge(2)] = 4,
    dimension: Annotated[int, Ge(4)] = 16,
    embedding: Annotated[int, Ge(1)] = 4,
    examples: Annotated[int, Ge(2)] = 32,
    clean_noise: Annotated[float, Interval(gt=0, lt=0.25)] = 0.01,
    noisy_noise: Annotated[float, Interval(gt=0, lt=0.25)] = 0.1,
    background: Annotated[float, Gt(0)] = 0.001,
    learning_rate: Annotated[float, Gt(0)] = 0.1,
) -> Arrays:
    """Train the toy of Figure 1 with a trainable head; test Theorem 5.1 with fixed isometric heads.

    `clean_noise`, `noisy_noise` and `background` are s1 < s2 and phi of the toy, which has
    `examples` of so many `classes` in `dimension` dimensions, at least two for a class.
    `embedding` is m, at most the number of examples.
    """
    require(dimension >= 2 * classes, "dimension", dimension, f"at least 2 * classes={2 * classes}")
    require(embedding <= examples, "embedding", embedding, f"at most examples={examples}")
    require(examples >= classes, "examples", examples, f"at least classes={classes}")
    louder = f"above clean_noise={clean_noise}"
    require(noisy_noise > clean_noise, "noisy_noise", noisy_noise, louder)
    toy = train_toy(
        shape=(at_scale(scale, tiny=8, default=16), examples, embedding, dimension, classes),
        deviations=(clean_noise, noisy_noise, background),
        learning_rate=learning_rate,
        steps=at_scale(scale, tiny=1200, default=5000),
        generator=generator,
    )
    return toy | theorem(
        heads=at_scale(scale, tiny=12, default=64),
        steps=at_scale(scale, tiny=300, default=1000),
        generator=generator,
    )
