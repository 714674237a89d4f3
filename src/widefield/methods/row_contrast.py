"""Row contrast: one view against the rows and the features of its batch, decoupled."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Self

import torch
from annotated_types import Gt

from widefield.methods.base import BuildContext, Method
from widefield.methods.pair import PairSettings
from widefield.methods.projector import ProjectorSettings
from widefield.methods.row_method import RowSettings
from widefield.rows import decoupled_contrast
from widefield.rows.head import SCALE


@dataclass(frozen=True, kw_only=True)
class RowContrastSettings(PairSettings):
    """Decoupled contrast of a view with the rows and the features of its batch.

    Unlike S-DIET's, the loss has a pairwise term.

    Source: ours, on the per-example head of S-DIET (2025), section 5.
    """

    name: ClassVar[str] = "row-contrast"

    projector: ProjectorSettings = ProjectorSettings(layers=2)
    """The projection head."""
    head_lr_scale: Annotated[float, Gt(0)] = 1.0
    """Learning rate of the per-example head, as a multiple of lr."""
    logit_scale: Annotated[float, Gt(0)] = SCALE
    """Factor of the logits."""
    normalise: bool = True
    """Put features and rows on the unit sphere."""
    row: RowSettings = RowSettings()
    """The rows of the per-example head."""

    def resolved(self, examples: int, feature_dim: int, device: torch.device) -> Self:
        """Return the settings with the place of the rows on this machine."""
        dim = self.projector.out_dim(feature_dim)
        return replace(self, row=self.row.resolved(examples, dim, device))

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run.

        Raises:
            ValueError: batches of one example, which cannot be told apart.
        """
        if context.batch_size < 2:
            raise ValueError(
                "row-contrast tells a batch's examples apart: use a batch_size of 2 or more"
            )
        return self.row.build(
            context,
            self.projector,
            loss=partial(decoupled_contrast, scale=self.logit_scale, normalise=self.normalise),
            normalise=self.normalise,
            lr_scale=self.head_lr_scale,
            gather=self.gather,
        )
