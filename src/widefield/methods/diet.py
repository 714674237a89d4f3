"""DIET: every example is its own class, with one dense linear head over all of them."""

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widefield.methods.base import Method, RunFacts
from widefield.methods.precision import full_precision
from widefield.recipe import Recipe
from widefield.rows import initial_rows
from widefield.types import Loss


@full_precision
def index_cross_entropy(h: Tensor, rows: Tensor, target: Tensor, *, smoothing: float) -> Tensor:
    """Cross-entropy of naming the example, h [b, D], head rows [n, D], target int64 [b].

        loss = -1/b sum_i sum_j q_ij log softmax_j(rows_j . h_i),
        q_ij = (1 - smoothing) [j = target_i] + smoothing / n.

    Example:
        >>> import torch
        >>> h, right = 100 * torch.eye(2), torch.tensor([0, 1])
        >>> float(index_cross_entropy(h, torch.eye(2), right, smoothing=0.0))
        0.0

    Source: DIET (Balestriero 2023); S-DIET (2025), section 3, equation 3.
    """
    return F.cross_entropy(h @ rows.T, target, label_smoothing=smoothing)


class Diet(Method):
    """Cross-entropy of a bias-free head W [n, D] against the example's own index.

    Time and memory grow with n. S-DIET is the same idea without that.

    Args:
        examples: n.
        feature_dim: D.
        label_smoothing: 0.8 as published.
        seed: of the head's first rows.

    Source: DIET (Balestriero 2023); S-DIET (2025), section 3, equation 3.
    """

    view_count = 1

    def __init__(
        self, *, examples: int, feature_dim: int, label_smoothing: float, seed: int
    ) -> None:
        super().__init__()
        start = initial_rows(torch.arange(examples), feature_dim, seed=seed, dtype=torch.float32)
        self.rows = nn.Parameter(start)
        self.label_smoothing = label_smoothing

    @classmethod
    def from_recipe(cls, recipe: Recipe, facts: RunFacts) -> Self:
        """The method as a run of `recipe` uses it."""
        return cls(
            examples=facts.examples,
            feature_dim=facts.feature_dim,
            label_smoothing=recipe.label_smoothing,
            seed=recipe.seed,
        )

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Cross-entropy over all n examples of the one view."""
        (view,) = views
        h = encoder(view)
        target = index.to(h.device)
        return Loss(index_cross_entropy(h, self.rows, target, smoothing=self.label_smoothing))

    def head_parameters(self) -> list[nn.Parameter]:
        """The rows, which learn at the head's own rate."""
        return [self.rows]
