"""BYOL: predict from one view what a slowly moving teacher says about the other."""

import math
from typing import Self

import torch.nn.functional as F
from torch import Tensor, nn

from widefield.methods.base import Method, RunFacts
from widefield.methods.precision import full_precision
from widefield.methods.projector import projection_std, recipe_predictor, recipe_projector
from widefield.methods.teacher import Teacher
from widefield.recipe import Recipe
from widefield.types import Loss


@full_precision
def prediction_error(p: Tensor, z: Tensor) -> Tensor:
    """Squared distance of directions, predictions p [b, m] from targets z [b, m].

        loss = 1/b sum_i |p_i/|p_i| - z_i/|z_i||^2 = 1/b sum_i (2 - 2 cos(p_i, z_i)).

    No gradient flows into the target.

    Example:
        >>> import torch
        >>> float(prediction_error(torch.eye(2), 3 * torch.eye(2)))
        0.0

    Source: BYOL (Grill et al. 2020), equation 2.
    """
    return 2 - 2 * F.cosine_similarity(p, z.detach(), dim=1).mean()


class Byol(Method):
    """Both views predict the teacher's projection of the other; the teacher then follows.

    At step k of K the teacher keeps 1 - (1 - momentum)(cos(pi k/K) + 1)/2 of itself: it stands
    still in the end.

    Args:
        encoder: what the teacher starts as a copy of.
        projector: maps h [B, D] to [B, m].
        predictor: maps [B, m] to [B, m]; the teacher has none.
        momentum: of the teacher at the first step.
        steps: K.

    Source: BYOL (Grill et al. 2020), section 3.
    """

    view_count = 2

    def __init__(
        self,
        *,
        encoder: nn.Module,
        projector: nn.Module,
        predictor: nn.Module,
        momentum: float,
        steps: int,
    ) -> None:
        super().__init__()
        self.projector = projector
        self.predictor = predictor
        self.teacher = Teacher(encoder, projector)
        self.momentum = momentum
        self.steps = steps

    @classmethod
    def from_recipe(cls, recipe: Recipe, facts: RunFacts) -> Self:
        """The method as a run of `recipe` uses it."""
        return cls(
            encoder=facts.encoder,
            projector=recipe_projector(recipe, facts.feature_dim),
            predictor=recipe_predictor(recipe),
            momentum=recipe.teacher_momentum,
            steps=len(facts.learning_rates),
        )

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Prediction errors of both directions, summed; batch statistics are each view's own."""
        p1, p2 = (self.predictor(self.projector(encoder(view))) for view in views)
        t1, t2 = (self.teacher(view) for view in views)
        total = prediction_error(p1, t2) + prediction_error(p2, t1)
        return Loss(total, {"projection_std": projection_std(t1)})

    def after_step(self, encoder: nn.Module, step: int, lr: float) -> None:
        """Let the teacher follow."""
        left = (math.cos(math.pi * step / self.steps) + 1) / 2
        self.teacher.follow(encoder, self.projector, momentum=1 - (1 - self.momentum) * left)
