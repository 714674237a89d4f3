"""Adversarial views: projected gradient ascent on the loss, over the pixels of each image."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt
from torch import Generator

from widefield.core.batch import Positive, checked
from widefield.views.base import Augmentation, AugmentContext, Views
from widefield.views.policy import PolicySettings


@dataclass(frozen=True, kw_only=True)
class AdversarialSettings(PolicySettings):
    """Settings of adversarial views."""

    argument_of: ClassVar = {"attack_budget": "budget", "attack_steps": "steps"}

    attack_budget: Annotated[float, Gt(0)] = 8 / 255
    """Maximum change of a pixel, in units of the images' range."""
    attack_steps: Annotated[int, Ge(1)] = 3
    """Steps of gradient ascent; each costs a forward and a backward pass."""


class Adversarial(Augmentation):
    """Views x + delta with max |delta| <= budget, found by `steps` of projected gradient ascent.

    delta starts uniformly in [-budget, budget]; each step moves all views of a batch at once,

        delta <- clip(delta + size sign(d loss / d view), -budget, budget),

    with size = 2.5 budget / steps, so that every point of the box can be reached; views stay in
    [0, 1]. The loss is that of the run with the current encoder; no label is used. A view without
    gradient, such as the second one of view-contrast, BYOL and MoCo, keeps the initial delta.

    Args:
        budget: L-infinity norm of delta, in units of the images' range.
        steps: steps of ascent; each costs a forward and a backward pass.

    Example:
        >>> views = Adversarial(budget=0.1, steps=2)
        >>> context = AugmentContext(gradients=lambda views: [torch.ones_like(v) for v in views])
        >>> x = torch.full((2, 3, 8, 8), 0.5)
        >>> (view,) = views(x, 1, context=context)
        >>> bool(((view - x).abs() <= 0.1 + 1e-6).all())
        True

    Source: Kim et al. (2020), whom Wen & Li (2021) follow in Figure 1; Madry et al. (2018) for the
    steps.
    """

    @checked
    def __init__(self, *, budget: Annotated[float, Ge(0)], steps: Positive) -> None:
        super().__init__()
        self.budget = budget
        self.gradient_calls = steps

    def augment(self, views: Views, generator: Generator | None, context: AugmentContext) -> Views:
        """Attack `views` [B, C, H, W] together, along `context.gradients`."""
        assert context.gradients is not None
        size = 2.5 * self.budget / self.gradient_calls
        low_bounds = [(x - self.budget).clamp_min(0) for x in views]
        high_bounds = [(x + self.budget).clamp_max(1) for x in views]
        # A random start, as in Madry et al.: at the images themselves all views agree, and a loss
        # of their agreement has no gradient there.
        adversarial = [
            torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype)
            .mul(2 * self.budget)
            .add(x - self.budget)
            .clamp(low, high)
            for x, low, high in zip(views, low_bounds, high_bounds, strict=True)
        ]
        for _ in range(self.gradient_calls):
            gradients = context.gradients(adversarial)
            adversarial = [
                (x + size * gradient.sign()).clamp(low, high)
                for x, gradient, low, high in zip(
                    adversarial, gradients, low_bounds, high_bounds, strict=True
                )
            ]
        return adversarial
