"""Every row of a linear net learns the same feature; ReLU rows share the features among them.

Tian, "Understanding the role of nonlinearity in training dynamics of contrastive learning" (2022),
section 3 (eq. 5) and, for the latent summation model, Appendix B.1.

The rows w_k of a one-layer net f_k = h(w_k.x), |w_k| = 1, maximize C_alpha[h(w_k.x)] one by one.
Linear rows maximize the same w^T C_alpha[x] w, a quadratic form with one maximum (up to sign): the
top eigenvector of C_alpha[x], whatever the width, the start and the pair weights alpha.

Which features other rows can learn follows from A(w) = C_alpha[x h'(w.x)]. Let x be the sum of the
s_m y_m u_m with y_m standardized Bernoulli(q), independent, and let h be LeakyReLU of slope a.
Then, as in the paper's own case a = 0, s = 1 (eq. 35),

    A(u_m) = (1 - q + a q)^2 s_m^2 u_m u_m^T + (q + a^2 (1 - q)) sum_{l != m} s_l^2 u_l u_l^T

so u_m is a locally maximal eigenvector if and only if

    s_m / max_{l != m} s_l  >  sqrt(q + a^2 (1 - q)) / (1 - q + a q)                           (*)

The right side rises from sqrt(q)/(1 - q) for ReLU to 1 for a linear net: nonlinearity is what lets
a weak feature be learned beside a strong one, and only if the features are sparse.

Shapes: T data sets, N pairs, d dimensions, M features, R rows, K rows of a net, L slopes.
"""

import math
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt, Interval
from torch import Generator, Tensor
from torch.nn.functional import normalize

from widefield.core.validation import require
from widefield_labs.lab import Arrays, Check, Figure, Scale, at_least, at_most, at_scale, close
from widefield_labs.one_layer import ascend, summation
from widefield_labs.pair_weights import contrastive_covariance, gaussian_weights

NEAR = 0.9999  # cosine of a learned feature; optima at kinks, beside u_m, stay below it
WIDTHS = (1, 2, 4, 8, 16, 32, 64)
SPREADS = (0.3, 1.0, math.inf)
STEPS = 200
DOUBLINGS = 24  # linear rows take 2^24 steps, enough for eigenvalues that differ by 1e-5
MARGIN = 1.03  # features within 3 % of the boundary (*) move too slowly to be judged
NUDGE = 1e-3


def scales(features: int, weakest: float) -> Tensor:
    """Return the deviations s_m of the features, from 1 down to `weakest` in even steps, [M]."""
    return torch.linspace(1.0, weakest, features, dtype=torch.float64)


def threshold(rate: float, slope: Tensor) -> Tensor:
    """Return the right side of (*): how strong a feature must be beside the strongest other one."""
    return (rate + slope**2 * (1 - rate)).sqrt() / (1 - rate + slope * rate)


def strength(s: Tensor) -> Tensor:
    """Return the left side of (*): each feature's scale over the largest of the others', [M]."""
    others = s.expand(len(s), -1).masked_fill(torch.eye(len(s), dtype=torch.bool), 0)
    return s / others.amax(-1)


def linear_rows(
    s: Tensor,
    rate: float,
    *,
    sets: int,
    pairs: int,
    dimension: int,
    noise: float,
    temperature: float,
    rows: int,
    generator: Generator,
) -> Arrays:
    """Train linear rows on `sets` finite data sets with noisy views and Gaussian pair weights.

    Returns |cos| of every row to the top eigenvector of its set's C_alpha[x], and C's eigenvalues.
    """
    draws = torch.rand(sets, pairs, len(s), generator=generator, dtype=s.dtype)
    y = torch.where(draws < rate, math.sqrt((1 - rate) / rate), -math.sqrt(rate / (1 - rate)))
    basis = torch.linalg.qr(
        torch.randn(sets, dimension, len(s), generator=generator, dtype=s.dtype)
    ).Q
    x0 = (s * y) @ basis.mT
    shape = (2, sets, pairs, dimension)
    x1, x2 = x0 + noise * torch.randn(shape, generator=generator, dtype=s.dtype)
    c = contrastive_covariance(x1, x2, gaussian_weights(x0, temperature))
    values, vectors = torch.linalg.eigh(c)
    w = normalize(torch.randn(sets, rows, dimension, generator=generator, dtype=s.dtype), dim=-1)
    # A linear step is the same matrix every time, so that 2^k steps are its k-th squaring.
    step = torch.eye(dimension, dtype=s.dtype) + c / values.abs().amax(-1)[:, None, None]
    for _ in range(DOUBLINGS):
        step = step @ step
        step = step / step.abs().amax((-2, -1), keepdim=True)
    ends = normalize(w @ step, dim=-1)
    return {
        "linear_cosine": (ends @ vectors[..., -1:]).squeeze(-1).abs().numpy(),
        "eigenvalues": values.numpy(),
    }


def starts(
    spread: float, rows: int, features: int, *, generator: Generator, dtype: torch.dtype
) -> Tensor:
    """Draw unit rows [R, M] around one direction: anchor + spread * N(0, I/M), normalized.

    An infinite spread is the whole sphere.
    """
    anchor = normalize(torch.randn(features, generator=generator, dtype=dtype), dim=0)
    scatter = torch.randn(rows, features, generator=generator, dtype=dtype) / math.sqrt(features)
    return normalize(scatter if math.isinf(spread) else anchor + spread * scatter, dim=-1)


def learned(w: Tensor) -> Tensor:
    """Return which feature each row [..., R, M] has learned, one-hot; all zero for none."""
    return (w.abs() > NEAR).to(w.dtype)


def distinct(hits: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return the mean number of distinct features among K rows, and its error, for each K, [W].

    `hits` [R, M] is cut into R/K groups, as rows are independent (eq. 5).
    """
    means, errors = [], []
    for width in widths:
        groups = hits.view(-1, width, hits.shape[-1]).amax(1)
        means.append(groups.sum(-1).mean())
        errors.append(groups.var(0).sum().sqrt() / math.sqrt(len(groups)))
    return torch.stack(means), torch.stack(errors)


def collected(hits: Tensor, widths: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Predict `distinct` from the shares b_m of the basins alone: sum_m 1 - (1 - b_m)^K.

    The shares are estimated from other rows, `hits` [R, M]; the error is that of the estimate.
    """
    count = len(hits)
    share = (hits.sum(0) + 0.5) / (count + 1)
    k = torch.tensor(widths, dtype=hits.dtype).unsqueeze(-1)
    slope = k * (1 - share) ** (k - 1)
    variance = slope.square() * share * (1 - share) / count
    return (1 - (1 - share) ** k).sum(-1), variance.sum(-1).sqrt()


def width_curves(s: Tensor, rate: float, *, rows: int, generator: Generator) -> Arrays:
    """Count the features that ReLU nets learn, over width and spread of the start: [spreads, W]."""
    y, p = summation(torch.full_like(s, rate))
    w = torch.stack(
        [starts(spread, rows, len(s), generator=generator, dtype=s.dtype) for spread in SPREADS]
    )
    hits = learned(ascend(w, s * y, p, steps=STEPS, step_size=1.0))
    half = rows // 2
    measured = [distinct(start[:half], WIDTHS) for start in hits]
    predicted = [collected(start[half:], WIDTHS) for start in hits]
    names = ("distinct", "distinct_error", "collected", "collected_error")
    columns = [*zip(*measured, strict=True), *zip(*predicted, strict=True)]
    return {name: torch.stack(c).numpy() for name, c in zip(names, columns, strict=True)}


def slope_sweep(
    s: Tensor, rate: float, slopes: Tensor, *, rows: int, generator: Generator
) -> Arrays:
    """Find what is stable and what is learned, over the slope of LeakyReLU: [L, M] booleans.

    `stays`: rows nudged off u_m return. `reached`: some row from a random start ends at u_m.
    """
    y, p = summation(torch.full_like(s, rate))
    features, lead = len(s), (len(slopes), 1, 1)
    axes = torch.eye(features, dtype=s.dtype)
    nudged = normalize(
        axes + NUDGE * torch.randn(len(slopes), 4, features, features, generator=generator), dim=-1
    )
    random = torch.randn(len(slopes), rows, features, generator=generator, dtype=s.dtype)
    w = torch.cat([nudged.flatten(1, 2), normalize(random, dim=-1)], dim=1)
    hits = learned(ascend(w, s * y, p, steps=STEPS, step_size=1.0, slope=slopes.view(lead)))
    back = hits[:, : 4 * features].reshape(len(slopes), 4, features, features)
    back = back.diagonal(dim1=-2, dim2=-1)
    return {
        "stays": (back.mean(1) > 0.5).numpy(),
        "reached": hits[:, 4 * features :].bool().any(1).numpy(),
    }


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test section 3, (*) and the independence of rows."""
    ratio = arrays["strength"] / arrays["threshold"][:, None]
    clear = (ratio > MARGIN) | (ratio < 1 / MARGIN)
    error = np.hypot(arrays["distinct_error"], arrays["collected_error"])
    score = (arrays["distinct"] - arrays["collected"]) / error
    return (
        at_least(
            "|cos| of a linear row to the top eigenvector of C_alpha[x] (worst row and data set)",
            arrays["linear_cosine"].min(),
            1 - 1e-9,
        ),
        close("features that linear rows from random starts learn", arrays["reached"][-1].sum(), 1),
        close(
            "features that ReLU rows from random starts learn, as many as (*) allows",
            (clear & arrays["reached"])[0].sum(),
            (clear & (ratio > 1))[0].sum(),
        ),
        close(
            "features that are stable against (*) or unstable despite it, over all slopes",
            (clear & (arrays["stays"] != (ratio > 1))).sum(),
            0,
        ),
        at_most(
            "distinct features over width and start minus what independent rows collect "
            "(worst, standard errors)",
            abs(score).max(),
            5.0,
        ),
        at_most(
            "features that a net gains when its rows start close together, at the largest width",
            arrays["distinct"][0, -1] - arrays["distinct"][-1, -1],
            0.0,
            tolerance=4 * np.hypot(error[0, -1], error[-1, -1]),
        ),
        close(
            "boundary: how far a linear row moves when all features are equally strong",
            float(arrays["equal_scale_movement"]),
            0.0,
            tolerance=1e-9,
        ),
    )


def notes(arrays: Arrays) -> tuple[str, ...]:
    """Say where the claims end."""
    ratio = arrays["strength"] / arrays["threshold"][:, None]
    lost = int((ratio[0] <= 1).sum())
    negative = (-arrays["eigenvalues"][:, 0] / arrays["eigenvalues"][:, -1]).max()
    return (
        "The linear claim needs a distinct top eigenvalue: with equally strong features C_alpha[x] "
        "is a multiple of the identity, every direction is a fixed point, and nothing is learned.",
        "Top means most positive: with noisy views C_alpha of a finite batch has negative "
        f"eigenvalues, here up to {negative:.0%} of the top one in size.",
        "Just below (*) rows can still stop beside u_m, at a kink of A(w); not counted as learned.",
        f"ReLU is not a license to learn everything: {lost} of {len(ratio[0])} features lie below "
        "the boundary (*), and no width and no start learns them.",
    )


def draw(arrays: Arrays, figure: Figure) -> None:
    """Draw distinct features over the width, and features learned over the slope."""
    left, right = figure.subplots(1, 2)
    labels = ("rows start close together", "rows start apart", "rows start anywhere")
    for row, (label, marker) in enumerate(zip(labels, "o^s", strict=True)):
        bar = 4 * arrays["distinct_error"][row]
        points = left.errorbar(
            WIDTHS,
            arrays["distinct"][row],
            bar,
            fmt=marker,
            ms=5,
            ls="none",
            label=f"ReLU, {label}",
        )
        left.plot(WIDTHS, arrays["collected"][row], color=points[0].get_color(), ls="-", lw=1)
    linear = np.full(len(WIDTHS), arrays["reached"][-1].sum())
    left.plot(WIDTHS, linear, color="0.2", ls="--", marker="x", label="linear")
    left.set_xscale("log", base=2)
    left.set(xticks=WIDTHS, xticklabels=[str(width) for width in WIDTHS])
    left.set(
        xlabel="width [rows] (lines: predicted from basins)", ylabel="distinct features learned"
    )
    left.set_title("Width and start")
    slopes, strength = arrays["slopes"], arrays["scales"]
    fine = torch.linspace(0, 1, 200, dtype=torch.float64)
    boundary = threshold(float(arrays["rate"]), fine)
    right.plot(fine, boundary, color="0.2", ls="-", label="prediction")
    grid_x, grid_y = np.meshgrid(slopes, strength, indexing="ij")
    for mask, marker, label in (
        (arrays["reached"], "o", "learned by some row"),
        (~arrays["reached"], "x", "learned by none"),
    ):
        right.plot(grid_x[mask], grid_y[mask], marker, ms=4, ls="none", label=label)
    right.set(xlabel="slope of LeakyReLU (0: ReLU, 1: linear)", ylabel="scale s of the feature")
    right.set(ylim=(0, 1.08), title="From ReLU to linear, weak features are lost")
    right.legend(fontsize=7, loc="lower right", ncols=3)


def measure(
    *,
    scale: Scale,
    generator: Generator,
    features: Annotated[int, Interval(ge=2, le=8)] = 6,
    rate: Annotated[float, Interval(ge=0.01, le=0.3)] = 0.1,
    weakest: Annotated[float, Interval(gt=0, le=0.8)] = 0.25,
    dimension: Annotated[int, Ge(2)] = 16,
    pairs: Annotated[int, Ge(2)] = 256,
    noise: Annotated[float, Ge(0)] = 0.3,
    temperature: Annotated[float, Gt(0)] = 2.0,
) -> Arrays:
    """Train linear and ReLU rows on sparse features of falling strength.

    Each of the `features` fires with probability `rate`; their scales fall from 1 to `weakest`.
    A rate below 0.01 would bring atoms so near to w.x = 0 that a nudge moves them across; scales
    nearer to each other than 0.8 allows would leave linear rows on their way when they are judged.
    Linear rows also see finite data sets: `pairs` pairs of views with `noise` in `dimension`
    dimensions, at least as many as features, with Gaussian pair weights of `temperature`.
    """
    require(dimension >= features, "dimension", dimension, f"at least features={features}")
    s = scales(features, weakest)
    slopes = torch.linspace(0, 1, at_scale(scale, tiny=9, default=21), dtype=torch.float64)
    y, p = summation(torch.full_like(s, rate))
    still = starts(math.inf, 64, features, generator=generator, dtype=s.dtype)
    moved = ascend(still, y, p, steps=STEPS, step_size=1.0, slope=1.0)
    return {
        "scales": s.numpy(),
        "rate": np.array(rate),
        "slopes": slopes.numpy(),
        "strength": strength(s).numpy(),
        "threshold": threshold(rate, slopes).numpy(),
        "equal_scale_movement": (moved - still).abs().max().numpy(),
        **linear_rows(
            s,
            rate,
            sets=at_scale(scale, tiny=8, default=64),
            pairs=pairs,
            dimension=dimension,
            noise=noise,
            temperature=temperature,
            rows=64,
            generator=generator,
        ),
        **width_curves(s, rate, rows=at_scale(scale, tiny=512, default=4096), generator=generator),
        **slope_sweep(
            s, rate, slopes, rows=at_scale(scale, tiny=128, default=512), generator=generator
        ),
    }
