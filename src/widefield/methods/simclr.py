"""SimCLR: two views of one example attract, views of different examples repel."""

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widefield.methods.base import Method, RunFacts
from widefield.methods.gather import gather
from widefield.methods.precision import full_precision
from widefield.methods.projector import recipe_projector
from widefield.recipe import ContrastiveLoss, Recipe
from widefield.types import Loss


@full_precision
def nt_xent(z1: Tensor, z2: Tensor, *, temperature: float) -> Tensor:
    """Normalised temperature-scaled cross-entropy of two views' projections, each [b, m].

    With the 2b rows z normalised, s_ij = z_i . z_j / temperature and p(i) the other view of i,

        loss = 1/(2b) sum_i ( -s_{i p(i)} + log sum_{j != i} exp s_ij ).

    The standard form: both views are anchors, self-similarity is left out.

    Example:
        >>> import torch
        >>> z = torch.eye(4)
        >>> bool(nt_xent(z, z, temperature=0.1) < nt_xent(z, z.roll(1, 0), temperature=0.1))
        True

    Source: SimCLR (Chen et al. 2020), equation 1.
    """
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    similarity = z @ z.T / temperature
    similarity.fill_diagonal_(float("-inf"))
    partner = torch.arange(len(z), device=z.device).roll(len(z1))
    return F.cross_entropy(similarity, partner)


@full_precision
def one_sided(z1: Tensor, z2: Tensor, *, temperature: float) -> Tensor:
    """Cross-entropy of finding the second view of each first one, each [b, m].

    With the 2b rows z normalised, s_ij = z_i . z_j / temperature and p(i) the other view of i,

        loss = 1/b sum_{i <= b} ( -s_{i p(i)} + log sum_j exp s_ij ).

    Unlike `nt_xent`, first views alone are anchors, and one's similarity to itself is in the sum.

    Example:
        >>> import torch
        >>> z = torch.eye(2)
        >>> print(f"{one_sided(z, z, temperature=0.1):.3f}")  # itself and its partner, equally near
        0.693

    Source: Feature Dropout (Tamkin et al. 2022), the authors' code.
    """
    z = F.normalize(torch.cat([z1, z2]), dim=1)
    anchors = len(z1)
    partner = torch.arange(anchors, device=z.device) + anchors
    return F.cross_entropy(z[:anchors] @ z.T / temperature, partner)


LOSSES = {"nt-xent": nt_xent, "one-sided": one_sided}


class SimClr(Method):
    """NT-Xent on the projections of two views.

    Args:
        projector: maps h [B, D] to [B, m].
        temperature: of the softmax.
        kind: which of `LOSSES`.
        gather: in several processes, tell the examples of all their batches apart.

    Source: SimCLR (Chen et al. 2020).
    """

    view_count = 2

    def __init__(
        self,
        *,
        projector: nn.Module,
        temperature: float,
        kind: ContrastiveLoss = "nt-xent",
        gather: bool = False,
    ) -> None:
        super().__init__()
        self.kind = kind
        self.projector = projector
        self.temperature = temperature
        self.gather = gather

    @classmethod
    def from_recipe(cls, recipe: Recipe, facts: RunFacts) -> Self:
        """The method as a run of `recipe` uses it."""
        head = recipe_projector(recipe, facts.feature_dim)
        return cls(
            projector=head,
            temperature=recipe.temperature,
            kind=recipe.simclr_loss,
            gather=recipe.gather,
        )

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """The loss of its kind; both views share one forward pass and its batch statistics."""
        z1, z2 = self.projector(encoder(torch.cat(views))).chunk(2)
        if self.gather:
            z1, z2 = gather(z1), gather(z2)
        return Loss(LOSSES[self.kind](z1, z2, temperature=self.temperature))
