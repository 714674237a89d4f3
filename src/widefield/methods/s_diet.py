"""S-DIET: every example is its own class, and a step uses the rows of its batch alone."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from annotated_types import Gt, Interval
from torch import Tensor

from widefield.head import batch_cross_entropy
from widefield.methods.head_method import HeadMethod, HeadMethodConfig
from widefield.methods.projector import ProjectorConfig


@dataclass(frozen=True, kw_only=True)
class SDietConfig(HeadMethodConfig):
    """Settings of `SDiet`."""

    name: ClassVar[str] = "s-diet"

    projector: ProjectorConfig = ProjectorConfig(layers=2, width=2048)
    logit_scale: Annotated[float, Gt(0)] = 1.0
    """Factor of the logits; 1 in the paper."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the target that is spread over the batch."""
    normalize: bool = True
    """Put features on the unit sphere, as published."""

    def head_loss(self) -> Callable[..., Tensor]:
        return partial(batch_cross_entropy, scale=self.logit_scale, smoothing=self.label_smoothing)


class SDiet(HeadMethod[SDietConfig]):
    """S-DIET: the cross-entropy of instance classification within the batch.

    The objective is the published one; the other defaults are the best found for short runs.

    The loop calls `method.head.optimizer.step()` after each `optimizer.step()`.

    Example:
        >>> import torch
        >>> views = [torch.rand(4, 8)]
        >>> method = SDiet(8, examples=4, label_smoothing=0.5)
        >>> method(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: S-DIET (2025), section 5.
    """

    config_class = SDietConfig
