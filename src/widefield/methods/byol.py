"""BYOL: predict from one view what a slowly moving teacher says of the other."""

import math
from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widefield.methods.base import Method, RunFacts
from widefield.methods.precision import full_precision
from widefield.methods.projector import projection_std, recipe_predictor, recipe_projector
from widefield.methods.teacher import Teacher
from widefield.recipe import Directions, Recipe
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
    """A view predicts the teacher's projection of the other; the teacher then follows.

    Published are both directions, their errors summed. The four passes share nothing, so one
    direction, as in `moco`, is half the work and has half the expected gradient where both views
    are drawn alike. What each learns in the same time is in docs/methods.md.

    At step k of K the teacher keeps 1 - (1 - momentum)(cos(pi k/K) + 1)/2 of itself: it stands
    still in the end.

    Args:
        encoder: what the teacher starts as a copy of.
        projector: maps h [B, D] to [B, m].
        predictor: maps [B, m] to [B, m]; the teacher has none.
        momentum: of the teacher at the first step.
        steps: K.
        directions: both, as published, or one.

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
        directions: Directions,
    ) -> None:
        super().__init__()
        self.projector = projector
        self.predictor = predictor
        self.teacher = Teacher(encoder, projector)
        self.momentum = momentum
        self.steps = steps
        self.directions = directions

    @classmethod
    def from_recipe(cls, recipe: Recipe, facts: RunFacts) -> Self:
        """The method as a run of `recipe` uses it."""
        return cls(
            encoder=facts.encoder,
            projector=recipe_projector(recipe, facts.feature_dim),
            predictor=recipe_predictor(recipe),
            momentum=recipe.teacher_momentum,
            steps=len(facts.learning_rates),
            directions=recipe.byol_directions,
        )

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Prediction errors, summed over directions; batch statistics are each view's own."""
        x1, x2 = views
        pairs = [(x1, x2), (x2, x1)] if self.directions == "both" else [(x1, x2)]
        predictions = [self.predictor(self.projector(encoder(seen))) for seen, _ in pairs]
        targets = [self.teacher(hidden) for _, hidden in pairs]
        errors = [prediction_error(p, t) for p, t in zip(predictions, targets, strict=True)]
        return Loss(torch.stack(errors).sum(), {"projection_std": projection_std(targets[-1])})

    def after_step(self, encoder: nn.Module, step: int, lr: float) -> None:
        """Let the teacher follow."""
        left = (math.cos(math.pi * step / self.steps) + 1) / 2
        self.teacher.follow(encoder, self.projector, momentum=1 - (1 - self.momentum) * left)
