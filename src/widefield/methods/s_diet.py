"""S-DIET: every example is its own class, and a step uses the rows of its batch alone."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

from annotated_types import Gt, Interval

from widefield.head import batch_cross_entropy
from widefield.methods.base import BuildContext
from widefield.methods.head_method import HeadMethod, HeadMethodConfig
from widefield.methods.projector import ProjectorConfig


class SDiet(HeadMethod):
    """S-DIET: the cross-entropy of instance classification within the batch.

    The objective is the published one; the other defaults are the best found for short runs.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        examples: n.
        context: the run, which decides where the rows are stored; by default they are in memory.
        **settings: single settings to replace, by name.

    Example:
        >>> import torch
        >>> encoder, views = torch.nn.Flatten(), list(torch.rand(1, 4, 1, 2, 4))
        >>> method = SDiet(8, examples=4, label_smoothing=0.5)
        >>> method(encoder, views, torch.arange(4)).total.shape
        torch.Size([])

    Source: S-DIET (2025), section 5.
    """

    def __init__(
        self,
        encoder_dim: int,
        config: "SDietConfig | None" = None,
        *,
        examples: int,
        context: BuildContext | None = None,
        **settings: Any,
    ) -> None:
        config = SDietConfig.of(config, settings)
        super().__init__(
            encoder_dim,
            config,
            examples=examples,
            context=context,
            loss=partial(
                batch_cross_entropy, scale=config.logit_scale, smoothing=config.label_smoothing
            ),
            normalize=config.normalize,
        )


@dataclass(frozen=True, kw_only=True)
class SDietConfig(HeadMethodConfig):
    """Settings of `SDiet`."""

    name: ClassVar[str] = "s-diet"
    method_class = SDiet

    projector: ProjectorConfig = ProjectorConfig(layers=2, width=2048)
    """The projection head."""
    logit_scale: Annotated[float, Gt(0)] = 1.0
    """Factor of the logits; 1 in the paper."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the target that is spread over the batch."""
    normalize: bool = True
    """Put features on the unit sphere, as published."""
