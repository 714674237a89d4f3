"""DIET with squared error, which has a closed-form solution in theory."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from annotated_types import Gt
from torch import Tensor, nn

from widefield.core.batch import HeadRows, Rows, Targets, checked
from widefield.core.precision import full_precision
from widefield.core.transfer import to_device
from widefield.core.types import Loss
from widefield.methods.base import BuildContext, Method, MethodConfig
from widefield.methods.diet import DenseHead


@checked
@full_precision
def one_hot_error(h: Rows, rows: HeadRows, target: Targets) -> Tensor:
    """Return the squared error to one-hot labels, h [b, D], head rows [n, D], target int64 [b].

        loss = 1/b sum_i 1/2 |rows h_i - e_{target_i}|^2.

    Example:
        >>> import torch
        >>> float(one_hot_error(torch.eye(2), torch.eye(2), torch.tensor([0, 1])))
        0.0

    Source: S-DIET (2025), section 4, the MSE of equation 3.
    """
    logits = h @ rows.T
    target_logit = logits.gather(1, target[:, None])
    return (logits.square().sum(1) - 2 * target_logit[:, 0] + 1).mean() / 2


class DietMSE(DenseHead):
    """Squared error of a bias-free head W [n, D] against the example's own index.

    With an isometric head and a linear encoder its minimizers are those of the spectral
    contrastive loss (Theorem 4.3); here both are free. Time and memory grow with n.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        examples: n.
        seed: seed of the head's first rows.
        **settings: single settings to replace, by name.

    Example:
        >>> import torch
        >>> encoder, views = torch.nn.Flatten(), list(torch.rand(1, 4, 1, 2, 4))
        >>> method = DietMSE(8, examples=4)
        >>> method(encoder, views, torch.arange(4)).total.shape
        torch.Size([])

    Source: S-DIET (2025), section 4.
    """

    def __init__(
        self,
        encoder_dim: int,
        config: "DietMSEConfig | None" = None,
        *,
        examples: int,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        config = DietMSEConfig.of(config, settings)
        super().__init__(encoder_dim, config, examples=examples, seed=seed)

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Return the squared error over all n examples of the one view."""
        (view,) = views
        h = encoder(view)
        return Loss(one_hot_error(h, self.rows, to_device(index, h.device)))


@dataclass(frozen=True, kw_only=True)
class DietMSEConfig(MethodConfig):
    """Settings of `DietMSE`."""

    name: ClassVar[str] = "diet-mse"

    lr: Annotated[float, Gt(0)] = 1e-3
    """Peak learning rate of the encoder."""
    head_lr_scale: Annotated[float, Gt(0)] = 1.0
    """Learning rate of the per-example head, as a multiple of lr."""

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run."""
        return DietMSE(context.feature_dim, self, examples=context.examples, seed=context.seed)
