"""Barlow Twins: two views' projections agree, dimension by dimension, and in no other way."""

from typing import Self

import torch
from torch import Tensor, nn

from widefield.methods.base import Method, RunFacts
from widefield.methods.gather import gather
from widefield.methods.precision import full_precision
from widefield.methods.projector import recipe_projector
from widefield.recipe import Recipe
from widefield.types import Loss


def standardise(z: Tensor) -> Tensor:
    """Every column of z [b, m] shifted and scaled to mean 0 and variance 1 over the batch.

    As in batch normalisation, 1e-5 is added to the variance, which is biased.
    """
    centred = z - z.mean(0)
    return centred * torch.rsqrt(centred.square().mean(0) + 1e-5)


@full_precision
def barlow_twins(z1: Tensor, z2: Tensor, *, redundancy_weight: float) -> Tensor:
    """Distance of the two views' cross-correlation from the identity; projections [b, m] each.

    With the columns of z1 and z2 standardised over the batch,

        c = z1^T z2 / b,
        loss = sum_i (1 - c_ii)^2 + redundancy_weight sum_{i != j} c_ij^2.

    The 1e-5 added to each variance is the authors' code's; the paper has none. Where the two
    agree, c is the same.

    Example:
        >>> z = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
        >>> z = torch.linalg.qr(z - z.mean(0)).Q  # uncorrelated columns
        >>> bool(barlow_twins(z, z, redundancy_weight=1.0) < 1e-4)
        True

    Source: Barlow Twins (Zbontar et al. 2021), equations 1 and 2.
    """
    c = standardise(z1).T @ standardise(z2) / len(z1)
    on_diagonal = (1 - c.diagonal()).square().sum()
    off_diagonal = c.square().sum() - c.diagonal().square().sum()
    return on_diagonal + redundancy_weight * off_diagonal


class BarlowTwins(Method):
    """Barlow Twins' loss on the projections of two views.

    Args:
        projector: maps h [B, D] to [B, m].
        redundancy_weight: of the correlations off the diagonal.
        gather: in several processes, take the statistics of all their batches.

    Source: Barlow Twins (Zbontar et al. 2021).
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
        """Barlow Twins' loss; each view has batch statistics of its own, as published."""
        z1, z2 = (self.projector(encoder(view)) for view in views)
        if self.gather:
            z1, z2 = gather(z1), gather(z2)
        return Loss(barlow_twins(z1, z2, redundancy_weight=self.redundancy_weight))
