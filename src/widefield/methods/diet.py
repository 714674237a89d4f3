"""DIET: every example is its own class, with one dense linear head over all of them."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import torch
import torch.nn.functional as F
from annotated_types import Gt, Interval
from torch import Tensor, nn

from widefield.core.batch import HeadRows, Positive, Rows, Targets, check_number, checked
from widefield.core.precision import at_least_float32, full_precision
from widefield.core.transfer import to_device
from widefield.core.types import Loss, Part
from widefield.head import initial_rows
from widefield.methods.base import BuildContext, Method, MethodConfig

if TYPE_CHECKING:
    from widefield.methods.diet_mse import DietMSEConfig


@checked
@full_precision
def index_cross_entropy(
    h: Rows, rows: HeadRows, target: Targets, *, smoothing: Annotated[float, Interval(ge=0, lt=1)]
) -> Tensor:
    """Return the cross-entropy of instances, h [b, D], head rows [n, D], target int64 [b].

        loss = -1/b sum_i sum_j q_ij log softmax_j(rows_j . h_i),
        q_ij = (1 - smoothing) [j = target_i] + smoothing / n.

    Example:
        >>> import torch
        >>> h, right = 100 * torch.eye(2), torch.tensor([0, 1])
        >>> float(index_cross_entropy(h, torch.eye(2), right, smoothing=0.0))
        0.0

    Source: DIET (Balestriero 2023); S-DIET (2025), section 3, equation 3.
    """
    return F.cross_entropy(h @ rows.T, target, label_smoothing=smoothing)


class DenseHead(Method):
    """Base class of methods of one view with a bias-free head W [n, D] over all n examples."""

    view_count = 1

    def __init__(
        self, encoder_dim: int, config: "DietConfig | DietMSEConfig", *, examples: int, seed: int
    ) -> None:
        super().__init__()
        check_number("examples", Positive, examples)
        weight = initial_rows(torch.arange(examples), encoder_dim, seed=seed, dtype=torch.float32)
        self.rows = nn.Parameter(weight)
        self.examples = examples
        self.head_lr_scale = config.head_lr_scale

    def head_parameters(self) -> list[nn.Parameter]:
        """Return the rows, which have the head's own learning rate."""
        return [self.rows]

    def memory(self, examples: int) -> dict[str, Part]:
        """Return the bytes of the rows, whose moments the run's optimizer holds."""
        size = examples * self.rows.shape[1] * self.rows.element_size()
        return {"head": Part(bytes=size, place="device")}


class Diet(DenseHead):
    """Cross-entropy of a bias-free head W [n, D] against the example's own index.

    Time and memory grow with n; those of a step of S-DIET do not.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        examples: n.
        seed: seed of the head's first rows.
        **settings: single settings to replace, by name.

    Example:
        >>> import torch
        >>> encoder, views = torch.nn.Flatten(), list(torch.rand(1, 4, 1, 2, 4))
        >>> method = Diet(8, examples=4)
        >>> method(encoder, views, torch.arange(4)).total.shape
        torch.Size([])

    Source: DIET (Balestriero 2023); S-DIET (2025), section 3, equation 3.
    """

    def __init__(
        self,
        encoder_dim: int,
        config: "DietConfig | None" = None,
        *,
        examples: int,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        config = DietConfig.of(config, settings)
        super().__init__(encoder_dim, config, examples=examples, seed=seed)
        self.label_smoothing = config.label_smoothing
        self.normalize = config.normalize

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Return the cross-entropy over all n examples of the one view."""
        (view,) = views
        h = encoder(view)
        if self.normalize:
            h = F.normalize(at_least_float32(h), dim=1)
        target = to_device(index, h.device)
        return Loss(index_cross_entropy(h, self.rows, target, smoothing=self.label_smoothing))


@dataclass(frozen=True, kw_only=True)
class DietConfig(MethodConfig):
    """Settings of `Diet`."""

    name: ClassVar[str] = "diet"

    lr: Annotated[float, Gt(0)] = 2e-3
    """Peak learning rate of the encoder."""
    head_lr_scale: Annotated[float, Gt(0)] = 1.0
    """Learning rate of the per-example head, as a multiple of lr."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the target that is spread over all examples."""
    normalize: bool = False
    """Put features on the unit sphere; DIET as published does not."""

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run."""
        return Diet(context.feature_dim, self, examples=context.examples, seed=context.seed)
