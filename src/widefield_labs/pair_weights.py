"""The contrastive covariance of any pair weights, and Gaussian pair weights with their expansion.

Source: Tian, "Understanding the role of nonlinearity in training dynamics of contrastive learning"
(2022), equation 3 and Lemma 1.

Shapes: N pairs, D features, L terms of the kernel.
"""

import math

import torch
from torch import Tensor


def contrastive_covariance(g: Tensor, g2: Tensor, alpha: Tensor) -> Tensor:
    """Return C_alpha[g] (eq. 3), [..., D, D], of both views' features [..., N, D].

    alpha is [..., N, N].
    """
    rows, both = alpha.sum(-1), alpha.sum(-1) + alpha.sum(-2)
    between = (g * both.unsqueeze(-1)).mT @ g - g.mT @ (alpha + alpha.mT) @ g
    within = ((g - g2) * rows.unsqueeze(-1)).mT @ (g - g2)
    return (between - within) / (2 * g.shape[-2] ** 2)


def squared_distances(x: Tensor) -> Tensor:
    """Return |x[i] - x[j]|^2 of [..., N, D], [..., N, N]."""
    norms = x.square().sum(-1)
    return norms.unsqueeze(-1) + norms.unsqueeze(-2) - 2 * x @ x.mT


def gaussian_weights(x0: Tensor, temperature: float) -> Tensor:
    """Return alpha_ij = exp(-|x0[i] - x0[j]|^2/(2 tau)) of examples [..., N, d] (Lemma 1)."""
    return torch.exp(-squared_distances(x0) / (2 * temperature))


def kernel_terms(largest: float, temperature: float) -> int:
    """Return how many phi_l leave less than rounding out, for arguments in [0, largest]."""
    most = largest**2 / temperature  # the mean of the Poisson law that phi_l^2 is
    return int(most + 12 * math.sqrt(most) + 40)


def kernel_features(y: Tensor, temperature: float, terms: int) -> Tensor:
    """Return phi_l(y) of the Gaussian kernel for l < `terms`, [L, ...], y >= 0 (eq. 13).

    phi_l = exp(-y^2/(2 tau)) y^l/sqrt(tau^l l!). Over all l, the products phi_l(y) phi_l(y') sum to
    exp(-(y - y')^2/(2 tau)).
    """
    order = torch.arange(terms, dtype=y.dtype).view(-1, *[1] * y.dim())
    ratio = torch.where(order == 0, 1.0, y / (temperature * order.clamp_min(1)).sqrt())
    return torch.exp(-y.square() / (2 * temperature)) * ratio.cumprod(0)
