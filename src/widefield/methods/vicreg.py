"""VICReg: two views' projections are alike, every dimension varies, and no two vary together."""

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widefield.methods.base import Method, RunFacts
from widefield.methods.gather import gather
from widefield.methods.precision import full_precision
from widefield.methods.projector import recipe_projector
from widefield.recipe import Recipe
from widefield.types import Loss


def variance(z: Tensor) -> Tensor:
    """How far the deviations of the columns of z [b, m] fall short of 1 (equation 1):

    v = 1/m sum_j max(0, 1 - sqrt(Var z_j + 1e-4)), the variance unbiased.
    """
    return F.relu(1 - torch.sqrt(z.var(0) + 1e-4)).mean()


def covariance(z: Tensor) -> Tensor:
    """Squared covariances between different columns of z [b, m] (equations 3 and 4):

    c = 1/m sum_{i != j} C_ij^2, C the unbiased covariance.
    """
    centred = z - z.mean(0)
    cov = centred.T @ centred / (len(z) - 1)
    return (cov.square().sum() - cov.diagonal().square().sum()) / z.shape[1]


@full_precision
def vicreg(
    z1: Tensor,
    z2: Tensor,
    *,
    redundancy_weight: float,
    invariance_weight: float = 25.0,
    variance_weight: float = 25.0,
) -> Tensor:
    """Variance, invariance and covariance of two views' projections, [b, m] each.

        loss = invariance_weight 1/(b m) sum_i |z1_i - z2_i|^2
             + variance_weight (v(z1) + v(z2)) / 2
             + redundancy_weight (c(z1) + c(z2)).

    This is the authors' code, with which the weights 25, 25 and 1 were chosen. Their paper
    (equations 5 and 6) divides the first term by b alone and does not halve the second.

    Example:
        >>> z = 4 * torch.eye(4)
        >>> bool(vicreg(z, z, redundancy_weight=1.0) < vicreg(z, -z, redundancy_weight=1.0))
        True

    Source: VICReg (Bardes et al. 2022), section 4.1.
    """
    return (
        invariance_weight * F.mse_loss(z1, z2)
        + variance_weight * (variance(z1) + variance(z2)) / 2
        + redundancy_weight * (covariance(z1) + covariance(z2))
    )


class VicReg(Method):
    """VICReg's loss on the projections of two views.

    Args:
        projector: maps h [B, D] to [B, m].
        redundancy_weight: of the covariances; 1 as published.
        gather: in several processes, take the statistics of all their batches.

    Source: VICReg (Bardes et al. 2022).
    """

    view_count = 2

    def __init__(
        self, *, projector: nn.Module, redundancy_weight: float, gather: bool = False
    ) -> None:
        super().__init__()
        self.projector = projector
        self.redundancy_weight = redundancy_weight
        self.gather = gather

    @classmethod
    def from_recipe(cls, recipe: Recipe, facts: RunFacts) -> Self:
        """The method as a run of `recipe` uses it."""
        head = recipe_projector(recipe, facts.feature_dim)
        return cls(projector=head, redundancy_weight=recipe.redundancy_weight, gather=recipe.gather)

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """VICReg's loss; each view has batch statistics of its own, as published."""
        z1, z2 = (self.projector(encoder(view)) for view in views)
        if self.gather:
            z1, z2 = gather(z1), gather(z2)
        return Loss(vicreg(z1, z2, redundancy_weight=self.redundancy_weight))
