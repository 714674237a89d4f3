"""View contrast: contrast a view with a second one without gradient, plus S-DIET's loss."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

from annotated_types import Gt, Interval

from widefield.head import view_contrast
from widefield.methods.base import BuildContext
from widefield.methods.head_method import HeadMethod, HeadMethodConfig
from widefield.methods.projector import ProjectorConfig

LOGIT_SCALE, CROSS_ENTROPY_WEIGHT = 10.0, 30.0
"""Weights of the two terms in runs of few steps; `config.defaults` has those of longer runs."""


class ViewContrast(HeadMethod):
    """Decoupled contrast of a view with a second one, plus S-DIET's cross-entropy with rows.

    The second view is encoded without gradient, so that a step costs less than one of two views.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        examples: n.
        context: the run, which decides where the rows are stored; by default they are in memory.
        **settings: single settings to replace, by name.

    Example:
        >>> import torch
        >>> encoder, views = torch.nn.Flatten(), list(torch.rand(2, 4, 1, 2, 4))
        >>> method = ViewContrast(8, examples=4)
        >>> method(encoder, views, torch.arange(4)).total.shape
        torch.Size([])

    Source: ours, on the per-example head of S-DIET (2025), section 5.
    """

    def __init__(
        self,
        encoder_dim: int,
        config: "ViewContrastConfig | None" = None,
        *,
        examples: int,
        context: BuildContext | None = None,
        **settings: Any,
    ) -> None:
        config = ViewContrastConfig.of(config, settings)
        scale, weight = config.logit_scale, config.cross_entropy_weight
        super().__init__(
            encoder_dim,
            config,
            examples=examples,
            context=context,
            loss=partial(
                view_contrast,
                scale=LOGIT_SCALE if scale is None else scale,
                cross_entropy_weight=CROSS_ENTROPY_WEIGHT if weight is None else weight,
                smoothing=config.label_smoothing,
            ),
            normalize=True,
            view_count=2,
        )


@dataclass(frozen=True, kw_only=True)
class ViewContrastConfig(HeadMethodConfig):
    """Settings of `ViewContrast`."""

    name: ClassVar[str] = "view-contrast"
    method_class = ViewContrast

    projector: ProjectorConfig = ProjectorConfig(layers=2, width=2048)
    """The projection head."""
    logit_scale: Annotated[float | None, Gt(0)] = None
    """Factor of the contrast's logits: 10, 20 from 600 steps on, and 5 from 3,000 on."""
    cross_entropy_weight: Annotated[float | None, Gt(0)] = None
    """Weight of S-DIET's cross-entropy: 30, and 3 in runs of 3,000 steps and more."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the cross-entropy's target that is spread over the batch."""
