"""Row contrast: one view against the rows and the features of its batch, decoupled."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from annotated_types import Gt

from widefield.head import decoupled_contrast
from widefield.head.per_example_head import SCALE
from widefield.methods.base import BuildContext, Method
from widefield.methods.head_method import HeadMethodConfig
from widefield.methods.projector import ProjectorConfig


@dataclass(frozen=True, kw_only=True)
class RowContrastConfig(HeadMethodConfig):
    """Decoupled contrast of a view with the rows and the features of its batch.

    Unlike S-DIET's, the loss has a pairwise term.

    Source: ours, on the per-example head of S-DIET (2025), section 5.
    """

    name: ClassVar[str] = "row-contrast"

    projector: ProjectorConfig = ProjectorConfig(layers=2)
    """The projection head."""
    logit_scale: Annotated[float, Gt(0)] = SCALE
    """Factor of the logits."""
    normalize: bool = True
    """Put features and rows on the unit sphere."""

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run."""
        return self.build_rows(
            context,
            loss=partial(decoupled_contrast, scale=self.logit_scale, normalize=self.normalize),
            normalize=self.normalize,
        )
