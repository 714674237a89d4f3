"""S-DIET: every example is its own class, and a step uses the rows of its batch alone."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from annotated_types import Gt, Interval

from widefield.head import batch_cross_entropy
from widefield.methods.base import BuildContext, Method
from widefield.methods.head_method import HeadMethodConfig
from widefield.methods.projector import ProjectorConfig


@dataclass(frozen=True, kw_only=True)
class SDietConfig(HeadMethodConfig):
    """S-DIET: the cross-entropy of telling a batch apart by its rows.

    The objective is the published one; the other defaults are the best found for short runs.

    Source: S-DIET (2025), section 5.
    """

    name: ClassVar[str] = "s-diet"

    projector: ProjectorConfig = ProjectorConfig(layers=2, width=2048)
    """The projection head."""
    logit_scale: Annotated[float, Gt(0)] = 1.0
    """Factor of the logits; 1 in the paper."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the target that is spread over the batch."""
    normalize: bool = True
    """Put features on the unit sphere, as published."""

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run."""
        return self.build_rows(
            context,
            loss=partial(
                batch_cross_entropy, scale=self.logit_scale, smoothing=self.label_smoothing
            ),
            normalize=self.normalize,
        )
