"""DIET: every example is its own class, with one dense linear head over all of them."""

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widefield.methods.base import Method, RunFacts
from widefield.recipe import Recipe
from widefield.rows import initial_rows
from widefield.types import Loss


class Diet(Method):
    """Cross-entropy of a bias-free head W [n, D] against the example's own index.

        loss = CE(W f(A(x_i)), i) with label smoothing,

    over all n classes: time and memory grow with n. S-DIET is the same idea without that.

    Args:
        examples: n.
        feature_dim: D.
        label_smoothing: 0.8 as published.
        seed: of the head's first rows.

    Example:
        >>> import torch
        >>> method = Diet(examples=8, feature_dim=3, label_smoothing=0.8, seed=0)
        >>> views, index = [torch.rand(2, 3)], torch.tensor([5, 1])
        >>> method.loss(torch.nn.Identity(), views, index).total.shape
        torch.Size([])

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
        with torch.autocast(h.device.type, enabled=False):
            logits = h.float() @ self.rows.T
            target = index.to(h.device)
            total = F.cross_entropy(logits, target, label_smoothing=self.label_smoothing)
        return Loss(total)

    def head_parameters(self) -> list[nn.Parameter]:
        """The rows, which learn at the head's own rate."""
        return [self.rows]
