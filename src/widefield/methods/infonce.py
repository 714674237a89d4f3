"""InfoNCE of squared distances, as Tian analyses it; its negatives are of the anchor's own view."""

import math
from typing import Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from widefield.methods.base import Method, RunFacts
from widefield.methods.gather import gather
from widefield.methods.precision import at_least_float32, full_precision
from widefield.methods.projector import recipe_projector
from widefield.recipe import Recipe
from widefield.types import Loss


def half_squared_distances(f: Tensor) -> Tensor:
    """d_ij^2 = |f[i] - f[j]|^2 / 2 of the rows of f [b, m], [b, b]."""
    half = f.square().sum(1) / 2
    return half[:, None] + half - f @ f.T


@full_precision
def infonce(f: Tensor, f2: Tensor, *, temperature: float, eps: float) -> Tensor:
    """InfoNCE of anchors f [b, m], whose other views have projections f2 [b, m].

    With d_ij^2 = |f[i] - f[j]|^2 / 2, d_i^2 = |f[i] - f2[i]|^2 / 2 and t the temperature,

        loss = -t/b sum_i log( exp(-d_i^2/t) / (eps exp(-d_i^2/t) + sum_{j != i} exp(-d_ij^2/t)) ).

    Equation 1 is b times that. With eps = 0 the gradient is that of `alpha_cl` with InfoNCE's
    pair importance.

    Example:
        >>> float(infonce(torch.zeros(3, 2), torch.zeros(3, 2), temperature=1.0, eps=0.0))
        0.6931471824645996

    Source: Tian (2022), equation 1.
    """
    own = (f - f2).square().sum(1) / 2
    others = (-half_squared_distances(f) / temperature).fill_diagonal_(-math.inf)
    log_sum = torch.logsumexp(others, dim=1)
    if eps > 0:
        log_sum = torch.logaddexp(math.log(eps) - own / temperature, log_sum)
    return (own + temperature * log_sum).mean()


class InfoNce(Method):
    """InfoNCE on the unit sphere, each view the anchor in turn.

    Args:
        projector: maps h [B, D] to [B, m].
        temperature: t.
        eps: weight of the positive pair among the negatives; 0 leaves it out, 1 is InfoNCE.
        gather: in several processes, tell the examples of all their batches apart.

    Source: Tian (2022), section 2.
    """

    view_count = 2

    def __init__(
        self, *, projector: nn.Module, temperature: float, eps: float, gather: bool = False
    ) -> None:
        super().__init__()
        self.projector = projector
        self.temperature = temperature
        self.eps = eps
        self.gather = gather

    @classmethod
    def from_recipe(cls, recipe: Recipe, facts: RunFacts) -> Self:
        """The method as a run of `recipe` uses it."""
        head = recipe_projector(recipe, facts.feature_dim)
        return cls(
            projector=head,
            temperature=recipe.temperature,
            eps=recipe.infonce_eps,
            gather=recipe.gather,
        )

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Mean over both choices of the anchor; both views share one pass and its statistics."""
        z = self.projector(encoder(torch.cat(views)))
        f, f2 = functional.normalize(at_least_float32(z), dim=1).chunk(2)
        if self.gather:
            f, f2 = gather(f), gather(f2)
        options = {"temperature": self.temperature, "eps": self.eps}
        return Loss((infonce(f, f2, **options) + infonce(f2, f, **options)) / 2)
