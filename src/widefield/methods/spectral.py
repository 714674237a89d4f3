"""The spectral contrastive loss: views of one example align, views of two are orthogonal."""

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from widefield.core.batch import Rows, checked
from widefield.core.precision import full_precision
from widefield.methods.pair import Compare, PairConfig, PairMethod

SQUARED_RADIUS = 10.0
"""HaoChen et al.'s mu, for projections that are larger than ours by sqrt(b)."""


@checked
@full_precision
def spectral_contrastive(z1: Rows, z2: Rows) -> Tensor:
    """Return the spectral contrastive loss of two views' projections, [b, m] each, not normalized.

        loss = 1/b ( -sum_i z1_i.z2_i + 1/2 sum_ij (z1_i.z2_j)^2 ),

    which is b times -E[[i = j] z1_i.z2_j] + 1/2 E[(z1_i.z2_j)^2] over the b^2 pairs of the batch.
    The scaling is S-DIET's, with which the best projections have norm 1 for b orthogonal
    examples, as DIET's with squared error have. HaoChen et al. take each expectation over pairs
    of its own kind, -2 E[z.z+] + E[(z.z')^2]: 2b times the same loss, of projections larger by
    sqrt(b).

    Example:
        >>> import torch
        >>> z = torch.eye(4)
        >>> float(spectral_contrastive(z, z)), float(spectral_contrastive(2 * z, 2 * z))
        (-0.5, 4.0)

    Source: S-DIET (2025), equation 2 and appendix A.2; HaoChen et al. (2021), equation 6.
    """
    inner = z1 @ z2.T
    return (inner.square().sum() / 2 - inner.diagonal().sum()) / len(z1)


def in_ball(z: Tensor, radius: float) -> Tensor:
    """Return the rows z [b, m], those longer than `radius` shortened to it."""
    squared = z.square().sum(1, keepdim=True)
    # Clamped before the root: the gradient of a norm is 0 / 0 at a zero row.
    return z * (radius / squared.clamp_min(radius**2).sqrt())


@checked
@full_precision
def spectral_in_ball(z1: Rows, z2: Rows) -> Tensor:
    """Return `spectral_contrastive` of projections [b, m] that are clipped to a ball.

    The ball's radius is sqrt(10 / b), that of HaoChen et al.'s code in S-DIET's scaling. The loss
    grows with the fourth power of the projections, so that without the ball most of the training
    only shrinks them.

    Example:
        >>> import torch
        >>> z = torch.tensor([[3.0, 0.0], [0.0, 3.0]])
        >>> torch.equal(spectral_in_ball(z, z), spectral_in_ball(2 * z, 2 * z))  # both are clipped
        True

    Source: HaoChen et al. (2021), S-DIET's scaling (2025).
    """
    radius = math.sqrt(SQUARED_RADIUS / len(z1))
    return spectral_contrastive(in_ball(z1, radius), in_ball(z2, radius))


@dataclass(frozen=True, kw_only=True)
class SpectralConfig(PairConfig):
    """Settings of `Spectral`."""

    name: ClassVar[str] = "spectral"

    def pair_loss(self) -> Compare:
        return spectral_in_ball


class Spectral(PairMethod[SpectralConfig]):
    """The spectral contrastive loss on the projections of two views.

    Example:
        >>> import torch
        >>> views = list(torch.rand(2, 4, 8))
        >>> Spectral(8)(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: HaoChen et al. (2021); S-DIET (2025), equation 2.
    """

    config_class = SpectralConfig
