"""View contrast: a view against a second one without gradient, and S-DIET's loss with rows."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, ClassVar, NamedTuple, Self

import torch
from annotated_types import Gt, Interval

from widefield.head import view_contrast
from widefield.methods.base import BuildContext, Method
from widefield.methods.head_method import HeadMethod, HeadMethodConfig
from widefield.methods.projector import ProjectorConfig


class Balance(NamedTuple):
    """What sets the two terms of the loss against each other."""

    scale: float
    """Factor of the contrast's logits."""
    cross_entropy_weight: float
    """Weight of the cross-entropy."""


BALANCE = {
    0: Balance(scale=10.0, cross_entropy_weight=30.0),
    600: Balance(scale=20.0, cross_entropy_weight=30.0),
    3000: Balance(scale=5.0, cross_entropy_weight=3.0),
}
"""Steps that a run has at least -> its balance; benchmarks/NOTEBOOK.md."""


class ViewContrast(HeadMethod):
    """Decoupled contrast of a view with a second one, plus S-DIET's cross-entropy with rows.

    The second view is encoded without gradient, so that a step costs less than one of two views.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        examples: n.
        steps: steps of the training, by which the two terms are weighed.
        context: the run, which decides where rows live; by default they are in memory.
        **settings: single settings to replace, by name.

    Source: ours, on the per-example head of S-DIET (2025), section 5.
    """

    def __init__(
        self,
        encoder_dim: int,
        config: "ViewContrastConfig | None" = None,
        *,
        examples: int,
        steps: int,
        context: BuildContext | None = None,
        **settings: Any,
    ) -> None:
        config = ViewContrastConfig.of(config, settings)
        scale, cross_entropy_weight = config.balance(steps)
        super().__init__(
            encoder_dim,
            config,
            examples=examples,
            context=context,
            loss=partial(
                view_contrast,
                scale=scale,
                cross_entropy_weight=cross_entropy_weight,
                smoothing=config.label_smoothing,
            ),
            normalize=True,
            view_count=2,
        )


@dataclass(frozen=True, kw_only=True)
class ViewContrastConfig(HeadMethodConfig):
    """Settings of `ViewContrast`."""

    name: ClassVar[str] = "view-contrast"

    projector: ProjectorConfig = ProjectorConfig(layers=2, width=2048)
    """The projection head."""
    logit_scale: Annotated[float | None, Gt(0)] = None
    """Factor of the contrast's logits: 10, 20 from 600 steps on, and 5 from 3,000 on."""
    cross_entropy_weight: Annotated[float | None, Gt(0)] = None
    """Weight of S-DIET's cross-entropy: 30, and 3 in runs of 3,000 steps and more."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the cross-entropy's target that is spread over the batch."""

    def balance(self, steps: int) -> Balance:
        """Return what sets the two terms against each other in a run of so many steps.

        Example:
            >>> ViewContrastConfig().balance(100)
            Balance(scale=10.0, cross_entropy_weight=30.0)
            >>> ViewContrastConfig(logit_scale=8.0).balance(10_000)
            Balance(scale=8.0, cross_entropy_weight=3.0)
        """
        usual = BALANCE[max(least for least in BALANCE if least <= steps)]
        return Balance(
            scale=usual.scale if self.logit_scale is None else self.logit_scale,
            cross_entropy_weight=(
                usual.cross_entropy_weight
                if self.cross_entropy_weight is None
                else self.cross_entropy_weight
            ),
        )

    def resolved(
        self, examples: int, feature_dim: int, device: torch.device, *, steps: int
    ) -> Self:
        """Return the settings with the place of the rows, and the balance of the two terms."""
        placed = super().resolved(examples, feature_dim, device, steps=steps)
        scale, cross_entropy_weight = self.balance(steps)
        return replace(placed, logit_scale=scale, cross_entropy_weight=cross_entropy_weight)

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run."""
        return ViewContrast(
            context.feature_dim,
            self,
            examples=context.examples,
            steps=context.steps,
            context=context,
        )
