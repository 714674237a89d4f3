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

MANY, OFTEN = 40_000, 5
"""Examples and epochs from which on the cross-entropy weighs less; docs/recipe.md says why."""
WEIGHT, WEIGHT_OF_MANY = 30.0, 10.0


@dataclass(frozen=True, kw_only=True)
class ViewContrastSettings(RowMethodSettings):
    """Decoupled contrast of a view with a second one, plus S-DIET's cross-entropy with rows.

    The second view is encoded without gradient, so that a step costs less than one of two views.

    Source: ours, on the per-example head of S-DIET (2025), section 5.
    """

    name: ClassVar[str] = "view-contrast"

    projector: ProjectorSettings = ProjectorSettings(layers=2, width=2048)
    """The projection head."""
    logit_scale: Annotated[float, Gt(0)] = SCALE
    """Factor of the contrast's logits."""
    cross_entropy: Annotated[float | None, Gt(0)] = None
    """Weight of S-DIET's cross-entropy: 30, and 10 from 40,000 examples and 5 epochs on."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the cross-entropy's target that is spread over the batch."""

    def weight(self, examples: int, epochs: int) -> float:
        """Return the weight of the cross-entropy in a run of so many examples and epochs.

        Example:
            >>> settings = ViewContrastSettings()
            >>> settings.weight(5000, 20), settings.weight(50_000, 2), settings.weight(50_000, 20)
            (30.0, 30.0, 10.0)
        """
        if self.cross_entropy is not None:
            return self.cross_entropy
        return WEIGHT_OF_MANY if examples >= MANY and epochs >= OFTEN else WEIGHT

    def resolved(
        self, examples: int, feature_dim: int, device: torch.device, *, epochs: int
    ) -> Self:
        """Return the settings with the place of the rows, and the weight of the cross-entropy."""
        placed = super().resolved(examples, feature_dim, device, epochs=epochs)
        return replace(placed, cross_entropy=self.weight(examples, epochs))

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run."""
        epochs = round(context.steps * context.batch_size / max(1, context.examples))
        return self.build_rows(
            context,
            loss=partial(
                view_contrast,
                scale=self.logit_scale,
                cross_entropy=self.weight(context.examples, epochs),
                smoothing=self.label_smoothing,
            ),
            normalise=True,
            view_count=2,
        )
