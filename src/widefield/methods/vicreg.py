"""VICReg: two views' projections agree, dimensions have variance and no covariance."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt
from torch import Tensor

from widefield.core.batch import ContrastedRows, checked
from widefield.core.precision import full_precision
from widefield.methods.pair import Compare, PairConfig, PairMethod
from widefield.methods.projector import ProjectorConfig


def variance(z: Tensor) -> Tensor:
    """Return how far the deviations of the columns of z [b, m] fall short of 1 (equation 1):

    v = 1/m sum_j max(0, 1 - sqrt(Var z_j + 1e-4)), the variance unbiased.
    """
    return F.relu(1 - torch.sqrt(z.var(0) + 1e-4)).mean()


def covariance(z: Tensor) -> Tensor:
    """Return the squared covariances between different columns of z [b, m] (equations 3 and 4):

    c = 1/m sum_{i != j} C_ij^2, C the unbiased covariance.
    """
    centered = z - z.mean(0)
    cov = centered.T @ centered / (len(z) - 1)
    return (cov.square().sum() - cov.diagonal().square().sum()) / z.shape[1]


@checked
@full_precision
def vicreg(
    z1: ContrastedRows,
    z2: ContrastedRows,
    *,
    invariance_weight: Annotated[float, Ge(0)],
    variance_weight: Annotated[float, Ge(0)],
    cov_weight: Annotated[float, Ge(0)],
) -> Tensor:
    """Return the variance, invariance and covariance terms of two views' projections, [b, m] each.

        loss = invariance_weight 1/(b m) sum_i |z1_i - z2_i|^2
             + variance_weight (v(z1) + v(z2)) / 2
             + cov_weight (c(z1) + c(z2)).

    This is the authors' code, with which the weights 25, 25 and 1 were chosen. Their paper
    (equations 5 and 6) divides the first term by b alone and does not halve the second.

    Example:
        >>> z = 4 * torch.eye(4)
        >>> weights = {"invariance_weight": 25.0, "variance_weight": 25.0, "cov_weight": 1.0}
        >>> bool(vicreg(z, z, **weights) < vicreg(z, -z, **weights))
        True

    Source: VICReg (Bardes et al. 2022), section 4.1.
    """
    return (
        invariance_weight * F.mse_loss(z1, z2)
        + variance_weight * (variance(z1) + variance(z2)) / 2
        + cov_weight * (covariance(z1) + covariance(z2))
    )


@dataclass(frozen=True, kw_only=True)
class VICRegConfig(PairConfig):
    """Settings of `VICReg`."""

    name: ClassVar[str] = "vicreg"

    # 0.02 has a higher class accuracy and a lower digit accuracy (studies/results/
    # rate-vicreg.cpu.json).
    lr: Annotated[float, Gt(0)] = 6e-3
    projector: ProjectorConfig = ProjectorConfig(dim=512)
    # The three weights as published (Bardes et al. 2022, section 4.2).
    invariance_weight: Annotated[float, Gt(0)] = 25.0
    """Weight of the distance between the two views; the paper's lambda."""
    variance_weight: Annotated[float, Gt(0)] = 25.0
    """Weight of dimensions that vary too little; the paper's mu."""
    cov_weight: Annotated[float, Gt(0)] = 1.0
    """Weight of the covariances between different dimensions; the paper's nu."""

    def pair_loss(self) -> Compare:
        return partial(
            vicreg,
            invariance_weight=self.invariance_weight,
            variance_weight=self.variance_weight,
            cov_weight=self.cov_weight,
        )


class VICReg(PairMethod[VICRegConfig]):
    """VICReg's loss on the projections of two views.

    Each view has batch statistics of its own, as published.

    Example:
        >>> views = list(torch.rand(2, 4, 8))
        >>> VICReg(8)(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: VICReg (Bardes et al. 2022).
    """

    config_class = VICRegConfig
    one_pass = False
