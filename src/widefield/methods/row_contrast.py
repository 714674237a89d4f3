"""Row contrast: one view against the rows and the features of its batch, decoupled."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar

from annotated_types import Gt
from torch import Tensor

from widefield.head import decoupled_contrast
from widefield.head.per_example_head import SCALE
from widefield.methods.head_method import HeadMethod, HeadMethodConfig


@dataclass(frozen=True, kw_only=True)
class RowContrastConfig(HeadMethodConfig):
    """Settings of `RowContrast`."""

    name: ClassVar[str] = "row-contrast"

    logit_scale: Annotated[float, Gt(0)] = SCALE
    """Factor of the logits."""
    normalize: bool = True
    """Put features and rows on the unit sphere."""

    def head_loss(self) -> Callable[..., Tensor]:
        return partial(decoupled_contrast, scale=self.logit_scale, normalize=self.normalize)


class RowContrast(HeadMethod[RowContrastConfig]):
    """Decoupled contrast of a view with the rows and the features of its batch.

    Unlike S-DIET's, the loss has a pairwise term.

    The loop calls `method.head.optimizer.step()` after each `optimizer.step()`.

    Example:
        >>> import torch
        >>> views = [torch.rand(4, 8)]
        >>> method = RowContrast(8, examples=4, logit_scale=5.0)
        >>> method(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: ours, on the per-example head of S-DIET (2025), section 5.
    """

    config_class = RowContrastConfig
