"""The gradients of pair losses, each the ascent of a contrastive covariance (Tian 2022, eq. 2).

A loss sum_i phi(sum_{j != i} psi(d_i^2 - d_ij^2)) has the gradient sum_ij alpha_ij grad(d_i^2 -
d_ij^2) = -N^2 grad tr C_alpha[f] with alpha_ij = phi' psi' held fixed. InfoNCE is one of them, and

    triplet        sum_ij max(s_ij + tau, 0)             alpha_ij = [s_ij + tau > 0]
    soft triplet   tau sum_ij log(1 + exp(s_ij/tau))     alpha_ij = sigmoid(s_ij/tau)

with s_ij = d_i^2 - d_ij^2; tau is the triplet's margin.

Shapes: N pairs, D outputs, P nets, E values of eps.
"""

import itertools
import math

import torch
from torch import Generator, Tensor
from torch.nn import functional

from widefield.methods.alpha_cl import alpha_cl, pair_importance
from widefield.methods.infonce import infonce
from widefield_labs.lab import Arrays
from widefield_labs.pair_weights import contrastive_covariance, squared_distances

EPSILONS = (0.0, 0.5, 1.0)
TEMPERATURES = (0.1, 0.3, 1.0, 3.0)
WIDTHS = (6, 16, 4)  # of the two-layer nets whose gradients are compared


def infonce_weights(f: Tensor, f2: Tensor, *, temperature: float, eps: float) -> Tensor:
    """Return the weights alpha [N, N] of InfoNCE, without gradient; alpha_ii = 0.

    alpha_ij = exp(-d_ij^2/tau)/(eps exp(-d_i^2/tau) + Z_i) is the library's importance, whose rows
    sum to 1, times the share of the negatives Z_i in the denominator.
    """
    alpha = pair_importance(f, f, kind="infonce", temperature=temperature)
    f, f2 = f.detach(), f2.detach()
    log_eps = math.log(eps) if eps > 0 else -math.inf
    positive = log_eps - (f - f2).square().sum(-1) / 2 / temperature
    others = -squared_distances(f) / (2 * temperature)
    itself = torch.eye(len(f), dtype=torch.bool)
    negatives = torch.logsumexp(others.masked_fill(itself, -math.inf), dim=-1)
    # Z/(eps exp(-d_i^2/tau) + Z) by its logarithms, which neither overflows nor divides 0 by 0.
    return alpha * torch.sigmoid(negatives - positive).unsqueeze(-1)


def energy(f: Tensor, f2: Tensor, alpha: Tensor) -> Tensor:
    """Return tr C_alpha[f], [...]: what alpha-CL ascends with alpha held fixed (eq. 2)."""
    trace = contrastive_covariance(f, f2, alpha).diagonal(dim1=-2, dim2=-1)
    return trace.sum(-1)


def shortfalls(f: Tensor, f2: Tensor) -> Tensor:
    """Return s_ij = d_i^2 - d_ij^2 of f, f2 [N, D], [N, N]; minus infinity where i = j."""
    shortfall = ((f - f2).square().sum(-1, keepdim=True) - squared_distances(f)) / 2
    return shortfall.masked_fill(torch.eye(len(f), dtype=torch.bool), -math.inf)


def triplet(f: Tensor, f2: Tensor, *, margin: float) -> tuple[Tensor, Tensor]:
    """Return the triplet loss over all negatives, a sum, and its alpha [N, N]."""
    over = shortfalls(f, f2) + margin
    return functional.relu(over).sum(), (over > 0).to(f.dtype)


def soft_triplet(f: Tensor, f2: Tensor, *, temperature: float) -> tuple[Tensor, Tensor]:
    """Return the triplet loss with a softened edge, a sum, and its alpha [N, N]."""
    shortfall = shortfalls(f, f2) / temperature
    return -temperature * functional.logsigmoid(-shortfall).sum(), torch.sigmoid(shortfall).detach()


def flat_gradient(values: list[Tensor], weights: tuple[Tensor, Tensor]) -> Tensor:
    """Return the gradient of each value with respect to its own net, [P, T, E, G]."""
    # Nets are independent, so that the gradient of the sum holds the gradient of each.
    parts = torch.autograd.grad(torch.stack(values).sum(), weights, retain_graph=True)
    return torch.cat([part.flatten(-2) for part in parts], dim=-1)


def triplet_gradients(*, nets: int, pairs: int, generator: Generator) -> Arrays:
    """Compare the parameter gradients of both triplet losses and of the energy on random nets.

    Returns `triplet_error` and `soft_triplet_error`, |grad L + N^2 grad E|/|grad L|, [P, T, E].
    """
    weights, f, f2 = random_nets(nets=nets, pairs=pairs, generator=generator)
    arrays = {}
    for name, loss in (("triplet", triplet), ("soft_triplet", soft_triplet)):
        setting = "margin" if loss is triplet else "temperature"
        losses, energies = [], []
        settings = itertools.product(range(nets), TEMPERATURES, EPSILONS)
        for z, z2, (_, tau, _) in zip(f.flatten(0, 2), f2.flatten(0, 2), settings, strict=True):
            value, alpha = loss(z, z2, **{setting: tau})
            losses.append(value)
            energies.append(energy(z, z2, alpha))
        of_loss = flat_gradient(losses, weights)
        gap = of_loss + pairs**2 * flat_gradient(energies, weights)
        size = torch.linalg.vector_norm(of_loss, dim=-1)
        arrays[f"{name}_error"] = (torch.linalg.vector_norm(gap, dim=-1) / size).numpy()
    return arrays


def random_nets(
    *, nets: int, pairs: int, generator: Generator
) -> tuple[tuple[Tensor, Tensor], Tensor, Tensor]:
    """Return the weights of random two-layer tanh nets and both views' outputs [..., N, D].

    The leading dimensions are `nets`, the temperatures and the eps: every setting has its own nets,
    its own examples and its own views.
    """
    lead = (nets, len(TEMPERATURES), len(EPSILONS))
    inputs, hidden, outputs = WIDTHS

    def normal(*shape: int) -> Tensor:
        return torch.randn(*lead, *shape, generator=generator, dtype=torch.float64)

    first = (normal(inputs, hidden) / math.sqrt(inputs)).requires_grad_()
    second = (normal(hidden, outputs) / math.sqrt(hidden)).requires_grad_()
    x0 = normal(pairs, inputs)
    f, f2 = (torch.tanh((x0 + 0.5 * normal(pairs, inputs)) @ first) @ second for _ in range(2))
    return (first, second), f, f2


def gradients(*, nets: int, pairs: int, generator: Generator) -> Arrays:
    """Compare the parameter gradients of InfoNCE, alpha-CL and the energy on random nets.

    Returns, each [nets, temperatures, eps]: `gradient_error`, |grad L + N^2 grad E|/|grad L|;
    `gradient_ratio`, the c of the best fit grad L = -c N^2 grad E; and `alpha_cl_error`, the
    relative error of alpha-CL's gradient, which is -N^2 grad E over the sum of alpha.
    """
    weights, f, f2 = random_nets(nets=nets, pairs=pairs, generator=generator)
    losses, energies, descents = [], [], []
    settings = itertools.product(range(nets), TEMPERATURES, EPSILONS)
    for z, z2, (_, tau, eps) in zip(f.flatten(0, 2), f2.flatten(0, 2), settings, strict=True):
        alpha = infonce_weights(z, z2, temperature=tau, eps=eps)
        losses.append(pairs * infonce(z, z2, temperature=tau, eps=eps))  # eq. 1 is a sum
        energies.append(energy(z, z2, alpha))
        descents.append(alpha.sum() * alpha_cl(z, z2, alpha))
    of_loss, of_energy, of_alpha_cl = (
        flat_gradient(values, weights) for values in (losses, energies, descents)
    )
    predicted = -(pairs**2) * of_energy
    size = torch.linalg.vector_norm(of_loss, dim=-1)
    ratio = (of_loss * predicted).sum(-1) / predicted.square().sum(-1)
    return {
        "gradient_error": (torch.linalg.vector_norm(of_loss - predicted, dim=-1) / size).numpy(),
        "gradient_ratio": ratio.numpy(),
        "alpha_cl_error": (
            torch.linalg.vector_norm(of_alpha_cl - predicted, dim=-1) / size
        ).numpy(),
    }
