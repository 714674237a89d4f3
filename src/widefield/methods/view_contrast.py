"""View contrast: a view against a second one without gradient, and S-DIET's loss with rows."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Self

import torch
from annotated_types import Gt, Interval

from widefield.methods.base import BuildContext, Method
from widefield.methods.projector import ProjectorSettings
from widefield.methods.row_method import RowMethodSettings
from widefield.rows import view_contrast
from widefield.rows.head import SCALE

LONG = 600
"""Steps from which on the contrast is sharper; docs/recipe.md says why."""
SCALE_OF_LONG = 20.0


@dataclass(frozen=True, kw_only=True)
class ViewContrastSettings(RowMethodSettings):
    """Decoupled contrast of a view with a second one, plus S-DIET's cross-entropy with rows.

    The second view is encoded without gradient, so that a step costs less than one of two views.

    Source: ours, on the per-example head of S-DIET (2025), section 5.
    """

    name: ClassVar[str] = "view-contrast"

    projector: ProjectorSettings = ProjectorSettings(layers=2, width=2048)
    """The projection head."""
    logit_scale: Annotated[float | None, Gt(0)] = None
    """Factor of the contrast's logits: 10, and 20 in runs of 600 steps and more."""
    cross_entropy: Annotated[float, Gt(0)] = 30.0
    """Weight of S-DIET's cross-entropy."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the cross-entropy's target that is spread over the batch."""

    def scale(self, steps: int) -> float:
        """Return the factor of the contrast's logits in a run of so many steps.

        Example:
            >>> settings = ViewContrastSettings()
            >>> settings.scale(100), settings.scale(600)
            (10.0, 20.0)
        """
        if self.logit_scale is not None:
            return self.logit_scale
        return SCALE_OF_LONG if steps >= LONG else SCALE

    def resolved(
        self, examples: int, feature_dim: int, device: torch.device, *, steps: int
    ) -> Self:
        """Return the settings with the place of the rows, and the scale of the contrast."""
        placed = super().resolved(examples, feature_dim, device, steps=steps)
        return replace(placed, logit_scale=self.scale(steps))

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run."""
        return self.build_rows(
            context,
            loss=partial(
                view_contrast,
                scale=self.scale(context.steps),
                cross_entropy=self.cross_entropy,
                smoothing=self.label_smoothing,
            ),
            normalise=True,
            view_count=2,
        )
