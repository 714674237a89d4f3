"""View contrast: a view against a second one without gradient, and S-DIET's loss with rows."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from annotated_types import Gt, Interval

from widefield.methods.base import BuildContext, Method
from widefield.methods.projector import ProjectorSettings
from widefield.methods.row_method import RowMethodSettings
from widefield.rows import view_contrast
from widefield.rows.head import SCALE


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
    cross_entropy: Annotated[float, Gt(0)] = 30.0
    """Weight of S-DIET's cross-entropy beside the contrast."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the cross-entropy's target that is spread over the batch."""

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run."""
        return self.build_rows(
            context,
            loss=partial(
                view_contrast,
                scale=self.logit_scale,
                cross_entropy=self.cross_entropy,
                smoothing=self.label_smoothing,
            ),
            normalise=True,
            view_count=2,
        )
