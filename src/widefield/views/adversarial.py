"""Views that raise the loss: projected gradient ascent on the pixels of each image."""

import torch
from torch import Generator, Tensor

from widefield.views.base import BARE, Scene, Views


class Adversarial(Views):
    """x + delta with max |delta| <= budget, found by `steps` of projected gradient ascent.

    From delta uniform in [-budget, budget], all views of a batch at once,

        delta <- clip(delta + size sign(d loss / d view), -budget, budget),

    with size = 2.5 budget / steps, so that any place in the box can be reached; views stay in
    [0, 1]. The loss is the run's own, of the encoder as it stands: no label is used.

    Args:
        budget: L-infinity norm, in units of the images' range.
        steps: of ascent; each costs a forward and a backward pass.

    Source: Wen & Li (2021), section 6 (instance-wise attacks); Madry et al. (2018) for the steps.
    """

    def __init__(self, *, budget: float, steps: int) -> None:
        super().__init__()
        self.budget = budget
        self.gradient_calls = steps

    def alter(
        self, views: list[Tensor], generator: Generator | None = None, scene: Scene = BARE
    ) -> list[Tensor]:
        """Attack `views` [B, C, H, W] together, by `scene.gradients`."""
        assert scene.gradients is not None
        size = 2.5 * self.budget / self.gradient_calls
        lows = [(x - self.budget).clamp_min(0) for x in views]
        highs = [(x + self.budget).clamp_max(1) for x in views]
        attacked = [
            torch.rand(x.shape, generator=generator, device=x.device, dtype=x.dtype)
            .mul(2 * self.budget)
            .add(x - self.budget)
            .clamp(low, high)
            for x, low, high in zip(views, lows, highs, strict=True)
        ]
        for _ in range(self.gradient_calls):
            slopes = scene.gradients(attacked)
            attacked = [
                (x + size * slope.sign()).clamp(low, high)
                for x, slope, low, high in zip(attacked, slopes, lows, highs, strict=True)
            ]
        return attacked
