"""Power iteration converges to a point near each latent feature, at a geometric rate.

Tian, "Understanding the role of nonlinearity in training dynamics of contrastive learning" (2022),
Appendix B.5, Theorem 3 and Lemmas 4 to 8, and Figure 1 (right).

The data are x = U y + sigma xi with xi ~ N(0, I), y standardized Bernoulli(q), and the columns u_m
of U only nearly orthogonal. Then no u_m is an exact eigenvector of A(u_m), yet from it

    w(t+1) = A(w(t)) w(t) / |A(w(t)) w(t)|                                                     (94)

reaches one close by. With c = w.phi_1(A(w)), the eigenvalues lambda_1 > lambda_2 of A(w) and their
gap g, let L be a Lipschitz constant of A and kappa that of Lemma 6. The irregularity is

    mu    = (1 + c)/(2 c^2) (lambda_2/lambda_1)^2
    omega = mu + 2 kappa L^2 (1 + mu c) + 2 L/g sqrt(mu (1 + mu c))                            (95)

If omega <= gamma < 1 on B_gamma, the ball of radius sqrt(2 (1 + gamma)(1 - c_0))/(1 - sqrt(gamma))
around w(0), then w(t) stays in B_gamma, converges there, and 1 - c_t <= gamma^t (1 - c_0).

The paper asserts that kappa exists; we supply one. For |dA| <= e < g the resolvent of A + dA on the
complement of phi_1 is at most r = 1/(g - e), and expanding phi_1' to second order leaves at most
kappa e^2 with kappa^2 = (sqrt(2) r^2 + r/g)^2 + r^4. Along the path e = L |w(t+1) - w(t)| is at
most L sqrt(2 (1 + gamma)(1 - c_0)), by Lemma 5.

Everything is exact: the noise is integrated in closed form over each of the 2^M values of y.

Shapes: J tilts of U, T trials, S noise levels, M features (one start u_m each), G values of gamma,
P points of a sphere, I iterations, n = 2^M atoms, d dimensions.
"""

import math
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Gt, Interval
from numpy.typing import NDArray
from torch import Generator, Tensor
from torch.nn.functional import normalize

from widefield.core.validation import require
from widefield_labs.lab import Arrays, Check, Figure, Scale, at_least, at_most, at_scale, close
from widefield_labs.one_layer import CRITICAL_RATE, smooth_covariance, summation

TILTS = (0.25, 0.5, 1.0, 2.0)  # times the tilt asked for
ITERATIONS = 60
FLOOR = 1e-26  # of 1 - c, which float64 knows to about 1e-30
GAMMAS = torch.linspace(0.02, 0.98, 49, dtype=torch.float64)
DIFFERENCE = 1e-5  # of w, in central differences of A
POINTS = 2  # random ones on each of the nested spheres that sample a ball
EDGES = 2  # as many atoms, those nearest to w.x = 0, where A is steepest


def nearly_orthogonal(
    tilts: Tensor, trials: int, dimension: int, features: int, *, generator: Generator
) -> Tensor:
    """Draw unit columns [J, T, d, M]: orthonormal ones plus each tilt times normal noise."""
    shape = (2, len(tilts), trials, dimension, features)
    raw, noise = torch.randn(shape, generator=generator, dtype=tilts.dtype)
    return normalize(torch.linalg.qr(raw).Q + tilts[:, None, None, None] * noise, dim=-2)


def roughest(w: Tensor, atoms: Tensor, p: Tensor, noise: Tensor) -> Tensor:
    """Return a bound on |dA|/|dw| at `w`, [...]: the norm of [dA/dw_1 ... dA/dw_d] side by side."""
    shift = DIFFERENCE * torch.eye(w.shape[-1], dtype=w.dtype)
    ahead, behind = (
        smooth_covariance(w.unsqueeze(-2) + by, atoms.unsqueeze(-3), p, noise.unsqueeze(-1))
        for by in (shift, -shift)
    )
    slopes = (ahead - behind) / (2 * DIFFERENCE)
    return torch.linalg.matrix_norm(slopes.transpose(-3, -2).flatten(-2), 2)


def spectrum(a: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return 1 - c, lambda_1 and lambda_2 of A(w); |w - phi_1|^2/2 keeps the digits of 1 - c."""
    values, vectors = torch.linalg.eigh(a)
    top = vectors[..., -1]
    top = top * torch.sign((top * w).sum(-1, keepdim=True))
    return (w - top).square().sum(-1) / 2, values[..., -1], values[..., -2]


def eigenvector_bound(gap: Tensor, change: Tensor) -> Tensor:
    """Return kappa of Lemma 6 for |dA| <= `change` < `gap`; infinite where change >= gap."""
    r = 1 / (gap - change)
    kappa = torch.hypot(math.sqrt(2) * r**2 + r / gap, r**2)
    return torch.where(change < gap, kappa, math.inf)


def irregularity(
    miss: Tensor, top: Tensor, second: Tensor, lipschitz: Tensor, largest_step: Tensor
) -> Tensor:
    """Return omega (95) from 1 - c, the eigenvalues, L and the largest step; mu where L = 0."""
    c, gap = 1 - miss, top - second
    mu = (1 + c) / (2 * c**2) * (second / top) ** 2
    curved = eigenvector_bound(gap, lipschitz * largest_step) * lipschitz**2
    stretch = 1 + mu * c
    return mu + 2 * curved * stretch + 2 * lipschitz / gap * (mu * stretch).sqrt()


def radius(gamma: Tensor, miss: Tensor) -> Tensor:
    """Return the radius of B_gamma, from 1 - c_0."""
    return (2 * (1 + gamma) * miss).sqrt() / (1 - gamma.sqrt())


def find_gamma(
    w: Tensor, atoms: Tensor, p: Tensor, noise: Tensor, *, points: int, generator: Generator
) -> Tensor:
    """Return the smallest gamma of a grid with omega <= gamma on B_gamma, [...]; else infinity.

    A supremum over a ball is taken over points on its surface and on that of every smaller ball of
    the grid: `points` random ones, and those that come nearest to an atom's plane w.x = 0.
    """
    miss, _, _ = spectrum(smooth_covariance(w, atoms, p, noise), w)
    size = radius(GAMMAS, miss.unsqueeze(-1))
    shape = (*size.shape, points, w.shape[-1])
    away = normalize(torch.randn(shape, generator=generator, dtype=w.dtype), dim=-1)
    ball = torch.cat([size[..., None, None] * away, towards_edges(w, atoms, size)], dim=-2)
    ball = normalize(w[..., None, None, :] + ball, dim=-1)
    all_atoms, level = atoms[..., None, None, :, :], noise[..., None, None]
    # Larger balls hold the smaller ones, so that a supremum is a running maximum over the grid.
    lipschitz = roughest(ball, all_atoms, p, level).amax(-1).cummax(-1).values
    # A path of the sphere between two points of the ball is longer than their distance.
    angle = 2 * torch.asin((size / 2).clamp(1e-9, 1))
    lipschitz = lipschitz * angle / torch.sin(angle.clamp_max(math.pi / 2))
    step = (2 * (1 + GAMMAS) * miss.unsqueeze(-1)).sqrt()
    omega = irregularity(
        *spectrum(smooth_covariance(ball, all_atoms, p, level), ball),
        lipschitz.unsqueeze(-1),
        step.unsqueeze(-1),
    )
    worst = omega.amax(-1).cummax(-1).values
    covered = torch.logical_and(worst <= GAMMAS, jump_free(w, atoms, noise, size))
    return torch.where(covered, GAMMAS, math.inf).amin(-1)


def towards_edges(w: Tensor, atoms: Tensor, size: Tensor) -> Tensor:
    """Return steps [..., G, EDGES, d] of at most `size` [..., G] to the nearest atoms' planes."""
    unit = normalize(atoms, dim=-1)
    score = (unit @ w.unsqueeze(-1)).squeeze(-1)
    nearest = score.abs().topk(EDGES, largest=False).indices
    unit = unit.gather(-2, nearest.unsqueeze(-1).expand(*nearest.shape, w.shape[-1]))
    score = score.gather(-1, nearest).unsqueeze(-2)
    length = torch.minimum(score.abs(), size.unsqueeze(-1))
    return -(torch.sign(score) * length).unsqueeze(-1) * unit.unsqueeze(-3)


def jump_free(w: Tensor, atoms: Tensor, noise: Tensor, size: Tensor) -> Tensor:
    """Return whether A is continuous on balls of `size` [..., G] around `w`: [..., G].

    With noise always; without, if no atom changes sides of w.x = 0 within the ball.
    """
    distance = (atoms @ w.unsqueeze(-1)).squeeze(-1).abs()
    reach = (distance / torch.linalg.vector_norm(atoms, dim=-1)).amin(-1, keepdim=True)
    return torch.logical_or(noise.unsqueeze(-1) > 0, reach > size)


def iterate(w: Tensor, atoms: Tensor, p: Tensor, noise: Tensor) -> Arrays:
    """Follow (94) from `w` [..., d]: points [I, ..., d], 1 - c_t, lambda_2/lambda_1 [I, ...]."""
    points, misses, ratios = [], [], []
    for _ in range(ITERATIONS):
        a = smooth_covariance(w, atoms, p, noise)
        miss, top, second = spectrum(a, w)
        points.append(w)
        misses.append(miss)
        ratios.append(second / top)
        w = normalize((a @ w.unsqueeze(-1)).squeeze(-1), dim=-1)
    return {
        "points": torch.stack(points).numpy(),
        "miss": torch.stack(misses).numpy(),
        "ratio": torch.stack(ratios).numpy(),
    }


def discrepancies(points: NDArray[Any]) -> Any:
    """Return |w(t+1) - w(t)| of the points [I, ..., d] of a path, [I - 1, ...]."""
    return np.linalg.norm(np.diff(points, axis=0), axis=-1)


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test Theorem 3 and Figure 1."""
    gamma, miss = arrays["gamma"], arrays["miss"]
    covered = np.isfinite(gamma)
    gamma, miss, points = gamma[covered], miss[:, covered], arrays["points"][:, covered]
    steps, t = discrepancies(points), np.arange(len(miss))[:, None]
    bound = gamma**t * miss[0]
    measurable = (bound > FLOOR) & (t > 0)
    exact = miss[1:] > FLOOR  # where both are known; rounding is 1e-4 of the smaller
    step_bound = np.sqrt(2 * (1 + gamma) * bound[:-1])
    ball = np.sqrt(2 * (1 + gamma) * miss[0]) / (1 - np.sqrt(gamma))
    distance = np.linalg.norm(points - points[0], axis=-1)
    eigenvalues = np.broadcast_to(arrays["ratio"][-1, covered], steps[1:].shape)
    noiseless = np.broadcast_to(arrays["noise"][:, None] == 0, covered.shape)[covered]
    # A factor of steps above 1e-11 is known to 1e-5: rounding moves a point by 1e-16.
    late = (steps[:-1] < 1e-5) & (steps[1:] > 1e-11) & noiseless
    return (
        at_least("starts to which Theorem 3 applies", covered.sum(), 1),
        at_most(
            "1 - c_t over its bound gamma^t (1 - c_0) (worst start and iteration)",
            (miss[measurable] / bound[measurable]).max(initial=0),
            1.0,
        ),
        at_most(
            "1 - c_(t+1) over gamma (1 - c_t) (worst start and iteration)",
            (miss[1:] / (gamma * miss[:-1].clip(FLOOR)))[exact].max(initial=0),
            1.0,
        ),
        at_most(
            "|w(t+1) - w(t)| over its bound, eq. 127 (worst start and iteration)",
            (steps[measurable[:-1]] / step_bound[measurable[:-1]]).max(initial=0),
            1.0,
        ),
        at_most(
            "distance from the start over the radius of B_gamma (worst start and iteration)",
            (distance / ball).max(initial=0),
            1.0,
        ),
        at_most(
            "without noise: late factor of |w(t+1) - w(t)| over lambda_2/lambda_1 (worst start)",
            (steps[1:][late] / steps[:-1][late] / eigenvalues[late]).max(initial=0),
            1.0,
            tolerance=1e-4,
        ),
        close(
            "starts at u_m that end nearer to another feature",
            (arrays["nearest"][covered] != np.nonzero(covered)[-1]).sum(),
            0,
        ),
    )


def notes(arrays: Arrays) -> tuple[str, ...]:
    """Say where the claims end."""
    covered = np.isfinite(arrays["gamma"])
    steps = discrepancies(arrays["points"])
    settled = steps[-1] < np.maximum(1e-9, steps[len(steps) // 2] / 2)
    kinks = ~settled[:, :, arrays["noise"] == 0]
    return (
        "Appendix B.5 asks for one Lipschitz constant of A on the whole sphere. Without noise the "
        "data are discrete, A jumps and there is none; the proof only needs one on B_gamma.",
        f"The theorem is sufficient, not necessary: it applies to {covered.mean():.0%} of these "
        f"starts; of the other {(~covered).sum()}, {(settled & ~covered).sum()} converge as well.",
        "Without noise a start can also alternate for ever across a kink, where an atom changes "
        "sides, A jumps and (94) has no fixed point: "
        f"{kinks.sum()} of {kinks.size} starts here, more at a larger tilt.",
        f"Suprema over B_gamma are over {len(GAMMAS)} x {POINTS + EDGES} points: random ones, and "
        "those nearest to where an atom changes sides.",
    )


def draw(arrays: Arrays, figure: Figure) -> None:
    """Draw one trial's steps without noise, 1 - c_t with its bound, where the theorem applies."""
    left, middle, right = figure.subplots(1, 3)
    tilts, noise = arrays["tilts"], arrays["noise"]
    steps = discrepancies(arrays["points"])
    for index, marker in zip(range(len(tilts) - 1), "os^", strict=False):
        curves = steps[:, index, 0, 0].clip(1e-17)
        left.plot(curves[:, 0], marker=marker, ms=3, lw=1, label=f"tilt {tilts[index]:g}")
        left.plot(curves[:, 1:], color=left.lines[-1].get_color(), lw=0.6, ls="-")
    left.set(yscale="log", xlabel="iteration t", ylabel="|w(t+1) − w(t)|", xlim=(0, 35))
    left.set_title("From each u_m, without noise")
    gamma, miss = arrays["gamma"][0, 0, :, 0], arrays["miss"][:, 0, 0, :, 0]
    finite = np.flatnonzero(np.isfinite(gamma))
    ends = sorted({finite[0], finite[-1]}) if len(finite) else [0]
    for level, marker, style in zip(ends, "os", ("-", "--"), strict=False):
        line = middle.plot(miss[:, level], marker, ms=4, label=f"noise {noise[level]:g}")[0]
        if level in finite:
            bound = gamma[level] ** np.arange(len(miss)) * miss[0, level]
            label = f"bound, γ = {gamma[level]:.2f}"
            middle.plot(bound, color=line.get_color(), ls=style, label=label)
    middle.set(yscale="log", xlabel="iteration t", ylabel="1 − c_t", xlim=(0, 35), ylim=(1e-32, 1))
    middle.set_title(f"Geometric rate, tilt {tilts[0]:g}")
    applies = np.isfinite(arrays["gamma"]).mean((1, 3))
    for row, tilt, marker in zip(applies, tilts, "os^v", strict=False):
        right.plot(noise, row, marker=marker, ms=4, label=f"tilt {tilt:g}")
    right.set(xlabel="noise σ of the data", ylabel="share of starts", ylim=(-0.02, 1.02))
    right.set_title("Where Theorem 3 applies")


def measure(
    *,
    scale: Scale,
    generator: Generator,
    features: Annotated[int, Interval(ge=2, le=7)] = 5,
    dimension: Annotated[int, Ge(2)] = 6,
    rate: Annotated[float, Interval(gt=0, lt=CRITICAL_RATE)] = 0.2,
    tilt: Annotated[float, Interval(gt=0, le=0.1)] = 0.02,
    noise: Annotated[float, Gt(0)] = 0.2,
) -> Arrays:
    """Iterate from every u_m of summation models whose U is nearly orthogonal.

    `features` fire with probability `rate` in `dimension` dimensions, at least as many as features.
    The columns of U deviate from orthonormal ones by a quarter of `tilt` up to twice as much per
    entry. The noise of the data runs from 0 to `noise`. Above a rate of about 0.3 the eigengap is
    so small that the theorem is silent on every start, and the lab says `fails`.
    """
    require(dimension >= features, "dimension", dimension, f"at least features={features}")
    tilts = tilt * torch.tensor(TILTS, dtype=torch.float64)
    levels = torch.linspace(0, noise, at_scale(scale, tiny=3, default=9), dtype=torch.float64)
    trials = at_scale(scale, tiny=1, default=2)
    u = nearly_orthogonal(tilts, trials, dimension, features, generator=generator)
    y, p = summation(torch.full((features,), rate, dtype=torch.float64))
    lead = (len(tilts), trials, len(levels), features)
    atoms = (y @ u.mT)[:, :, None, None].expand(*lead, -1, -1)
    starts = u.mT.unsqueeze(2).expand(*lead, -1)
    level = levels.unsqueeze(-1).expand(lead)
    arrays = {
        "tilts": tilts.numpy(),
        "noise": levels.numpy(),
        "gamma": find_gamma(starts, atoms, p, level, points=POINTS, generator=generator).numpy(),
        **iterate(starts, atoms, p, level),
    }
    ends = torch.from_numpy(arrays["points"][-1])
    return {**arrays, "nearest": (ends @ u.unsqueeze(2)).argmax(-1).numpy()}
