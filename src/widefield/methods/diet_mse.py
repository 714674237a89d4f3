"""DIET with squared error: the form of DIET that theory can solve."""

from typing import Self

import torch
from torch import Tensor, nn

from widefield.methods.base import Method, RunFacts
from widefield.methods.precision import full_precision
from widefield.recipe import Recipe
from widefield.rows import initial_rows
from widefield.types import Loss


@full_precision
def one_hot_error(h: Tensor, rows: Tensor, target: Tensor) -> Tensor:
    """Squared error against one-hot labels, h [b, D], head rows [n, D], target int64 [b].

        loss = 1/b sum_i 1/2 |rows h_i - e_{target_i}|^2.

    Example:
        >>> float(one_hot_error(torch.eye(2), torch.eye(2), torch.tensor([0, 1])))
        0.0

    Source: S-DIET (2025), section 4, the MSE of equation 3.
    """
    logits = h @ rows.T
    own = logits.gather(1, target[:, None])
    return (logits.square().sum(1) - 2 * own[:, 0] + 1).mean() / 2


class DietMse(Method):
    """Squared error of a bias-free head W [n, D] against the example's own index.

    With an isometric head and a linear encoder its minimisers are those of the spectral
    contrastive loss (Theorem 4.3); here both are free. Time and memory grow with n.

    Args:
        examples: n.
        feature_dim: D.
        seed: of the head's first rows.

    Source: S-DIET (2025), section 4.
    """

    view_count = 1

    def __init__(self, *, examples: int, feature_dim: int, seed: int) -> None:
        super().__init__()
        start = initial_rows(torch.arange(examples), feature_dim, seed=seed, dtype=torch.float32)
        self.rows = nn.Parameter(start)

    @classmethod
    def from_recipe(cls, recipe: Recipe, facts: RunFacts) -> Self:
        """The method as a run of `recipe` uses it."""
        return cls(examples=facts.examples, feature_dim=facts.feature_dim, seed=recipe.seed)

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Squared error over all n examples of the one view."""
        (view,) = views
        h = encoder(view)
        return Loss(one_hot_error(h, self.rows, index.to(h.device)))

    def head_parameters(self) -> list[nn.Parameter]:
        """The rows, which learn at the head's own rate."""
        return [self.rows]
