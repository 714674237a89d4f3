"""A local optimum is stable while its eigengap exceeds the local roughness, and often beyond.

Tian, "Understanding the role of nonlinearity in training dynamics of contrastive learning" (2022),
section 3.1: Theorem 1, Theorem 2, Corollary 2, with their proofs in Appendix B.4.

The local roughness rho(w) is the smallest number with |(A(v) - A(w)) w| <= rho |v - w| up to second
order. Theorem 1: an LME w with lambda_gap > rho is stable under dw/dt = (I - w w^T) A(w) w.

For ReLU and a density p of x, the proof of Theorem 2 shows where the first order comes from: moving
w to v = w + eps u lets points in and out along the plane w.x = 0, and of A = E - e e^T only e moves
at that order. Carried to the end, with phi_0 = exp(-h(w.x)^2/(2 tau)) for Gaussian alpha and 1 for
uniform alpha,

    (A(v) - A(w)) w = -eps H M u,    H = E[phi_0 h(w.x)],    M = int_{w.x=0} x x^T p dS          (a)

so that rho = H lambda_max(M), and a nudge u grows by u' = (A - lambda_1 - H M) u. The roughness
thus *restores*: w is stable if and only if lambda_1 > lambda_max(A - H M) across w. That is weaker
than being an LME, which is weaker than Theorem 1's condition.

Theorem 2 bounds rho by C0^3 vol(C0)/pi r with r = sum_l z_l^2 max_{w.x=0} p_l. Its last step writes
C0^3 where its terms give C0^2: rho scales like length^2, the printed bound like length^3, so it is
wrong for small data. The bound with C0^2 holds. Corollary 2: r is z_0 times smaller for Gaussian
than for uniform alpha, z_0 = E phi_0. For rho itself (a) gives more: rho_g <= z_0 rho_u, as phi_0
falls where h rises. But alpha lowers the eigengap too.

Two families of data: mixtures x = (+-m, 0) + N(0, diag(1, b^2)), where A is exact in any dimension,
and densities on a disc of radius C0, by quadrature. Both are even across w = e_1, which is
therefore a critical point.

Shapes: S separations, B widths, N nudges, d dimensions, J densities, Q nodes, L kernel terms.
"""

import math
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Interval
from numpy.typing import NDArray
from torch import Generator, Tensor
from torch.nn.functional import normalize

from widefield_labs.disc import disc
from widefield_labs.lab import Arrays, Check, Figure, Scale, at_least, at_most, at_scale, close
from widefield_labs.one_layer import smooth_covariance

NUDGE = 1e-4
STEPS, STEP_SIZE = 400, 0.5
MARGIN = 0.01  # cells within 1 % of a boundary move too slowly to be judged
FIRST_ORDER = 1e-3  # what the next order in the nudge may add
RADII = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)  # C0
FACTORS = (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)  # times the temperature asked for
HARMONICS, ELONGATION = 4, 2.0  # of the random densities, longer along w than across


def mixture_covariance(w: Tensor, separation: Tensor, widths: Tensor, positive: float) -> Tensor:
    """Return A(w) [..., d, d] of x = (+-m, 0) + N(0, diag(1, widths^2)).

    The sign is + with probability `positive`. `w` [..., d], `separation` m [...], `widths`
    [..., d - 1]. With x = D z and z of unit noise,
    w.x = (D w).z, so that A(w) = D A_z(D w) D.
    """
    unit = torch.ones_like(widths[..., :1])
    scale = torch.cat([unit, widths], dim=-1)
    sign = torch.tensor([1.0, -1.0], dtype=w.dtype)
    first = torch.eye(w.shape[-1], dtype=w.dtype)[0]
    atoms = separation[..., None, None] * sign.unsqueeze(-1) * first
    p = torch.tensor([positive, 1 - positive], dtype=w.dtype)
    a = smooth_covariance(scale * w, atoms, p, unit.squeeze(-1))
    return scale.unsqueeze(-1) * a * scale.unsqueeze(-2)


def mixture_laws(separation: Tensor, positive: float) -> dict[str, Tensor]:
    """Return Var h, P(w.x > 0), E h and the density of w.x at 0 of mixtures at w = e_1, [...]."""
    means = torch.stack([separation, -separation], dim=-1)
    p = torch.tensor([positive, 1 - positive], dtype=separation.dtype)
    density = torch.exp(-means.square() / 2) / math.sqrt(2 * math.pi)
    above = torch.special.ndtr(means)
    h = (p * (means * above + density)).sum(-1)
    square = (p * ((means.square() + 1) * above + means * density)).sum(-1)
    return {
        "variance": square - h.square(),
        "active": (p * above).sum(-1),
        "h": h,
        "density": (p * density).sum(-1),
    }


def mixtures(
    separations: Tensor, levels: Tensor, *, dimension: int, positive: float, generator: Generator
) -> Arrays:
    """Measure eigengap, roughness and stability of w = e_1 on a grid [S, B] of mixtures.

    `levels` are the largest b^2 in units of the LME's own boundary Var h/P(w.x > 0).
    """
    laws = mixture_laws(separations, positive)
    largest = levels * (laws["variance"] / laws["active"]).unsqueeze(-1)
    shape = torch.linspace(1, 0.5, dimension - 1, dtype=levels.dtype)  # of b_2, b_3, ...
    widths = (largest.sqrt().unsqueeze(-1) * shape).unsqueeze(-2)
    m = separations[:, None, None].expand(*largest.shape, 1)
    w = torch.eye(dimension, dtype=levels.dtype)[0]
    axes = torch.eye(dimension, dtype=levels.dtype)[1:]
    across = torch.randn(8, dimension, generator=generator, dtype=levels.dtype)
    across[:, 0] = 0
    u = torch.cat([axes, normalize(across, dim=-1)])  # nudges: along each axis, and oblique ones

    def a(v: Tensor) -> Tensor:
        return mixture_covariance(
            v, m.expand(v.shape[:-1]), widths.expand(*v.shape[:-1], -1), positive
        )

    a_of_w = a(w.expand(*largest.shape, 1, -1))
    v = normalize(w + NUDGE * u, dim=-1).expand(*largest.shape, -1, -1)
    change = ((a(v) - a_of_w) @ w).square().sum(-1).sqrt() / (v - w).square().sum(-1).sqrt()
    end = follow(a, v)
    # A nudge shrinks where w is stable; one that grows may come to rest again, at -w.
    shrinks = end[..., 1:].square().sum(-1) < v[..., 1:].square().sum(-1)
    stable = shrinks & (end[..., 0] > 0)
    eigenvalues = a_of_w.squeeze(-3).diagonal(dim1=-2, dim2=-1)
    roughness = laws["h"] * laws["density"]
    return {
        "separations": separations.numpy(),
        "levels": levels.numpy(),
        "gap": (eigenvalues[..., 0] - eigenvalues[..., 1:].amax(-1)).numpy(),
        "top": eigenvalues[..., 0].numpy(),
        "roughness": change.amax(-1).numpy(),
        "roughness_law": (roughness.unsqueeze(-1) * largest).numpy(),
        "relative_roughness": (roughness / laws["active"]).numpy(),
        "stable": stable.all(-1).numpy(),
    }


def follow(a: Callable[[Tensor], Tensor], v: Tensor) -> Tensor:
    """Return where the dynamics take the unit rows `v` [..., d]; time has the unit 1/(v.A(v) v)."""
    for _ in range(STEPS):
        force = (a(v) @ v.unsqueeze(-1)).squeeze(-1)
        v = normalize(v + STEP_SIZE * force / (v * force).sum(-1, keepdim=True), dim=-1)
    return v


def discs(coefficients: Tensor, temperature: float) -> Arrays:
    """Measure `disc` with both alphas over the radius, [2, R, J], and over tau, [T + 1, J].

    The last of the temperatures is infinite: uniform alpha.
    """
    over_radius = [
        [disc(coefficients, radius, tau) for radius in RADII] for tau in (None, temperature)
    ]
    taus = [temperature * factor for factor in FACTORS]
    over_tau = [disc(coefficients, 1.0, tau) for tau in (*taus, None)]
    arrays = {"temperatures": np.array([*taus, math.inf]), "radii": np.array(RADII)}
    for name in over_tau[0]:
        by_alpha = [torch.stack([cell[name] for cell in row]) for row in over_radius]
        arrays[f"radius_{name}"] = torch.stack(by_alpha).numpy()
        arrays[f"tau_{name}"] = torch.stack([cell[name] for cell in over_tau]).numpy()
    return arrays


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test (a), Theorems 1 and 2 and Corollary 2."""
    return *check_mixtures(arrays), *check_discs(arrays)


def check_mixtures(arrays: Arrays) -> tuple[Check, ...]:
    """Test (a) and Theorem 1 on mixtures."""
    gap, rough, stable = arrays["gap"], arrays["roughness"], arrays["stable"]
    # Stable iff lambda_1 > b^2 (P - H density); lambda_1 is P times the LME's own boundary of b^2.
    growth = arrays["levels"] * (1 - arrays["relative_roughness"][:, None])
    clear = abs(growth - 1) > MARGIN
    return (
        at_most(
            "roughness by its definition minus (a), over lambda_1, mixtures (worst cell)",
            abs((rough - arrays["roughness_law"]) / arrays["top"]).max(),
            FIRST_ORDER,
        ),
        close(
            "Theorem 1: cells with lambda_gap > rho in which a nudge grows",
            ((gap > rough) & ~stable).sum(),
            0,
        ),
        close(
            "cells in which stability differs from lambda_1 > lambda_max(A - H M)",
            (clear & (stable != (growth < 1))).sum(),
            0,
        ),
        at_least("boundary: stable cells that are no LME at all", (stable & (gap < 0)).sum(), 1),
    )


def check_discs(arrays: Arrays) -> tuple[Check, ...]:
    """Test (a), Theorem 2 and Corollary 2 on densities on a disc."""
    radii = arrays["radii"][:, None]
    tau = {name: arrays[f"tau_{name}"] for name in ("top", "gap", "roughness", "pull", "z0", "r")}
    by_area = arrays["radius_roughness"] / arrays["radius_r"] / radii**4  # C0^2 vol/pi = C0^4
    errors = [
        abs(arrays[f"{name}_roughness"] - arrays[f"{name}_roughness_law"]) / arrays[f"{name}_top"]
        for name in ("radius", "tau")
    ]
    gaussian, uniform = slice(None, -1), slice(-1, None)
    ratio = tau["r"][gaussian] / tau["z0"][gaussian] / tau["r"][uniform]
    excess = tau["roughness"][gaussian] - tau["z0"][gaussian] * tau["roughness"][uniform]
    return (
        at_most(
            "roughness by its definition minus (a), over lambda_1, densities on a disc (worst)",
            max(error.max() for error in errors),
            FIRST_ORDER,
        ),
        at_most(
            "pull on a nudge minus (lambda_gap + rho), over lambda_1, both alphas (worst)",
            abs((tau["pull"] - tau["gap"] - tau["roughness"]) / tau["top"]).max(),
            FIRST_ORDER,
        ),
        at_most(
            "Theorem 2 with C0^2: roughness over its bound, both alphas, all radii (worst)",
            by_area.max(),
            1.0,
        ),
        at_least(
            "boundary: Theorem 2 as printed, C0^3: roughness over its bound at the least radius",
            (by_area[:, 0] / radii[0]).max(),
            1.0,
        ),
        close(
            "Corollary 2: r_g / (z_0 r_u) (furthest from 1)",
            ratio.ravel()[abs(ratio - 1).argmax()],
            1.0,
            tolerance=1e-9,
        ),
        at_most(
            "rho_g - z_0 rho_u, roughness with Gaussian and uniform alpha, over lambda_1 (worst)",
            (excess / tau["top"][gaussian]).max(),
            0.0,
            tolerance=1e-6,  # of differences of A
        ),
    )


def shares(arrays: Arrays) -> dict[str, NDArray[Any]]:
    """Return the shares of densities, [T + 1]: stable, an LME, within Theorem 1's condition.

    The constant density, the first, is left out: its w is exactly marginal.
    """
    gap, rough, pull = (arrays[f"tau_{name}"][:, 1:] for name in ("gap", "roughness", "pull"))
    return {
        "stable: a nudge shrinks": (pull > 0).mean(-1),
        "LME: λ_gap > 0": (gap > 0).mean(-1),
        "Theorem 1: λ_gap > ρ": (gap > rough).mean(-1),
    }


def notes(arrays: Arrays) -> tuple[str, ...]:
    """Say where the claims end."""
    gap, rough, stable = arrays["gap"], arrays["roughness"], arrays["stable"]
    share = shares(arrays)
    (stable_name, lme, theorem), (low, infinite) = share, (0, -1)
    return (
        "Theorem 1 holds and is far from sharp. With ReLU the roughness pulls a nudge back instead "
        f"of pushing it away: of {stable.sum()} stable cells {(stable & (gap < rough)).sum()} have "
        f"lambda_gap < rho, and {(stable & (gap < 0)).sum()} are no LME.",
        "Theorem 2 as printed is not homogeneous: rho scales like length^2, its bound like "
        "length^3. The terms of the proof give C0^2 for C0^3; then it holds at every radius.",
        "Corollary 2 is exact, and rho falls by more than z_0. That Gaussian alpha therefore has "
        "more optima does not follow, as it lowers the eigengap too: from uniform alpha to tau = "
        f"{arrays['temperatures'][low]:g} C0^2 the share of densities within Theorem 1 goes from "
        f"{share[theorem][infinite]:.0%} to {share[theorem][low]:.0%}, of LMEs from "
        f"{share[lme][infinite]:.0%} to {share[lme][low]:.0%}, of stable w from "
        f"{share[stable_name][infinite]:.0%} to {share[stable_name][low]:.0%}.",
    )


def draw(arrays: Arrays, figure: Figure) -> None:
    """Draw the stability of mixtures, the two bounds, and roughness and stability over alpha."""
    figure.set_size_inches(9, 6.4)
    (phase, bound), (ratio, share) = figure.subplots(2, 2)
    m, levels, relative = (arrays[k] for k in ("separations", "levels", "relative_roughness"))
    grid_m, grid_level = np.meshgrid(m, levels, indexing="ij")
    for mask, marker, label in (
        (arrays["stable"], "o", "nudges shrink"),
        (~arrays["stable"], "x", "nudges grow"),
    ):
        phase.plot(grid_m[mask], grid_level[mask], marker, ms=3, ls="none", label=label)
    phase.plot(m, 1 / (1 - relative), color="0.1", ls="-", label="λ₁ = λ_max(A − HM)")
    phase.plot(m, np.ones_like(m), color="0.1", ls="--", label="λ_gap = 0 (LME)")
    phase.plot(m, 1 / (1 + relative), color="0.1", ls=":", label="λ_gap = ρ (Theorem 1)")
    phase.set(xlabel="half distance m of the modes [noise]", ylabel="b² / boundary of the LME")
    phase.set(ylim=(0, 1.4 * levels[-1]), title="Stable well beyond Theorem 1")
    radii, r = arrays["radii"], arrays["radius_r"][0, :, 0]
    bound.plot(radii, arrays["radius_roughness"][0, :, 0], "o", ls="none", label="measured ρ")
    bound.plot(radii, radii**5 * r, marker="x", ls="--", label="C₀³ vol/π · r (as printed)")
    bound.plot(radii, radii**4 * r, ls="-", color="0.1", label="C₀² vol/π · r")
    bound.set(xscale="log", yscale="log", xlabel="radius C₀", ylabel="local roughness ρ")
    bound.set_title("Constant density on a disc: the bound")
    z0, base = arrays["tau_z0"][:-1], arrays["tau_roughness"][-1]
    ratio.plot(z0.ravel(), (arrays["tau_roughness"][:-1] / base).ravel(), "o", ms=2.5, label="ρ")
    few = slice(None, None, 6)  # all of them lie on the line
    exact = (arrays["tau_r"][:-1] / arrays["tau_r"][-1])[:, few].ravel()
    ratio.plot(z0[:, few].ravel(), exact, "x", ms=5, label="r")
    ratio.plot([0, 1], [0, 1], color="0.1", ls="-", lw=0.8, label="z₀")
    ratio.set(xlabel="z₀ = E exp(−h²/2τ)", ylabel="with Gaussian over uniform α")
    ratio.set(xlim=(z0.min() - 0.02, 1.02), title="Gaussian α lowers r by z₀, ρ by more")
    taus = arrays["temperatures"][:-1]
    for (label, curve), marker in zip(shares(arrays).items(), "os^", strict=True):
        line = share.plot(taus, curve[:-1], marker=marker, ms=4, label=label)[0]
        share.axhline(curve[-1], color=line.get_color(), ls=line.get_linestyle(), lw=0.6)
    share.set(xscale="log", xlabel="temperature τ / C₀² (thin lines: uniform α)")
    share.set(ylabel="share of densities", ylim=(-0.02, 1.02), title="... and the eigengap as well")
    phase.legend(fontsize=7, loc="upper center", ncols=2)


def measure(
    *,
    scale: Scale,
    generator: Generator,
    dimension: Annotated[int, Interval(ge=2, le=16)] = 4,
    positive: Annotated[float, Interval(ge=0.1, le=1)] = 0.5,
    spread: Annotated[float, Interval(ge=0, le=1.25)] = 1.0,
    temperature: Annotated[float, Interval(ge=0.1, le=10)] = 0.5,
) -> Arrays:
    """Measure roughness, eigengap and stability, of mixtures and of densities on a disc.

    The mixtures have `dimension` dimensions and a share `positive` of the data on the positive
    side. `spread` is the standard deviation of the coefficients of a random log-density.
    `temperature` is that of Gaussian alpha in units of C0^2; it is varied from 1/8 to 8 times that.
    """
    cells = at_scale(scale, tiny=8, default=14)
    count = at_scale(scale, tiny=12, default=48)
    coefficients = spread * torch.randn(count, HARMONICS, generator=generator, dtype=torch.float64)
    coefficients[:, 1] += ELONGATION
    coefficients[0] = 0  # the constant density
    return mixtures(
        torch.linspace(0, 2.5, cells, dtype=torch.float64),
        torch.linspace(0.1, 2.1, cells, dtype=torch.float64),
        dimension=dimension,
        positive=positive,
        generator=generator,
    ) | discs(coefficients, temperature)
