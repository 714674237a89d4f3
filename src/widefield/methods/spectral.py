"""The spectral contrastive loss: views of one example align, views of two are orthogonal."""

import math
from typing import Self

import torch
from torch import Tensor, nn

from widefield.methods.base import Method, RunFacts
from widefield.methods.gather import gather
from widefield.methods.precision import full_precision
from widefield.methods.projector import recipe_projector
from widefield.recipe import Recipe
from widefield.types import Loss

SQUARED_RADIUS = 10.0
"""HaoChen et al.'s mu, for projections that are larger than ours by sqrt(b)."""


@full_precision
def spectral_contrastive(z1: Tensor, z2: Tensor) -> Tensor:
    """Spectral contrastive loss of two views' projections, [b, m] each, not normalised.

        loss = 1/b ( -sum_i z1_i.z2_i + 1/2 sum_ij (z1_i.z2_j)^2 ),

    which is b times -E[[i = j] z1_i.z2_j] + 1/2 E[(z1_i.z2_j)^2] over the b^2 pairs of the batch.
    The scaling is S-DIET's, with which the best projections have norm 1 for b orthogonal
    examples, as DIET's with squared error have. HaoChen et al. take each expectation over pairs
    of its own kind, -2 E[z.z+] + E[(z.z')^2]: twice the same loss, of projections larger by
    sqrt(b).

    Example:
        >>> z = torch.eye(4)
        >>> float(spectral_contrastive(z, z)), float(spectral_contrastive(2 * z, 2 * z))
        (-0.5, 4.0)

    Source: S-DIET (2025), equation 2 and appendix A.2; HaoChen et al. (2021), equation 6.
    """
    inner = z1 @ z2.T
    return (inner.square().sum() / 2 - inner.diagonal().sum()) / len(z1)


@full_precision
def in_ball(z: Tensor, radius: float) -> Tensor:
    """Rows z [b, m], those longer than `radius` shortened to it.

    Example:
        >>> in_ball(torch.tensor([[3.0, 4.0], [0.3, 0.4]]), 1.0).tolist()
        [[0.6000000238418579, 0.800000011920929], [0.30000001192092896, 0.4000000059604645]]
    """
    norm = z.norm(dim=1, keepdim=True)
    return torch.where(norm > radius, z * (radius / norm), z)


class Spectral(Method):
    """The spectral contrastive loss on the projections of two views, held in a ball.

    The ball's radius is sqrt(10 / b), that of HaoChen et al.'s code in S-DIET's scaling. The loss
    grows with the fourth power of the projections, so that without a ball training has little to
    do but to shrink them.

    Args:
        projector: maps h [B, D] to [B, m].
        gather: in several processes, tell the examples of all their batches apart.

    Source: HaoChen et al. (2021), S-DIET's scaling (2025).
    """

    view_count = 2

    def __init__(self, *, projector: nn.Module, gather: bool = False) -> None:
        super().__init__()
        self.projector = projector
        self.gather = gather

    @classmethod
    def from_recipe(cls, recipe: Recipe, facts: RunFacts) -> Self:
        """The method as a run of `recipe` uses it."""
        return cls(projector=recipe_projector(recipe, facts.feature_dim), gather=recipe.gather)

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """The spectral contrastive loss; both views share one pass and its batch statistics."""
        z1, z2 = self.projector(encoder(torch.cat(views))).chunk(2)
        if self.gather:
            z1, z2 = gather(z1), gather(z2)
        radius = math.sqrt(SQUARED_RADIUS / len(z1))
        z1, z2 = in_ball(z1, radius), in_ball(z2, radius)
        return Loss(spectral_contrastive(z1, z2))
