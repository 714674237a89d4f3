"""Row mix: one view against the rows of its batch, by a contrast and by S-DIET's loss."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from annotated_types import Gt, Interval

from widefield.methods.base import BuildContext, Method
from widefield.methods.projector import ProjectorSettings
from widefield.methods.row_method import RowMethodSettings
from widefield.rows import row_mix
from widefield.rows.head import SCALE


@dataclass(frozen=True, kw_only=True)
class RowMixSettings(RowMethodSettings):
    """Decoupled contrast of a view with the rows of its batch, plus S-DIET's cross-entropy.

    It is `view-contrast` with the rows in the place of the second view, for runs that see each
    example often enough for its row to be a good second view.

    Source: ours, on the per-example head of S-DIET (2025), section 5.
    """

    name: ClassVar[str] = "row-mix"
    needed_visits: ClassVar[int] = 10

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
                row_mix,
                scale=self.logit_scale,
                cross_entropy=self.cross_entropy,
                smoothing=self.label_smoothing,
            ),
            normalise=True,
        )
