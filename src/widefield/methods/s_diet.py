"""S-DIET: every example is its own class, and a step uses the rows of its batch alone."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Self

import torch
from annotated_types import Gt, Interval

from widefield.methods.base import BuildContext, Method
from widefield.methods.pair import PairSettings
from widefield.methods.projector import ProjectorSettings
from widefield.methods.row_method import RowSettings
from widefield.rows import batch_cross_entropy


@dataclass(frozen=True, kw_only=True)
class SDietSettings(PairSettings):
    """S-DIET: the cross-entropy of telling a batch apart by its rows.

    The objective is the published one; the other defaults are the best found for short runs.

    Source: S-DIET (2025), section 5.
    """

    name: ClassVar[str] = "s-diet"

    projector: ProjectorSettings = ProjectorSettings(layers=2, width=2048)
    """The projection head."""
    head_lr_scale: Annotated[float, Gt(0)] = 1.0
    """Learning rate of the per-example head, as a multiple of lr."""
    logit_scale: Annotated[float, Gt(0)] = 1.0
    """Factor of the logits; 1 in the paper."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the target that is spread over the batch."""
    normalise: bool = True
    """Put features on the unit sphere, as published."""
    row: RowSettings = RowSettings()
    """The rows of the per-example head."""

    def resolved(self, examples: int, feature_dim: int, device: torch.device) -> Self:
        """Return the settings with the place of the rows on this machine."""
        dim = self.projector.out_dim(feature_dim)
        return replace(self, row=self.row.resolved(examples, dim, device))

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run."""
        return self.row.build(
            context,
            self.projector,
            loss=partial(
                batch_cross_entropy, scale=self.logit_scale, smoothing=self.label_smoothing
            ),
            normalise=self.normalise,
            lr_scale=self.head_lr_scale,
            gather=self.gather,
        )
