"""Each latent feature is a locally maximal eigenvector of its own, below a critical rate.

Tian, "Understanding the role of nonlinearity in training dynamics of contrastive learning" (2022),
Definition 3, Lemma 3, Appendix B.1 and B.2.

One row w of a one-layer net, |w| = 1, with activation h(t) = h'(t) t. With uniform pair weights
and no augmentation its contrastive covariance and its dynamics are

    A(w) = Var[x h'(w.x)],    dw/dt = (I - w w^T) A(w) w                                     (7)

w is a locally maximal eigenvector (LME) if it is A(w)'s top eigenvector and that eigenvalue is
simple. Both of the paper's examples are discrete, so that A(w) is a finite sum over atoms:

    categorical: x = u_m with probability p_m          A(u_m) = p_m (1 - p_m) u_m u_m^T      (34)
    summation:   x = sum_m y_m u_m, y_m standardized   A(u_m) = (1 - q_m)^2 u_m u_m^T
                 Bernoulli(q_m), independent                     + q_m (I - u_m u_m^T)       (35)

Hence u_m is an LME of the summation model if and only if q_m < (3 - sqrt 5)/2. The u_m are the
axes here: a rotation of the data rotates everything else.

Shapes: M features, n atoms, d dimensions, R rows, S replicates, G rates.
"""

import math
from typing import Annotated

import torch
from annotated_types import Interval
from torch import Generator, Tensor

from widefield_labs import monomials
from widefield_labs.lab import Arrays, Check, Figure, Scale, at_most, at_scale, close
from widefield_labs.one_layer import (
    CRITICAL_RATE,
    ascend,
    categorical,
    gated_covariance,
    is_lme,
    summation,
)

NEAR = 0.999  # cosine from which a row counts as being at a feature
MIXED_RATES = (0.05, 0.15, 0.25, 0.35, 0.37, 0.39, 0.41, 0.5)
DENSER = 8  # so many times more rows where atoms are few


def at_category(probability: Tensor) -> Tensor:
    """Return A(u_m) of the categorical model for every m, [M, M, M] (eq. 34)."""
    return torch.diag_embed(torch.diag_embed(probability * (1 - probability)))


def at_summand(rate: Tensor) -> Tensor:
    """Return A(u_m) of the summation model for every m, [..., M, M, M] (eq. 35)."""
    along = torch.eye(rate.shape[-1], dtype=rate.dtype)
    q = rate.unsqueeze(-1)
    return torch.diag_embed((1 - q) ** 2 * along + q * (1 - along))


def all_off(rate: Tensor) -> Tensor:
    """Return the direction of the atom in which every feature is off, [M].

    Where every atom with a feature on has w.x <= 0, only this atom is active, A(w) has rank one
    and w is an LME that stands for no feature. It is so iff sum q_l/(1 - q_l) < 1/(1 - q_m) for
    every m; for equal rates, iff M q < 1.
    """
    return torch.nn.functional.normalize(-(rate / (1 - rate)).sqrt(), dim=-1)


def sampled(
    w: Tensor, x: Tensor, p: Tensor, *, size: int, replicates: int, generator: Generator
) -> Tensor:
    """Return A(w) of `replicates` samples of `size` points: [..., S, d, d] for rows `w` [..., d].

    Multiplied by size/(size - 1), which makes a sample's covariance unbiased.
    """
    flat = p.reshape(-1, p.shape[-1]).repeat_interleave(replicates, 0)
    draws = torch.multinomial(flat, size, replacement=True, generator=generator)
    counts = torch.zeros_like(flat).scatter_add_(
        1, draws, torch.ones_like(flat[:, :1]).expand_as(draws)
    )
    counts = counts.view(*p.shape[:-1], replicates, -1)
    a = gated_covariance(w.unsqueeze(-2), x.unsqueeze(-3), counts / size)
    return a * size / (size - 1)


def closed_form_scores(
    probability: Tensor, rate: Tensor, *, size: int, replicates: int, generator: Generator
) -> Tensor:
    """Return the entries of the sampled A(u_m) minus (34) and (35), in standard errors."""
    scores = []
    for (x, p), closed in (
        (categorical(probability), at_category(probability)),
        (summation(rate), at_summand(rate)),
    ):
        features = x.shape[-1]
        a = sampled(
            torch.eye(features, dtype=x.dtype),
            x.expand(features, -1, -1),
            p.expand(features, -1),
            size=size,
            replicates=replicates,
            generator=generator,
        )
        error = a.mean(1) - closed
        standard = a.std(1) / math.sqrt(replicates)
        # An entry that never varies is right up to rounding, or wrong by many "standard errors".
        scores.append((error / standard.clamp_min(1e-12)).flatten())
    return torch.cat(scores)


def sampled_gaps(
    rates: Tensor, features: int, *, size: int, replicates: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Return the eigengap of A(u_1) along u_1, mean and standard error of replicates, [G].

    It is the eigenvalue along u_1 minus the mean of the others.
    """
    x, p = summation(rates.unsqueeze(-1).expand(-1, features))
    first = torch.eye(features, dtype=x.dtype)[0].expand(len(rates), -1)
    a = sampled(first, x, p, size=size, replicates=replicates, generator=generator)
    eigenvalues = a.diagonal(dim1=-2, dim2=-1)
    gap = eigenvalues[..., 0] - eigenvalues[..., 1:].mean(-1)
    return gap.mean(-1), gap.std(-1) / math.sqrt(replicates)


def escape_rates(rates: Tensor, features: int, *, generator: Generator) -> Tensor:
    """Return the growth of nudges off u_1 under (7), [G]."""
    x, p = summation(rates.unsqueeze(-1).expand(-1, features))
    aside = torch.randn(len(rates), 8, features, generator=generator, dtype=x.dtype)
    aside[..., 0] = 0
    start = monomials.NUDGE * torch.nn.functional.normalize(aside, dim=-1)
    start[..., 0] = 1
    start = torch.nn.functional.normalize(start, dim=-1)
    return monomials.growth(start, x, p).mean(-1)


def closed_escape_rates(rates: Tensor) -> Tensor:
    """Return `escape_rates` as (35) predicts: a factor (1 + eta q/(1-q)^2)/(1 + eta) a step."""
    step_size = monomials.STEP_SIZE
    return ((1 + step_size * rates / (1 - rates) ** 2) / (1 + step_size)).log() / step_size


def endpoints(
    x: Tensor, p: Tensor, targets: Tensor, *, rows: int, steps: int, generator: Generator
) -> Tensor:
    """Return the shares of random starts that end at each of `targets` [..., K, d]: [..., K]."""
    w = torch.randn(*x.shape[:-2], rows, x.shape[-1], generator=generator, dtype=x.dtype)
    w = ascend(torch.nn.functional.normalize(w, dim=-1), x, p, steps=steps, step_size=1.0)
    return (w @ targets.mT > NEAR).to(x.dtype).mean(-2)


def random_starts(
    probability: Tensor, rates: Tensor, *, rows: int, steps: int, generator: Generator
) -> Arrays:
    """Find where random rows end: categorical model, and summation models of equal rates."""
    features = len(probability)
    axes = torch.eye(features, dtype=rates.dtype)
    x, p = categorical(probability)
    ends = endpoints(x, p, axes, rows=DENSER * rows, steps=steps, generator=generator)
    q = rates.unsqueeze(-1).expand(-1, features)
    targets = torch.cat([axes.expand(len(q), -1, -1), all_off(q).unsqueeze(-2)], dim=-2)
    shares = endpoints(*summation(q), targets, rows=rows, steps=steps, generator=generator)
    return {"categorical_share": ends.numpy(), "summation_share": shares.numpy()}


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test (34), (35) and the critical rate, and both for monomials."""
    return *check_rates(arrays), *check_starts(arrays), *monomials.check(arrays)


def check_rates(arrays: Arrays) -> tuple[Check, ...]:
    """Test the closed forms and where an LME ceases to be one."""
    rates = arrays["rates"]
    nearest = int(abs(rates - CRITICAL_RATE).argmin())
    slope = 3 - 2 * CRITICAL_RATE  # of q - (1 - q)^2, where it vanishes
    spacing = float(rates[1] - rates[0])  # a straight line between f's values errs by h^2 f''/8f'
    mixed = arrays["mixed_rates"] < CRITICAL_RATE
    return (
        at_most(
            "A(u_m): sampled minus closed form, both models (worst entry, standard errors)",
            abs(arrays["closed_form_score"]).max(),
            5.0,
        ),
        close(
            "rate at which the sampled eigengap of u_m changes sign",
            monomials.crossing(rates, arrays["gap"]),
            CRITICAL_RATE,
            tolerance=float(4 * arrays["gap_error"][nearest] / slope) + spacing**2 / (4 * slope),
        ),
        close(
            "rate at which rows nudged off u_m stop returning",
            monomials.crossing(rates, arrays["escape"]),
            CRITICAL_RATE,
            tolerance=0.7 * spacing**2,  # f = q/(1 - q)^2
        ),
        at_most(
            "growth of the nudge minus its closed form (largest difference)",
            abs(arrays["escape"] - arrays["escape_closed"]).max(),
            1e-5,
        ),
        close(
            "features of unequal rates that are LMEs although q_m >= 0.382, or not although below",
            (arrays["mixed_is_lme"] != mixed).sum(),
            0,
        ),
    )


def check_starts(arrays: Arrays) -> tuple[Check, ...]:
    """Test where rows from random starts end."""
    features, rows = len(arrays["categorical_share"]), DENSER * int(arrays["rows"])
    dead = 1 - arrays["categorical_share"].sum()
    shares, grid = arrays["summation_share"], arrays["start_rates"]
    sparse = shares[features * grid <= 0.5 + 1e-9]
    return (
        close(
            "categorical model: features at which random rows end",
            (arrays["categorical_share"] > 0).sum(),
            features,
        ),
        close(
            "categorical model: share of rows that never fire and stay where they are",
            dead,
            2.0**-features,
            tolerance=4 * math.sqrt(2.0**-features / rows),
        ),
        close(
            "summation model, M q <= 1/2: optima at which random rows end (features and all-off)",
            (sparse > 0).sum(-1).min(),
            features + 1,
        ),
        close(
            "summation model, M q <= 1/2: share of rows that end anywhere else",
            (1 - sparse.sum(-1)).max(),
            0.0,
            tolerance=1e-9,
        ),
        close(
            "summation model, q > 0.4: share of rows that end at a feature",
            shares[grid > 0.4, :features].sum(-1).max(),
            0.0,
        ),
    )


def notes(arrays: Arrays) -> tuple[str, ...]:
    """Say where the claims end."""
    features = len(arrays["categorical_share"])
    shares, grid = arrays["summation_share"], arrays["start_rates"]
    elsewhere = 1 - shares.sum(-1)
    kinked = int((elsewhere > 0.002).argmax())
    last = int((grid < CRITICAL_RATE).sum()) - 1
    return (
        "The features are not the only LMEs of the summation model: while M q < 1 the direction of "
        "the atom with every feature off is one more "
        f"({shares[0, features]:.1%} of random rows at q = {grid[0]:.3f}).",
        "Denser models also have optima at kinks, where an atom lies on w.x = 0 and A(w) jumps, so "
        f"that Definition 3 does not apply: first seen at M q = {features * grid[kinked]:.2f}, and "
        f"{elsewhere[last]:.0%} of random rows at q = {grid[last]:.3f}, though each u_m is an LME.",
        "In the categorical model A(w) jumps at every u_m itself (the other atoms have w.x = 0), "
        "so its roughness is infinite and Theorem 1 is silent there; the rows arrive all the same.",
        "0.382 is for features of equal variance; the lab winner-takes-all has the general rule.",
        f"Monomials have rates of their own: with t^2 u_m is an LME below {monomials.LME_RATE:.3f} "
        f"but an optimum only below {monomials.STABLE_RATE:.3f}: A is smooth there, its roughness "
        "drives a nudge away, and Theorem 1's condition is necessary as well as sufficient.",
    )


def draw(arrays: Arrays, figure: Figure) -> None:
    """Draw the eigengap and the escape rate over q, and where random rows end."""
    left, middle, right = figure.subplots(1, 3)
    rates, features = arrays["rates"], len(arrays["categorical_share"])
    left.errorbar(
        rates,
        arrays["gap"],
        4 * arrays["gap_error"],
        fmt="o",
        ms=3,
        ls="none",
        label="sampled, ± 4 standard errors",
    )
    left.plot(rates, (1 - rates) ** 2 - rates, color="0.2", label="(1 − q)² − q")
    left.set(ylabel="eigengap of A(u_m) along u_m", title="u_m is the top eigenvector ...")
    middle.plot(rates, arrays["escape"], "s", ms=3, ls="none", label="measured")
    middle.plot(rates, arrays["escape_closed"], color="0.2", label="closed form")
    squares = arrays["monomial_growth"][0]
    middle.plot(monomials.RATES, squares, "^", ms=3, ls="none", label="h(t) = t²")
    middle.axvline(monomials.STABLE_RATE, color="0.6", lw=0.8, ls=":")
    middle.set(ylabel="growth of a nudge [per unit time]", title="... and attracts ...")
    for axes in (left, middle):
        axes.axhline(0, color="0.6", lw=0.8)
        axes.axvline(CRITICAL_RATE, color="0.6", lw=0.8)
        axes.set_xlabel("rate q (gray line: 0.382)")
    shares, grid = arrays["summation_share"], arrays["start_rates"]
    at_feature = shares[:, :features].sum(-1)
    for curve, label, marker in (
        (at_feature, "at a feature", "o"),
        (shares[:, features], "all-off direction", "s"),
        (1 - shares.sum(-1), "elsewhere", "^"),
    ):
        right.plot(grid, curve, marker=marker, ms=4, label=label)
    for line in (1 / features, CRITICAL_RATE):
        right.axvline(line, color="0.6", lw=0.8)
    right.set(
        xlabel=f"rate q (gray lines: 1/{features}, 0.382)",
        ylabel="share of random rows",
        title="... until 0.382",
        ylim=(-0.02, 1.02),
    )


def measure(
    *,
    scale: Scale,
    generator: Generator,
    features: Annotated[int, Interval(ge=2, le=7)] = 6,
    ratio: Annotated[float, Interval(ge=0.3, le=1)] = 0.8,
    lowest_rate: Annotated[float, Interval(ge=0.001, lt=0.35)] = 0.05,
    highest_rate: Annotated[float, Interval(gt=0.4, le=0.7)] = 0.6,
) -> Arrays:
    """Compare closed forms with samples, find the critical rate, follow rows from random starts.

    There are 2^`features` atoms. The categorical probabilities fall by the factor `ratio` from
    feature to feature. The summation models have equal rates from `lowest_rate` to `highest_rate`.
    Below their limits `ratio` and `lowest_rate` leave what the samples may never draw.
    """
    weights = ratio ** torch.arange(features, dtype=torch.float64)
    probability = weights / weights.sum()
    rates = torch.linspace(lowest_rate, highest_rate, 45, dtype=torch.float64)
    sparse = torch.tensor([0.2, 0.35, 0.5], dtype=torch.float64) / features
    count = at_scale(scale, tiny=5, default=10)
    dense = torch.linspace(0.7 / features, highest_rate, count, dtype=torch.float64)
    start_rates = torch.cat([sparse, dense])
    mixed = torch.tensor(MIXED_RATES, dtype=torch.float64)
    axes = torch.eye(len(mixed), dtype=torch.float64)
    sampling = {"size": at_scale(scale, tiny=250, default=5000), "replicates": 64}
    rows = at_scale(scale, tiny=4, default=20) * 2**features
    gap, gap_error = sampled_gaps(rates, features, **sampling, generator=generator)
    return {
        "closed_form_score": closed_form_scores(
            probability, mixed[:features], **sampling, generator=generator
        ).numpy(),
        "rates": rates.numpy(),
        "gap": gap.numpy(),
        "gap_error": gap_error.numpy(),
        "escape": escape_rates(rates, features, generator=generator).numpy(),
        "escape_closed": closed_escape_rates(rates).numpy(),
        "mixed_rates": mixed.numpy(),
        "mixed_is_lme": is_lme(gated_covariance(axes, *summation(mixed)), axes).numpy(),
        "rows": torch.tensor(rows).numpy(),
        "start_rates": start_rates.numpy(),
        **monomials.measure(features, generator),
        **random_starts(probability, start_rates, rows=rows, steps=300, generator=generator),
    }
