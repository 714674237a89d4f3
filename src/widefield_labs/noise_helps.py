"""Noise on dominant features speeds the learning of the weak one.

Tamkin et al., "Feature Dropout" (2022), section 4, Theorem 4.1 and Appendix D.

K features with unit directions mu_k in R^d; here mu_k is the first axis, which loses nothing
because every law below is invariant under rotation of a feature's own space. A point U has rows
u_k ~ N(0, I); its view V has rows v_k of the same law, correlated with u_k along mu_k alone:

    mu_k.v_k = alpha_k mu_k.u_k + sqrt(1 - alpha_k^2) xi                                  (4.1)

Shapes: R trials, 2 arms (0 without, 1 with noise), m pairs in a batch, K features, d dimensions.
"""

import math
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt, Interval
from torch import Generator, Tensor

from widefield.core.validation import require
from widefield.methods.diet import index_cross_entropy
from widefield_labs.lab import Arrays, Check, Figure, Scale, at_least, at_most, at_scale, close

CORRELATION, NOISY_SHARE = 0.9, 0.3  # one step: every alpha_k, and what noise leaves of alpha_k'
FEATURES, DIMENSION, PAIRS = 3, 5, 8
RISE = 0.1  # of the weak feature's alignment; trials rise by 0.2 to 0.5 on average
GRADIENTS = 16  # that are compared with the library's
SMALL_STEP = 0.01


def correlated(u: Tensor, independent: Tensor, alpha: Tensor) -> Tensor:
    """Return views of `u` [..., m, K, d] by (4.1), with `independent` draws, alpha [..., 1, K]."""
    along = alpha * u[..., 0] + (1 - alpha**2).sqrt() * independent[..., 0]
    across = independent[..., 1:].expand(*along.shape, -1)
    return torch.cat([along.unsqueeze(-1), across], dim=-1)


def gradient(theta: Tensor, u: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient [..., K, d] of the contrastive loss, and P(correct pair) [...].

    z_ij = sum_k (theta_k.u_ik)(theta_k.v_jk), p = softmax_j z, loss = -mean_i log p_ii, so that
    dL/dz = (p - I)/m, and theta_k enters z through both of its scores (Lemma E.2).
    """
    fu = (u * theta.unsqueeze(-3)).sum(-1)
    fv = (v * theta.unsqueeze(-3)).sum(-1)
    p = torch.softmax(fu @ fv.mT, dim=-1)
    pairs = p.shape[-1]
    dz = (p - torch.eye(pairs, dtype=p.dtype)) / pairs
    du, dv = dz @ fv, dz.mT @ fu  # dL/d(theta_k.u_ik), dL/d(theta_k.v_jk)
    grad = (du.unsqueeze(-1) * u).sum(-3) + (dv.unsqueeze(-1) * v).sum(-3)
    return grad, p.diagonal(dim1=-2, dim2=-1).mean(-1)


def gradient_gap(generator: Generator) -> Tensor:
    """Return the largest relative gap between `gradient` and that of the library's cross-entropy.

    The loss is the cross-entropy of naming v_i among the v_j, and the head's rows are the f(v_j).
    """
    shape = (GRADIENTS, PAIRS, FEATURES, DIMENSION)
    u, v = torch.randn(2, *shape, generator=generator, dtype=torch.float64)
    theta = torch.randn(GRADIENTS, FEATURES, DIMENSION, generator=generator, dtype=u.dtype)
    theta.requires_grad_()
    fu, fv = ((points * theta.unsqueeze(1)).sum(-1) for points in (u, v))
    pair = torch.arange(PAIRS)
    losses = [
        index_cross_entropy(h, rows, pair, smoothing=0.0) for h, rows in zip(fu, fv, strict=True)
    ]
    (expected,) = torch.autograd.grad(torch.stack(losses).sum(), theta)
    gap = (gradient(theta.detach(), u, v)[0] - expected).flatten(1).norm(dim=1)
    return (gap / expected.flatten(1).norm(dim=1)).max()


def alignment(theta: Tensor) -> Tensor:
    """Return |theta_k.mu_k| / |theta_k| of each feature, [..., K]."""
    return theta[..., 0].abs() / torch.linalg.vector_norm(theta, dim=-1)


def trajectories(
    alpha: Tensor,
    *,
    pairs: int,
    dimension: int,
    step_size: float,
    noise_from: int,
    generator: Generator,
) -> Arrays:
    """Descend the gradient in both arms on the same draws (Appendix D).

    `alpha` [iterations, R, 2, K] holds the correlation at each iteration. Returns the alignment
    of the weak feature 0 and the mean of the dominant ones (iterations + 1 values), and P(correct).
    """
    _, trials, _, features = alpha.shape
    start = torch.randn(trials, 1, features, dimension, generator=generator)
    theta = (0.1 / math.sqrt(dimension) * start).expand(-1, 2, -1, -1)
    aligned, correct = [alignment(theta)], []
    for correlation in alpha:
        u = torch.randn(trials, 1, pairs, features, dimension, generator=generator)
        v = correlated(u, torch.randn(u.shape, generator=generator), correlation.unsqueeze(-2))
        grad, p = gradient(theta, u, v)
        theta = theta - step_size * grad
        aligned.append(alignment(theta))
        correct.append(p)
    curves = torch.stack(aligned)
    return {
        "weak_alignment": curves[..., 0].numpy(),
        "dominant_alignment": curves[..., 1:].mean(-1).numpy(),
        "correct": torch.stack(correct).numpy(),
        "noise_from": torch.tensor(noise_from).numpy(),
    }


def one_step(cells: Tensor, *, draws: int, generator: Generator) -> Tensor:
    """Return the change of feature 0's angle, with minus without noise on feature 1, over the step.

    `cells` [G, 5] = (|theta_k|, cos of theta_k, |theta_k'|, cos of theta_k', step size); the draws
    are shared by cells and arms. Returns [G, draws]; Theorem 4.1 says that its mean is <= 0.
    """
    norm_k, cos_k, norm_o, cos_o, step_size = cells.unbind(-1)
    theta = torch.zeros(len(cells), 1, FEATURES, DIMENSION, dtype=cells.dtype)
    norms = torch.stack([norm_k, *[norm_o] * (FEATURES - 1)], -1)
    cosines = torch.stack([cos_k, *[cos_o] * (FEATURES - 1)], -1)
    theta[..., 0] = (norms * cosines).unsqueeze(1)
    theta[..., 1] = (norms * (1 - cosines**2).sqrt()).unsqueeze(1)
    alpha = torch.full((1, FEATURES), CORRELATION, dtype=cells.dtype)
    noisy = alpha.clone()
    noisy[:, 1] *= NOISY_SHARE
    u, w = torch.randn(2, draws, PAIRS, FEATURES, DIMENSION, generator=generator).to(cells.dtype)
    clean_v, noisy_v = correlated(u, w, alpha), correlated(u, w, noisy)

    def change(row: Tensor, step: Tensor) -> Tensor:
        angles = [
            torch.acos(alignment(row - step * gradient(row, u, v)[0])[:, 0])
            for v in (clean_v, noisy_v)
        ]
        return (angles[1] - angles[0]) / step

    # One cell at a time: the draws are the long axis, and all cells at once would not fit.
    return torch.stack([change(row, step) for row, step in zip(theta, step_size, strict=True)])


def small_norm_slope(cells: Tensor) -> Tensor:
    """Return E of `one_step` to lowest order in the step size and in the norms, [G].

    Expanding p_ii = (1 + (1 - 1/m) a + ...)/m with a = sum_k alpha_k (mu_k.theta_k)^2, the angle
    phi moves by -2 step alpha_k cos(phi) sin(phi) (1 - 1/m)(1 - a/m), and noise on k' takes
    (1 - share) alpha_k' (mu_k'.theta_k')^2 out of a.
    """
    _, cos_k, norm_o, cos_o, _ = cells.unbind(-1)
    taken = (1 - NOISY_SHARE) * CORRELATION * (norm_o * cos_o) ** 2
    turn = 2 * CORRELATION * cos_k * (1 - cos_k**2).sqrt() * (1 - 1 / PAIRS)
    return -turn * taken / PAIRS


NORMS = (0.1, 0.3, 0.5, 1.0, 2.0, 4.0, 8.0)
COSINES = (0.3, 0.6, 0.9, 0.99, 0.999)
STEPS = (0.01, 0.03, 0.1, 0.3, 1.0)
CELLS: dict[str, tuple[tuple[float, ...], ...]] = {
    "norm": tuple((0.1, 0.5, norm, 0.7, SMALL_STEP) for norm in NORMS),
    "cosine": tuple((1.0, cosine, 1.0, 0.7, SMALL_STEP) for cosine in COSINES),
    "step": tuple((3.0, 0.9, 1.0, 0.9, step) for step in STEPS),
}
"""Families of cells of `one_step`: each leaves one of the theorem's conditions behind."""


def theorem(draws: int, generator: Generator) -> Arrays:
    """Return mean and 95 % half-width of `one_step` for every family of cells, and its slope."""
    arrays: Arrays = {"norms": np.array(NORMS), "cosines": np.array(COSINES)}
    arrays["steps"] = np.array(STEPS)
    for name, cells in ((name, torch.tensor(rows).double()) for name, rows in CELLS.items()):
        effect = one_step(cells, draws=draws, generator=generator)
        arrays[f"{name}_mean"] = effect.mean(-1).numpy()
        arrays[f"{name}_half_width"] = (1.96 * effect.std(-1) / math.sqrt(draws)).numpy()
        arrays[f"{name}_predicted"] = small_norm_slope(cells).numpy()
    return arrays


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test Figure 6, Lemma E.2 and Theorem 4.1."""
    weak, dominant, correct = (
        arrays[name] for name in ("weak_alignment", "dominant_alignment", "correct")
    )
    begin, rise = int(arrays["noise_from"]), weak[-1, :, 1] - weak[-1, :, 0]
    gained = weak[-1, arrays["main"]].mean(0) - weak[begin - 1, arrays["main"]].mean(0)
    drop = correct[begin, :, 1] / correct[begin - 1, :, 1]
    mean, half = arrays["norm_mean"], arrays["norm_half_width"]
    small = 1  # |theta_k'| = 0.3: norm^2 = 0.09 is the order of the terms left out
    predicted = arrays["norm_predicted"][small]
    return (
        at_most(
            "Lemma E.2: gradient against that of the library's cross-entropy (relative gap)",
            float(arrays["gradient_gap"]),
            1e-10,
        ),
        at_least(
            "noise raises the weak feature's final alignment (mean difference)",
            rise[arrays["main"]].mean(),
            RISE,
        ),
        at_least(
            "noise lowers the weak feature's final alignment in no trial (worst, difference)",
            rise.min(),
            0.0,
        ),
        at_most(
            "without noise the weak feature gains little more alignment from then on (mean)",
            gained[0],
            0.1,
        ),
        at_most(
            "noise costs the dominant features little of their alignment (worst trial, mean loss)",
            (dominant[-1, :, 0] - dominant[-1, :, 1]).max(),
            0.05,
        ),
        at_most("P(correct) after noise starts, over before (worst trial)", drop.max(), 0.5),
        at_most(
            "Theorem 4.1: upper end of the 95 % interval of the angle's change, |theta_k'| <= 1",
            (mean + half)[arrays["norms"] <= 1].max(),
            0.0,
        ),
        close(
            "Theorem 4.1: the change at |theta_k'| = 0.3 is the small-norm slope",
            mean[small],
            predicted,
            tolerance=2 * half[small] + 0.1 * abs(predicted),
        ),
        at_least(
            "boundary: a step of 1 on a well aligned feature reverses the sign (lower end)",
            (arrays["step_mean"] - arrays["step_half_width"])[-1],
            0.0,
        ),
    )


def notes(arrays: Arrays) -> tuple[str, ...]:
    """Say where the claims end."""
    mean, half = arrays["norm_mean"][-1], arrays["norm_half_width"][-1]
    aligned, aligned_half = arrays["cosine_mean"][-1], arrays["cosine_half_width"][-1]
    share = mean / arrays["norm_predicted"][-1]
    return (
        "Theorem 4.1 asks for small norms. Beyond them the sign stays, the effect saturates: at "
        f"|theta_k'| = {arrays['norms'][-1]:g} it is {mean:.4f} +- {half:.4f} rad per unit step, "
        f"{share:.1%} of what the small-norm slope would give.",
        "It asks for a feature that is not yet aligned. At cosine "
        f"{arrays['cosines'][-1]} the effect is {aligned:.4f} +- {aligned_half:.4f}: "
        f"{'still there' if aligned + aligned_half < 0 else 'not statistically significant'}.",
        "It needs its 'small enough step': with cos 0.9 already and a step of 1, the "
        f"noisy batch turns the feature away by {arrays['step_mean'][-1]:.4f} rad per unit step.",
        "If theta_k' is orthogonal to mu_k', noise on k' changes nothing at all.",
    )


def draw(arrays: Arrays, figure: Figure) -> None:
    """Draw alignment and P(correct) over training; the one-step effect over norm and step size."""
    figure.set_size_inches(9, 6)
    (top_left, top_right), (low_left, low_right) = figure.subplots(2, 2)
    arms, main = ("without noise", "with noise"), arrays["main"]
    for name, marker in (("weak", "o"), ("dominant", "s")):
        for arm, label in enumerate(arms):
            curve = arrays[f"{name}_alignment"][:, main, arm].mean(1)
            top_left.plot(curve, label=f"{name}, {label}", marker=marker, markevery=25, ms=4)
    for arm, label in enumerate(arms):
        top_right.plot(arrays["correct"][:, main, arm].mean(1), label=label)
    for axes in (top_left, top_right):
        axes.axvline(arrays["noise_from"], color="0.4", lw=0.8)
        axes.set(xlabel="iteration (gray line: noise starts)", ylim=(0, 1.05))
    top_left.set(ylabel="alignment |θ·μ| / |θ|", title="The weak feature is learned faster ...")
    top_right.set(ylabel="P(correct pair)", title="... because the task becomes hard")
    bar = {"fmt": "o", "ms": 4, "capsize": 3, "ls": "none", "label": "measured, 95 %"}
    low_left.errorbar(arrays["norms"], -arrays["norm_mean"], arrays["norm_half_width"], **bar)
    low_left.plot(arrays["norms"], -arrays["norm_predicted"], label="small-norm slope")
    low_left.set(xscale="log", yscale="log", xlabel="|θ_k'| of the noised feature")
    low_left.set(ylabel="angle gained [rad per unit step]", title="One step (Theorem 4.1)")
    low_right.errorbar(arrays["steps"], -arrays["step_mean"], arrays["step_half_width"], **bar)
    low_right.axhline(0, color="0.4", lw=0.8)
    low_right.set(xscale="log", xlabel="step size")
    low_right.set(ylabel="angle gained [rad per unit step]", title="Large steps reverse it")


def measure(
    *,
    scale: Scale,
    generator: Generator,
    weak: Annotated[float, Interval(ge=0, le=1)] = 0.3,
    dominant: Annotated[float, Interval(ge=0, le=1)] = 0.95,
    noisy: Annotated[float, Interval(ge=0, le=1)] = 0.3,
    dominant_features: Annotated[int, Ge(1)] = 50,
    dimension: Annotated[int, Ge(2)] = 20,
    step_size: Annotated[float, Gt(0)] = 0.2,
    iterations: Annotated[int, Ge(2)] = 150,
    noise_from: Annotated[int, Ge(1)] = 50,
) -> Arrays:
    """Train on one weak and many dominant features, with and without noise on the dominant ones.

    `weak`, `dominant` and `noisy` are correlations alpha: of the weak feature, of the
    `dominant_features`, and of these under noise, which starts at iteration `noise_from` of
    `iterations`. A feature has `dimension` dimensions.
    """
    require(noisy < dominant, "noisy", noisy, f"below dominant={dominant}")
    require(noise_from < iterations, "noise_from", noise_from, f"below iterations={iterations}")
    others = at_scale(scale, tiny=[], default=[0.1, 0.1, 0.2, 0.2, 0.5, 0.5])
    main = at_scale(scale, tiny=3, default=4)
    weak_alpha = torch.tensor([weak] * main + others)
    alpha = torch.full((iterations, len(weak_alpha), 2, dominant_features + 1), dominant)
    alpha[noise_from:, :, 1] = noisy
    alpha[..., 0] = weak_alpha.unsqueeze(-1)
    curves = trajectories(
        alpha,
        pairs=at_scale(scale, tiny=64, default=256),
        dimension=dimension,
        step_size=step_size,
        noise_from=noise_from,
        generator=generator,
    )
    return {
        **curves,
        "weak_alpha": weak_alpha.numpy(),
        "main": (torch.arange(len(weak_alpha)) < main).numpy(),
        **theorem(at_scale(scale, tiny=5_000, default=20_000), generator),
        "gradient_gap": gradient_gap(generator).numpy(),
    }
