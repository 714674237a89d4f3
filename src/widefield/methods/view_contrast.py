"""View contrast: a view against a second one without gradient, and S-DIET's loss with rows."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from annotated_types import Gt, Interval

from widefield.head import view_contrast
from widefield.methods.base import BuildContext, Method
from widefield.methods.head_method import HeadMethodConfig
from widefield.methods.projector import ProjectorConfig


@dataclass(frozen=True, kw_only=True)
class ViewContrastConfig(HeadMethodConfig):
    """Decoupled contrast of a view with a second one, plus S-DIET's cross-entropy with rows.

    The second view is encoded without gradient, so that a step costs less than one of two views.

    Source: ours, on the per-example head of S-DIET (2025), section 5.
    """

    name: ClassVar[str] = "view-contrast"

    projector: ProjectorConfig = ProjectorConfig(layers=2, width=2048)
    """The projection head."""
    logit_scale: Annotated[float | None, Gt(0)] = None
    """Factor of the contrast's logits: 10, 20 from 600 steps on, and 5 from 3,000 on."""
    cross_entropy_weight: Annotated[float | None, Gt(0)] = None
    """Weight of S-DIET's cross-entropy: 30, and 3 in runs of 3,000 steps and more."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the cross-entropy's target that is spread over the batch."""

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run.

        Raises:
            ValueError: scale or weight, which a recipe chooses by steps, is still None.
        """
        if self.logit_scale is None or self.cross_entropy_weight is None:
            raise ValueError(
                "view-contrast has no logit_scale or no cross_entropy_weight: give both, or "
                "resolve the recipe first"
            )
        return self.build_rows(
            context,
            loss=partial(
                view_contrast,
                scale=self.logit_scale,
                cross_entropy_weight=self.cross_entropy_weight,
                smoothing=self.label_smoothing,
            ),
            normalize=True,
            view_count=2,
        )
