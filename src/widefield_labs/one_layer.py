"""The one-layer gated network of Tian (2022): its data, its covariance and its dynamics.

A row w, |w| = 1, has the activation h(t) = h'(t) t (Assumption 1): here h'(t) = t^(k-1) above zero
and `slope` times that below. ReLU has slope 0 and power k = 1, a linear row slope 1; slope 1 makes
the monomial t^k, whose derivative is h' up to the constant k. With uniform pair weights and no
augmentation a row's contrastive covariance and its dynamics are

    A(w) = Var[x h'(w.x)],    dw/dt = (I - w w^T) A(w) w                                     (7)

A locally maximal eigenvector (LME) is a w that is the top eigenvector of A(w), with a simple
eigenvalue (Definition 3). The data are atoms x with probabilities p, or atoms with normal noise.

Source: Tian, "Understanding the role of nonlinearity in training dynamics of contrastive learning"
(2022), Definition 3, equation 7, Appendix B.1 and B.2.

Shapes: M features, n atoms, d dimensions, R rows.
"""

import math

import torch
from torch import Tensor
from torch.nn.functional import normalize

CRITICAL_RATE = (3 - math.sqrt(5)) / 2
"""The rate q at which (1 - q)^2 = q: below it a feature of the summation model is an LME."""


def categorical(probability: Tensor) -> tuple[Tensor, Tensor]:
    """Return atoms [M, M] and probabilities [M] of x = u_m with probability p_m."""
    return torch.eye(len(probability), dtype=probability.dtype), probability


def summation(rate: Tensor) -> tuple[Tensor, Tensor]:
    """Return atoms [..., 2^M, M] and probabilities [..., 2^M] of x = sum_m y_m u_m, rates [..., M].

    y_m is sqrt((1 - q_m)/q_m) with probability q_m, else -sqrt(q_m/(1 - q_m)): mean 0, variance 1.
    """
    features = rate.shape[-1]
    on = torch.cartesian_prod(*[torch.tensor([False, True])] * features).view(-1, features)
    q = rate.unsqueeze(-2)
    atoms = torch.where(on, ((1 - q) / q).sqrt(), -(q / (1 - q)).sqrt())
    return atoms, torch.where(on, q, 1 - q).prod(-1)


def gated_covariance(
    w: Tensor, x: Tensor, p: Tensor, *, slope: float = 0.0, power: int = 1
) -> Tensor:
    """Return A(w) [..., d, d] of rows `w` [..., d] over atoms [..., n, d] of weights [..., n].

    h'(0) = 0 for ReLU.
    """
    scores = (x @ w.unsqueeze(-1)).squeeze(-1)
    gate = torch.where(scores > 0, 1.0, slope).to(x.dtype) * scores ** (power - 1)
    gated = gate.unsqueeze(-1) * x
    weighted = p.unsqueeze(-1) * gated
    mean = weighted.sum(-2)
    return weighted.mT @ gated - mean.unsqueeze(-1) * mean.unsqueeze(-2)


def smooth_covariance(w: Tensor, atoms: Tensor, p: Tensor, noise: Tensor) -> Tensor:
    """Return A(w) = Var[x 1(w.x > 0)] of x = atom + noise * N(0, I), [..., d, d].

    `w` [..., d] counts by its direction; `atoms` [..., n, d] of weights `p` [n]; `noise` [...].
    An atom a has score t = w.a/noise, and with Phi, phi the normal distribution and density
    E[xi 1] = phi w and E[xi xi^T 1] = Phi I - t phi w w^T.
    """
    w = normalize(w, dim=-1)
    sigma = noise.clamp_min(1e-12).unsqueeze(-1)  # then Phi is the step function itself
    t = (atoms @ w.unsqueeze(-1)).squeeze(-1) / sigma
    inside: Tensor = p * torch.special.ndtr(t)
    edge: Tensor = p * torch.exp(-t.square() / 2) / math.sqrt(2 * math.pi)
    first = (inside.unsqueeze(-1) * atoms).sum(-2) + sigma * edge.sum(-1, keepdim=True) * w
    cross = (sigma * (edge.unsqueeze(-1) * atoms).sum(-2)).unsqueeze(-1) * w.unsqueeze(-2)
    along = (sigma**2 * (t * edge).sum(-1, keepdim=True)).unsqueeze(-1)
    second = (inside.unsqueeze(-1) * atoms).mT @ atoms + cross + cross.mT
    isotropic = (sigma**2 * inside.sum(-1, keepdim=True)).unsqueeze(-1)
    second = second + isotropic * torch.eye(w.shape[-1], dtype=w.dtype)
    second = second - along * w.unsqueeze(-1) * w.unsqueeze(-2)
    return second - first.unsqueeze(-1) * first.unsqueeze(-2)


def ascent_direction(
    w: Tensor, x: Tensor, p: Tensor, *, slope: Tensor | float = 0.0, power: int = 1
) -> Tensor:
    """Return A(w) w of many rows `w` [..., R, d], without forming A: E[x~ h] - E[x~] E[h]."""
    scores = w @ x.mT
    gate = torch.where(scores > 0, torch.ones_like(scores), slope) * scores ** (power - 1)
    h, weighted = gate * scores, gate * p.unsqueeze(-2)
    mean_h = (p.unsqueeze(-2) * h).sum(-1, keepdim=True)
    return (weighted * (h - mean_h)) @ x


def ascend(
    w: Tensor,
    x: Tensor,
    p: Tensor,
    *,
    steps: int,
    step_size: float,
    slope: Tensor | float = 0.0,
    power: int = 1,
) -> Tensor:
    """Follow (7) from the unit rows `w` [..., R, d]: a step along A(w) w, then back to the sphere.

    A step is `step_size` in units of 1/(w.A(w) w), each row's own time scale; it bends no path.
    """
    for _ in range(steps):
        force = ascent_direction(w, x, p, slope=slope, power=power)
        # A row that no atom activates has no force; the floor keeps it where it is.
        speed = step_size / (w * force).sum(-1, keepdim=True).clamp_min(1e-12)
        w = normalize(w + speed * force, dim=-1)
    return w


def is_lme(a: Tensor, w: Tensor) -> Tensor:
    """Return whether `w` [..., d] is the simple top eigenvector of `a` [..., d, d]."""
    values, vectors = torch.linalg.eigh(a)
    along = (vectors[..., -1] * w).sum(-1).abs()
    # A tie has no top eigenvector: eigh returns one of many.
    return torch.logical_and(along > 1 - 1e-9, values[..., -1] - values[..., -2] > 1e-9)
