"""Sums of many terms w_i / (s_i x + eps) as sums of a few terms of the same form.

In u = log s a term is a logistic curve, 1 / (x e^u + eps), whose poles are at least pi away from
the real axis whatever x and eps are. Interpolation of it at K Chebyshev points of a range of half
width h therefore errs by rho^-K with

    rho = pi / h + sqrt(1 + (pi / h)^2),

relative to its value. The interpolating polynomial is a sum over its K nodes t_k, so

    sum_i w_i / (s_i x + eps) = sum_k W_k / (e^(t_k) x + eps),    W_k = sum_i w_i L_k(log s_i),

with the Lagrange polynomials L_k, for every x at once. By the orthogonality of the Chebyshev
polynomials T_p over their points z_k = cos(pi (k + 1/2) / K),

    W_k = 1/K sum_i w_i + 2/K sum_{p=1}^{K-1} T_p(z_k) sum_i w_i T_p(z(log s_i)).

Source: Trefethen, Approximation Theory and Approximation Practice (2013), chapters 3 and 8.
"""

import math

import torch
from torch import Tensor


def node_count(half_width: float, dtype: torch.dtype) -> int:
    """Return the number K of nodes for a sum that is exact up to the rounding of `dtype`."""
    log_rho = math.asinh(math.pi / half_width)  # log(x + sqrt(1 + x^2))
    # As many as make rho^-K an eighth of the rounding, so that the sum is rounded as if exact.
    return math.ceil(math.log(8 / torch.finfo(dtype).eps) / log_rho)


def merge_terms(weight: Tensor, log_shrink: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Return weights and s, [b, K] each, of the few terms that sum to the many of each row.

    The many are w_i and log s_i, [terms, b], descending; a term that a row does not have has the
    weight 0. All are float64, and `dtype` is the type of the sum.
    """
    first = log_shrink[0]
    half = float((first - log_shrink).mul_(weight != 0).max()) / 2  # one for all rows
    count = node_count(half, dtype) if half > 0 else 1
    if count >= len(weight):
        return weight.T, log_shrink.T.exp()
    angle = math.pi * (torch.arange(count, dtype=torch.float64) + 0.5) / count
    shrink = (first[:, None] + half * (angle.cos() - 1)).exp()
    z = (log_shrink - first).div_(half).add_(1)
    moments = torch.empty(count, weight.shape[1], dtype=torch.float64)
    # T_p+1 = 2 z T_p - T_p-1 in place of cosines: K products in place of K inverse cosines.
    before, term = z * weight, weight  # T_-1 = T_1
    twice = z.mul_(2)
    for p in range(count):
        moments[p] = term.sum(0)
        before, term = term, torch.addcmul(before.neg(), twice, term)
    lagrange = (angle[:, None] * torch.arange(count)).cos_().mul_(2 / count)
    lagrange[:, 0] = 1 / count
    return (lagrange @ moments).T, shrink
