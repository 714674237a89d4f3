"""InfoNCE of squared distances, as analyzed by Tian; negatives are of the anchor's view."""

import math
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Tensor
from torch.nn import functional

from widefield.core.batch import ContrastedRows, checked
from widefield.core.precision import full_precision
from widefield.methods.pair import Compare, PairConfig, PairMethod


def half_squared_distances(f: Tensor) -> Tensor:
    """Return d_ij^2 = |f[i] - f[j]|^2 / 2 of the rows of f [b, m], [b, b]."""
    half = f.square().sum(1) / 2
    return half[:, None] + half - f @ f.T


@checked
@full_precision
def infonce(
    f: ContrastedRows,
    f2: ContrastedRows,
    *,
    temperature: Annotated[float, Gt(0)],
    eps: Annotated[float, Ge(0)],
) -> Tensor:
    """Return the InfoNCE loss of anchors f [b, m], whose other views have projections f2 [b, m].

    With d_ij^2 = |f[i] - f[j]|^2 / 2, d_i^2 = |f[i] - f2[i]|^2 / 2 and t the temperature,

        loss = -t/b sum_i log( exp(-d_i^2/t) / (eps exp(-d_i^2/t) + sum_{j != i} exp(-d_ij^2/t)) ).

    Equation 1 is b times that. With eps = 0 the gradient is that of `alpha_cl` with InfoNCE's
    pair importance.

    Example:
        >>> float(infonce(torch.zeros(3, 2), torch.zeros(3, 2), temperature=1.0, eps=0.0))
        0.6931471824645996

    Source: Tian (2022), equation 1.
    """
    positive = (f - f2).square().sum(1) / 2
    others = (-half_squared_distances(f) / temperature).fill_diagonal_(-math.inf)
    log_sum = torch.logsumexp(others, dim=1)
    if eps > 0:
        log_sum = torch.logaddexp(math.log(eps) - positive / temperature, log_sum)
    return (positive + temperature * log_sum).mean()


@checked
@full_precision
def symmetric_infonce(
    z1: ContrastedRows,
    z2: ContrastedRows,
    *,
    temperature: Annotated[float, Gt(0)],
    eps: Annotated[float, Ge(0)],
) -> Tensor:
    """Return the mean of `infonce` over both choices of the anchor, of z [b, m] scaled to norm 1.

    Example:
        >>> z1, z2 = torch.eye(4), torch.eye(4).roll(1, 0)
        >>> loss = symmetric_infonce(z1, z2, temperature=0.5, eps=1.0)
        >>> torch.equal(loss, symmetric_infonce(z2, z1, temperature=0.5, eps=1.0))
        True

    Source: Tian (2022), section 2.
    """
    f1, f2 = functional.normalize(z1, dim=1), functional.normalize(z2, dim=1)
    loss = partial(infonce, temperature=temperature, eps=eps)
    return (loss(f1, f2) + loss(f2, f1)) / 2


@dataclass(frozen=True, kw_only=True)
class InfoNCEConfig(PairConfig):
    """Settings of `InfoNCE`."""

    name: ClassVar[str] = "infonce"

    temperature: Annotated[float, Gt(0)] = 0.1
    """Temperature of the softmax."""
    eps: Annotated[float, Ge(0)] = 1.0
    """Weight of the positive pair among the negatives; 0 leaves it out, 1 is InfoNCE."""

    def pair_loss(self) -> Compare:
        return partial(symmetric_infonce, temperature=self.temperature, eps=self.eps)


class InfoNCE(PairMethod[InfoNCEConfig]):
    """InfoNCE on the unit sphere, each view the anchor in turn.

    Example:
        >>> views = list(torch.rand(2, 4, 8))
        >>> InfoNCE(8, temperature=0.2)(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: Tian (2022), section 2.
    """

    config_class = InfoNCEConfig
