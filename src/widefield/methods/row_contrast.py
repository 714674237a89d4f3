"""Row contrast: one view against the rows and the features of its batch, decoupled."""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar

from annotated_types import Gt

from widefield.head import decoupled_contrast
from widefield.head.per_example_head import SCALE
from widefield.methods.base import BuildContext
from widefield.methods.head_method import HeadMethod, HeadMethodConfig
from widefield.methods.projector import ProjectorConfig


class RowContrast(HeadMethod):
    """Decoupled contrast of a view with the rows and the features of its batch.

    Unlike S-DIET's, the loss has a pairwise term.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        examples: n.
        context: the run, which decides where the rows are stored; by default they are in memory.
        **settings: single settings to replace, by name.

    Example:
        >>> import torch
        >>> encoder, views = torch.nn.Flatten(), list(torch.rand(1, 4, 1, 2, 4))
        >>> method = RowContrast(8, examples=4, logit_scale=5.0)
        >>> method(encoder, views, torch.arange(4)).total.shape
        torch.Size([])

    Source: ours, on the per-example head of S-DIET (2025), section 5.
    """

    def __init__(
        self,
        encoder_dim: int,
        config: "RowContrastConfig | None" = None,
        *,
        examples: int,
        context: BuildContext | None = None,
        **settings: Any,
    ) -> None:
        config = RowContrastConfig.of(config, settings)
        super().__init__(
            encoder_dim,
            config,
            examples=examples,
            context=context,
            loss=partial(decoupled_contrast, scale=config.logit_scale, normalize=config.normalize),
            normalize=config.normalize,
        )


@dataclass(frozen=True, kw_only=True)
class RowContrastConfig(HeadMethodConfig):
    """Settings of `RowContrast`."""

    name: ClassVar[str] = "row-contrast"
    method_class = RowContrast

    projector: ProjectorConfig = ProjectorConfig(layers=2)
    """The projection head."""
    logit_scale: Annotated[float, Gt(0)] = SCALE
    """Factor of the logits."""
    normalize: bool = True
    """Put features and rows on the unit sphere."""
