"""Barlow Twins: the cross-correlation matrix of two views' projections is the identity."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch
from annotated_types import Gt
from torch import Tensor

from widefield.core.batch import ContrastedRows, checked
from widefield.core.precision import full_precision
from widefield.methods.pair import Compare, PairConfig, PairMethod
from widefield.methods.projector import ProjectorConfig


def standardize(z: Tensor) -> Tensor:
    """Return z [b, m] with every column shifted and scaled to mean 0 and variance 1 over the batch.

    As in batch normalization, 1e-5 is added to the variance, which is biased.
    """
    centered = z - z.mean(0)
    return centered * torch.rsqrt(centered.square().mean(0) + 1e-5)


@checked
@full_precision
def barlow_twins(
    z1: ContrastedRows, z2: ContrastedRows, *, off_diagonal_weight: Annotated[float, Gt(0)]
) -> Tensor:
    """Return the distance of two views' cross-correlation from the identity, projections [b, m].

    With the columns of z1 and z2 standardized over the batch,

        c = z1^T z2 / b,
        loss = sum_i (1 - c_ii)^2 + off_diagonal_weight sum_{i != j} c_ij^2.

    The 1e-5 added to each variance is from the authors' code; the paper has none.

    Example:
        >>> z = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
        >>> z = torch.linalg.qr(z - z.mean(0)).Q  # uncorrelated columns
        >>> bool(barlow_twins(z, z, off_diagonal_weight=1.0) < 1e-4)
        True

    Source: Barlow Twins (Zbontar et al. 2021), equations 1 and 2.
    """
    c = standardize(z1).T @ standardize(z2) / len(z1)
    on_diagonal = (1 - c.diagonal()).square().sum()
    off_diagonal = c.square().sum() - c.diagonal().square().sum()
    return on_diagonal + off_diagonal_weight * off_diagonal


@dataclass(frozen=True, kw_only=True)
class BarlowTwinsConfig(PairConfig):
    """Settings of `BarlowTwins`."""

    name: ClassVar[str] = "barlow-twins"

    projector: ProjectorConfig = ProjectorConfig(dim=512)
    # As published, where it was the best of a search (Zbontar et al. 2021, section 2.2).
    off_diagonal_weight: Annotated[float, Gt(0)] = 0.005
    """Weight of the correlations between different dimensions; the paper's lambda."""

    def pair_loss(self) -> Compare:
        return partial(barlow_twins, off_diagonal_weight=self.off_diagonal_weight)


class BarlowTwins(PairMethod[BarlowTwinsConfig]):
    """Barlow Twins' loss on the projections of two views.

    Each view has batch statistics of its own, as published.

    Example:
        >>> views = list(torch.rand(2, 4, 8))
        >>> BarlowTwins(8)(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: Barlow Twins (Zbontar et al. 2021).
    """

    config_class = BarlowTwinsConfig
    one_pass = False
