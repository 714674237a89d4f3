"""Densities on a disc, and what the roughness of A at w = e_1 comes from, by quadrature.

The density is exp(sum_k c_k (r/C0)^k cos(k theta)) on a disc of radius C0, up to a constant. It is
even across w = e_1, which is therefore a critical point of the dynamics of `one_layer`.

Shapes: J densities, K coefficients, Q nodes, L kernel terms.
"""

import math

import numpy as np
import torch
from torch import Tensor

from widefield_labs.pair_weights import kernel_features, kernel_terms

RADIAL, ANGULAR = 24, 32  # quadrature nodes
NUDGE = 1e-4  # rad


def log_density(coefficients: Tensor, r: Tensor, theta: Tensor, radius: float) -> Tensor:
    """Return sum_k c_k (r/C0)^k cos(k theta), [J, Q]: even across e_1 whatever the c [J, K]."""
    k = torch.arange(1, coefficients.shape[-1] + 1, dtype=r.dtype).unsqueeze(-1)
    return coefficients @ ((r / radius) ** k * torch.cos(k * theta))


def legendre(nodes: int, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Return Gauss-Legendre nodes and weights on [low, high], [`nodes`] both."""
    t, weight = (torch.from_numpy(v) for v in np.polynomial.legendre.leggauss(nodes))
    return (low + high) / 2 + (high - low) / 2 * t, (high - low) / 2 * weight


def half_disc(coefficients: Tensor, angle: float, radius: float) -> tuple[Tensor, Tensor]:
    """Return points [Q, 2] of the half of the disc around the direction `angle`, with mass [J, Q].

    The mass is not yet normalized. The angles are cut where e_1.x = 0, at which alpha has a kink.
    """
    low, high = angle - math.pi / 2, angle + math.pi / 2
    cut = math.copysign(math.pi / 2, angle)
    r, r_weight = legendre(RADIAL, 0, radius)
    parts = [legendre(ANGULAR, *ends) for ends in ((low, cut), (cut, high))]
    theta, theta_weight = (torch.cat(both) for both in zip(*parts, strict=True))
    area = torch.outer(r * r_weight, theta_weight).flatten()
    r, theta = (grid.flatten() for grid in torch.meshgrid(r, theta, indexing="ij"))
    x = torch.stack([r * torch.cos(theta), r * torch.sin(theta)], dim=-1)
    return x, torch.exp(log_density(coefficients, r, theta, radius)) * area


def kernel(x1: Tensor, radius: float, temperature: float | None) -> Tensor:
    """Return phi_l [L, Q] of alpha at w = e_1, for points with first coordinate `x1` [Q].

    Gaussian alpha with tau = temperature * radius^2, or uniform alpha for None.
    """
    if temperature is None:
        return torch.ones_like(x1).unsqueeze(0)
    terms = kernel_terms(1.0, temperature)
    return kernel_features((x1 / radius).clamp_min(0), temperature, terms)


def plane_moments(coefficients: Tensor, radius: float) -> tuple[Tensor, Tensor]:
    """Return the largest density on e_1.x = 0 and int x_2^2 p over it, [J], not normalized."""
    r, weight = legendre(60, 0, radius)
    p = torch.exp(log_density(coefficients, r, torch.full_like(r, math.pi / 2), radius))
    return p.amax(-1), 2 * (p * r.square() * weight).sum(-1)


def mean_weight(
    halves: list[tuple[Tensor, Tensor]], radius: float, temperature: float | None
) -> Tensor:
    """Return int exp(-h(e_1.x)^2/(2 tau)) over mass [J, Q] on points: z_0 of Corollary 2, [J]."""
    tau = math.inf if temperature is None else temperature * radius**2
    weights = [torch.exp(-x[:, 0].clamp_min(0).square() / (2 * tau)) for x, _ in halves]
    parts = [mass @ weight for (_, mass), weight in zip(halves, weights, strict=True)]
    return torch.stack(parts).sum(0)


def disc(coefficients: Tensor, radius: float, temperature: float | None) -> dict[str, Tensor]:
    """Measure what Theorems 1 and 2 and Corollary 2 speak of, at w = e_1, for J densities: [J]."""
    halves = [half_disc(coefficients, angle, radius) for angle in (0.0, math.pi)]
    total = sum((mass.sum(-1, keepdim=True) for _, mass in halves), torch.zeros(1))
    z = sum(mass / total @ kernel(x[:, 0], radius, temperature).mT for x, mass in halves)
    assert isinstance(z, Tensor)

    def moments(angle: float) -> tuple[Tensor, Tensor]:
        """Return A(v) [J, 2, 2] of v at `angle`, and E[phi_l x 1(v.x > 0)] [J, L, 2]."""
        x, mass = half_disc(coefficients, angle, radius)
        phi = kernel(x[:, 0], radius, temperature)
        px = (mass / total).unsqueeze(-1) * x
        first = phi @ px
        return ((z @ phi).unsqueeze(-1) * px).mT @ x - first.mT @ first, first

    a, first = moments(0.0)
    moved, force = [], []
    for angle in (NUDGE, -NUDGE):
        v = torch.tensor([math.cos(angle), math.sin(angle)], dtype=a.dtype)
        across = torch.tensor([-math.sin(angle), math.cos(angle)], dtype=a.dtype)
        moved.append(moments(angle)[0])
        force.append((moved[-1] @ v) @ across / angle)
    # Both sides have the same slope here; their difference is free of the second order.
    change = (moved[0] - moved[1])[..., 0].square().sum(-1).sqrt() / (4 * math.sin(NUDGE / 2))
    largest, second_moment = (
        value / total.squeeze(-1) for value in plane_moments(coefficients, radius)
    )
    # r of Theorem 2 needs alpha's kernel on the plane e_1.x = 0, where points change sides.
    on_plane = kernel(torch.zeros(1, dtype=a.dtype), radius, temperature).squeeze(-1)
    return {
        "top": a[:, 0, 0],
        "gap": a[:, 0, 0] - a[:, 1, 1],
        "roughness": change,
        "roughness_law": first[:, 0, 0] * second_moment,
        "pull": -torch.stack(force).mean(0),
        "z0": mean_weight(halves, radius, temperature) / total.squeeze(-1),
        "r": (z * on_plane).sum(-1) * largest,
    }
