"""InfoNCE ascends the trace of a contrastive covariance.

Tian, "Understanding the role of nonlinearity in training dynamics of contrastive learning" (2022),
eq. 1 to 3, Lemma 1 and Lemma 2. N pairs of views x[i], x'[i] of examples x0[i], features f and f':

    C_alpha[g] = 1/(2 N^2) sum_ij alpha_ij [ (g[i] - g[j])(g[i] - g[j])^T
                                            - (g[i] - g'[i])(g[i] - g'[i])^T ]                  (3)

*Gradient.* With d_ij^2 = |f[i] - f[j]|^2/2, d_i^2 = |f[i] - f'[i]|^2/2, Z_i = sum_{j != i}
exp(-d_ij^2/tau), InfoNCE is L = sum_i d_i^2 + tau log(eps exp(-d_i^2/tau) + Z_i). Differentiating
the logarithm gives minus a mean of the d^2, with weights alpha_ij = exp(-d_ij^2/tau)/(eps
exp(-d_i^2/tau) + Z_i) on d_ij^2 and 1 - sum_j alpha_ij on d_i^2. The d_i^2 cancel in part:

    grad L = sum_ij alpha_ij grad(d_i^2 - d_ij^2) = -N^2 grad tr C_alpha[f], alpha held fixed.

The constant is N^2, and the paper's eps = 0 is not needed.

*Limit.* If alpha_ij = K(x0[i], x0[j]) = sum_l phi_l(x0[i]) phi_l(x0[j]), then for N -> infinity

    C_alpha[g] -> sum_l z_l^2 Var_{x0 ~ p_l} E[g(x) | x0], z_l = E phi_l, p_l = phi_l p/z_l    (4)

At finite N, C is a mean over pairs of k(i, j) = alpha_ij/2 [...], so that with zeta_1 the variance
of E[k | i] and zeta_2 that of k, its squared error is (4 (N-2) zeta_1 + 2 zeta_2)(N-1)/N^3 and its
mean misses the limit by -(limit + E Var[g | x0])/N, the terms i = j being the cause.

Shapes: R replicates, N pairs, D features, P nets, E values of eps, L terms of the kernel, Q nodes.
"""

import math
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Interval
from torch import Generator, Tensor

from widefield.methods.alpha_cl import pair_importance
from widefield_labs.lab import Arrays, Check, Figure, Scale, at_least, at_most, at_scale, close
from widefield_labs.pair_gradients import EPSILONS, TEMPERATURES, gradients, triplet_gradients
from widefield_labs.pair_weights import contrastive_covariance, kernel_features, kernel_terms

SUPPORT = 2.0  # x0 is uniform on [0, SUPPORT]
PAIR_DRAWS = 20_000  # for zeta_1 and zeta_2


def features(x: Tensor) -> Tensor:
    """Return g(x) = (x, x^2, cos 2x), whose contrastive covariance is measured, [..., 3]."""
    return torch.stack([x, x.square(), torch.cos(2 * x)], dim=-1)


def conditional(x0: Tensor, noise: float) -> tuple[Tensor, Tensor]:
    """Return E[g(x) | x0] [..., D] and Var[g(x) | x0] [..., D, D] for x = x0 + noise * N(0, 1)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    weight = torch.from_numpy(weights / weights.sum()).unsqueeze(-1)
    g = features(x0.unsqueeze(-1) + noise * torch.from_numpy(nodes))
    mean = (weight * g).sum(-2)
    centered = g - mean.unsqueeze(-2)
    return mean, (weight * centered).mT @ centered


def nodes_on_support() -> tuple[Tensor, Tensor]:
    """Return quadrature nodes of x0 and weights that sum to 1, [Q]."""
    nodes, weights = np.polynomial.legendre.leggauss(60)
    return torch.from_numpy((nodes + 1) * SUPPORT / 2), torch.from_numpy(weights / 2)


def limit(temperature: float, noise: float) -> tuple[Tensor, Tensor]:
    """Return the right side of (4) for Gaussian weights on x0, and E Var[g | x0]; [D, D] both.

    z_l^2 Var_{p_l}[m] = z_l E[phi_l m m^T] - E[phi_l m] E[phi_l m]^T with m = E[g | x0].
    """
    x0, weight = nodes_on_support()
    mean, within = conditional(x0, noise)
    terms = kernel_terms(SUPPORT, temperature)
    weighted = kernel_features(x0, temperature, terms) * weight
    z, first = weighted.sum(-1), weighted @ mean
    second = (z @ weighted * mean.mT) @ mean
    return second - first.mT @ first, (weight[:, None, None] * within).sum(0)


def error_law(
    temperature: float, noise: float, *, draws: int, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Return zeta_1 and zeta_2 of every entry of C_alpha[g], [D, D], from `draws` random pairs.

    E[k | i] = 1/2 [D (g g^T - (g-g')(g-g')^T/2) - g m^T - m g^T + E_j K m m^T] at x0[i], where
    D = E_j K and m = E_j K E[g | x0[j]].
    """
    x0 = SUPPORT * torch.rand(2, draws, generator=generator, dtype=torch.float64)
    shape = (2, 2, draws)
    views = x0 + noise * torch.randn(shape, generator=generator, dtype=torch.float64)
    g, g2 = features(views)

    def outer(a: Tensor, b: Tensor) -> Tensor:
        return a.unsqueeze(-1) * b.unsqueeze(-2)

    y0, weight = nodes_on_support()
    mean, _ = conditional(y0, noise)
    kernel = torch.exp(-(x0[0].unsqueeze(-1) - y0).square() / (2 * temperature)) * weight
    g_i, degree = g[0], kernel.sum(-1)[:, None, None]
    cross = outer(g_i, kernel @ mean)
    seconds = (kernel @ outer(mean, mean).flatten(-2)).view_as(cross)
    spread = outer(g_i, g_i) - outer(g_i - g2[0], g_i - g2[0]) / 2
    projected = (degree * spread - cross - cross.mT + seconds) / 2
    pair = outer(g[0] - g[1], g[0] - g[1]) - (outer(g[0] - g2[0], g[0] - g2[0])) / 2
    pair = pair - outer(g[1] - g2[1], g[1] - g2[1]) / 2
    alpha = torch.exp(-(x0[0] - x0[1]).square() / (2 * temperature))[:, None, None]
    return projected.var(0), (alpha * pair / 2).var(0)


def gaussian_importance(points: Tensor, temperature: float) -> Tensor:
    """Return the library's Gaussian importance of points [R, N, 1], but with alpha_ii = 1.

    The double sum of (3) has the terms i = j, which a loss of distances can leave out.
    """

    def one_batch(x: Tensor) -> Tensor:
        return pair_importance(x, x, kind="gaussian", temperature=temperature)

    itself = torch.eye(points.shape[-2], dtype=points.dtype)
    return torch.vmap(one_batch)(points) + itself


def sampled(
    size: int, *, replicates: int, temperature: float, noise: float, generator: Generator
) -> tuple[Tensor, Tensor]:
    """Return C_alpha[g] of `replicates` batches of `size` pairs, [R, D, D], for two alphas.

    The first compares the examples x0 and has kernel structure; the second compares the views.
    """
    x0 = SUPPORT * torch.rand(replicates, size, 1, generator=generator, dtype=torch.float64)
    shape = (2, *x0.shape)
    x, x2 = x0 + noise * torch.randn(shape, generator=generator, dtype=torch.float64)
    g, g2 = features(x.squeeze(-1)), features(x2.squeeze(-1))
    of_examples, of_views = (
        contrastive_covariance(g, g2, gaussian_importance(points, temperature))
        for points in (x0, x)
    )
    return of_examples, of_views


def convergence(
    sizes: tuple[int, ...], *, budget: int, temperature: float, noise: float, generator: Generator
) -> Arrays:
    """Compare sampled C_alpha[g] with (4) over the batch size.

    Each size N gets budget/N^2 batches, 64 to 1000: the sizes differ, so they are taken in turn.
    """
    goal, within = limit(temperature, noise)
    zeta_1, zeta_2 = error_law(temperature, noise, draws=PAIR_DRAWS, generator=generator)
    columns: dict[str, list[Tensor]] = {}
    for n in sizes:
        replicates = min(max(budget // n**2, 64), 1000)
        c, of_views = sampled(
            n, replicates=replicates, temperature=temperature, noise=noise, generator=generator
        )
        bias = -(goal + within) / n
        square = (c - goal).square().sum((-2, -1))
        law = (4 * (n - 2) * zeta_1 + 2 * zeta_2) * (n - 1) / n**3 + bias.square()
        root = math.sqrt(replicates)
        for name, value in {
            "mean_score": (c.mean(0) - goal - bias) / (c.std(0) / root),
            "views_score": (of_views.mean(0) - goal) / (of_views.std(0) / root),
            "square": square.mean(),
            "square_error": square.std() / root,
            "square_law": law.sum(),
            "negative_share": (torch.linalg.eigvalsh(c)[:, 0] < 0).double().mean(),
        }.items():
            columns.setdefault(name, []).append(value)
    arrays = {name: torch.stack(values).numpy() for name, values in columns.items()}
    return {"sizes": np.array(sizes), "limit": goal.numpy(), **arrays}


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test the identity of the gradients and Lemma 2."""
    return _check_gradients(arrays) + _check_convergence(arrays)


def _check_gradients(arrays: Arrays) -> tuple[Check, ...]:
    """Test that each loss of the family has the gradient of tr C_alpha."""
    return (
        at_most(
            "|grad InfoNCE + N^2 grad tr C_alpha| / |grad InfoNCE|, eps = 0 (worst net)",
            arrays["gradient_error"][..., 0].max(),
            1e-10,
        ),
        at_most(
            "the same with eps > 0 in InfoNCE and in alpha (worst net)",
            arrays["gradient_error"][..., 1:].max(),
            1e-10,
        ),
        at_most(
            "the same of alpha-CL's loss times the sum of alpha (worst net)",
            arrays["alpha_cl_error"].max(),
            1e-10,
        ),
        close(
            "factor between the gradients, in units of -N^2 (mean over nets)",
            arrays["gradient_ratio"].mean(),
            1.0,
            tolerance=1e-10,
        ),
        at_most(
            "triplet loss: |grad L + N^2 grad tr C_alpha| / |grad L|, alpha_ij = 1 where it counts",
            arrays["triplet_error"].max(),
            1e-10,
        ),
        at_most(
            "soft triplet loss: the same, alpha_ij the slope of its edge (worst net)",
            arrays["soft_triplet_error"].max(),
            1e-10,
        ),
    )


def _check_convergence(arrays: Arrays) -> tuple[Check, ...]:
    """Test that C_alpha tends to the sum of variances as Lemma 2 says."""
    sizes, square, error = arrays["sizes"], arrays["square"], arrays["square_error"]
    ratio = np.sqrt(square / arrays["square_law"])
    # Relative error of a root mean square; what the law leaves out is of relative order 1/N.
    uncertainty = error / square / 2
    log_n = np.log(sizes)
    pull = (log_n - log_n.mean()) / ((log_n - log_n.mean()) ** 2).sum()
    return (
        at_most(
            "mean of C_alpha minus the sum of variances and its 1/N bias "
            "(worst entry and N, standard errors)",
            abs(arrays["mean_score"]).max(),
            5.0,
        ),
        close(
            f"error of C_alpha at N = {sizes[-1]} over its predicted value (root mean square)",
            ratio[-1],
            1.0,
            tolerance=4 * uncertainty[-1] + 2 / sizes[-1],
        ),
        close(
            "exponent of N in the error, from a fit over all N",
            (pull * np.log(np.sqrt(square))).sum(),
            (pull * np.log(np.sqrt(arrays["square_law"]))).sum(),
            tolerance=4 * np.sqrt((pull**2 * uncertainty**2).sum()) + abs(pull / sizes).sum(),
        ),
        at_most(
            "share of batches in which C_alpha has a negative eigenvalue, largest N minus smallest",
            arrays["negative_share"][-1] - arrays["negative_share"][0],
            -0.1,
        ),
        at_least(
            "boundary: with alpha from the views C_alpha misses (4) "
            "(worst entry at the largest N, standard errors)",
            abs(arrays["views_score"][-1]).max(),
            5.0,
        ),
    )


def notes(arrays: Arrays) -> tuple[str, ...]:
    """Say where the claims end."""
    sizes, share = arrays["sizes"], arrays["negative_share"]
    return (
        "The identity of the gradients holds for every eps >= 0 of eq. 1, with alpha normalized by "
        "the same denominator; the paper states it for eps = 0.",
        "C_alpha is positive semi-definite only in the limit: "
        f"{share[0]:.0%} of batches of {sizes[0]} pairs have a negative eigenvalue, "
        f"{share[-1]:.0%} of batches of {sizes[-1]}.",
        "Lemma 2 needs weights that compare the examples x0. Weights that compare the views, as "
        "InfoNCE's do, lead elsewhere: "
        f"{abs(arrays['views_score'][-1]).max():.0f} standard errors from (4) at N = {sizes[-1]}.",
        "InfoNCE's weights sum to 1 over j, so its C_alpha as printed shrinks like 1/N; only "
        "N C_alpha can have a limit.",
    )


def draw(arrays: Arrays, figure: Figure) -> None:
    """Draw the error over the batch size, and how well the gradients agree."""
    left, middle, right = figure.subplots(1, 3)
    sizes, square = arrays["sizes"], arrays["square"]
    root = np.sqrt(square)
    left.errorbar(
        sizes,
        root,
        2 * arrays["square_error"] / root,
        fmt="o",
        ms=4,
        capsize=3,
        ls="none",
        label="measured, ± 4 standard errors",
    )
    left.plot(sizes, np.sqrt(arrays["square_law"]), color="0.2", ls="-", label="predicted")
    left.plot(sizes, root[0] * np.sqrt(sizes[0] / sizes), ls=":", color="0.4", label="slope −1/2")
    left.set(yscale="log", ylabel="root mean square error of C_α")
    left.set_title("C_α tends to a sum of variances")
    left.yaxis.set_minor_formatter("{x:g}")
    middle.plot(sizes, arrays["negative_share"], marker="s")
    middle.set(ylim=(-0.02, 1.02), ylabel="share of batches")
    middle.set_title("Batches with a negative eigenvalue")
    for axes in (left, middle):
        axes.set_xscale("log", base=2)
        axes.set(xticks=sizes, xticklabels=[str(n) for n in sizes], xlabel="batch size N [pairs]")
    for index, eps in enumerate(EPSILONS):
        right.plot(
            TEMPERATURES,
            arrays["gradient_error"][..., index].max(0),
            marker="os^"[index],
            ms=4,
            label=f"ε = {eps:g}",
        )
    right.set(xscale="log", yscale="log", ylim=(1e-17, 1e-12), xlabel="temperature τ")
    right.set(ylabel="|∇L + N² ∇tr C_α| / |∇L|, worst net", title="Gradients agree to rounding")


def measure(
    *,
    scale: Scale,
    generator: Generator,
    temperature: Annotated[float, Interval(ge=0.05, le=2)] = 0.5,
    noise: Annotated[float, Interval(ge=0.2, le=1)] = 0.3,
    nets: Annotated[int, Ge(1)] = 16,
    pairs: Annotated[int, Ge(3)] = 32,
) -> Arrays:
    """Compare the gradients of InfoNCE and of alpha-CL; follow C_alpha over the batch size.

    `temperature` is that of the Gaussian weights on x0, which is uniform on [0, 2]. `noise` is the
    standard deviation of a view around its example. Gradients are compared on `nets` nets, each
    with a batch of `pairs`, at every temperature from 0.1 to 3.
    """
    sizes = at_scale(scale, tiny=(16, 32, 64, 128), default=(16, 32, 64, 128, 256))
    budget = at_scale(scale, tiny=2**21, default=2**24)
    return {
        **gradients(nets=nets, pairs=pairs, generator=generator),
        **convergence(
            sizes, budget=budget, temperature=temperature, noise=noise, generator=generator
        ),
        **triplet_gradients(nets=nets, pairs=pairs, generator=generator),
    }
