"""View contrast: contrast a view with a second one without gradient, plus S-DIET's loss."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from annotated_types import Gt, Interval
from torch import Tensor

from widefield.head import view_contrast
from widefield.methods.head_method import HeadMethod, HeadMethodConfig
from widefield.methods.projector import ProjectorConfig

# Compared in the study contrast-weights (docs/studies.md).
LOGIT_SCALE, CROSS_ENTROPY_WEIGHT = 10.0, 30.0
"""Weights of the two terms in runs of few steps; `config.defaults` has those of longer runs."""


@dataclass(frozen=True, kw_only=True)
class ViewContrastConfig(HeadMethodConfig):
    """Settings of `ViewContrast`."""

    name: ClassVar[str] = "view-contrast"

    projector: ProjectorConfig = ProjectorConfig(layers=2, width=2048)
    logit_scale: Annotated[float | None, Gt(0)] = None
    """Factor of the contrast's logits: 10, 20 from 600 steps on, and 5 from 3,000 on."""
    cross_entropy_weight: Annotated[float | None, Gt(0)] = None
    """Weight of S-DIET's cross-entropy: 30, and 3 in runs of 3,000 steps and more."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the cross-entropy's target that is spread over the batch."""

    def head_loss(self) -> Callable[..., Tensor]:
        scale, weight = self.logit_scale, self.cross_entropy_weight
        return partial(
            view_contrast,
            scale=LOGIT_SCALE if scale is None else scale,
            cross_entropy_weight=CROSS_ENTROPY_WEIGHT if weight is None else weight,
            smoothing=self.label_smoothing,
        )


class ViewContrast(HeadMethod[ViewContrastConfig]):
    """Decoupled contrast of a view with a second one, plus S-DIET's cross-entropy with rows.

    The second view is encoded without gradient, so that a step costs less than one of two views.

    The loop calls `method.head.optimizer.step()` after each `optimizer.step()`.

    Example:
        >>> import torch
        >>> views = list(torch.rand(2, 4, 8))
        >>> ViewContrast(8, examples=4)(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: ours, on the per-example head of S-DIET (2025), section 5.
    """

    config_class = ViewContrastConfig
    view_count = 2
