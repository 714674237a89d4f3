"""DIET: every example is its own class, with one dense linear head over all of them.

With squared error in place of cross-entropy it has a closed-form solution in theory.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, ClassVar, Generic, TypeVar, Unpack

import torch
import torch.nn.functional as F
from annotated_types import Gt, Interval
from torch import Tensor, nn

from widefield.core.batch import HeadRows, Positive, Rows, Targets, check_number, checked
from widefield.core.devices import to_device
from widefield.core.precision import full_precision
from widefield.core.types import Loss, Part
from widefield.head import initial_rows
from widefield.methods.arguments import MethodArguments
from widefield.methods.base import BuildContext, Method, MethodConfig


@checked
@full_precision
def index_cross_entropy(
    h: Rows,
    rows: HeadRows,
    target: Targets,
    *,
    smoothing: Annotated[float, Interval(ge=0, lt=1)],
    normalize: bool = False,
) -> Tensor:
    """Return the cross-entropy of instances, h [b, D], head rows [n, D], target int64 [b].

    With h_i as it is, or normalized,

        loss = -1/b sum_i sum_j q_ij log softmax_j(rows_j . h_i),
        q_ij = (1 - smoothing) [j = target_i] + smoothing / n.

    Example:
        >>> import torch
        >>> h, right = 100 * torch.eye(2), torch.tensor([0, 1])
        >>> float(index_cross_entropy(h, torch.eye(2), right, smoothing=0.0))
        0.0

    Source: DIET (Balestriero 2023); S-DIET (2025), section 3, equation 3.
    """
    if normalize:
        h = F.normalize(h, dim=1)
    return F.cross_entropy(h @ rows.T, target, label_smoothing=smoothing)


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


@dataclass(frozen=True, kw_only=True)
class DenseHeadConfig(MethodConfig, ABC):
    """Settings of a method with a dense head, which say what its loss is."""

    head_lr_scale: Annotated[float, Gt(0)] = 1.0
    """Learning rate of the per-example head, as a multiple of lr."""

    @abstractmethod
    def head_loss(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        """Return the loss of h [b, D], rows [n, D] and the examples' indices int64 [b]."""

    def build(self, context: BuildContext) -> Method:
        return self.method_class(
            context.feature_dim, self, examples=context.examples, seed=context.seed
        )


Config = TypeVar("Config", bound=DenseHeadConfig)


class DenseHead(Method, Generic[Config]):
    """Base class of methods of one view with a bias-free head W [n, D] over all n examples.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        examples: n.
        seed: seed of the head's first rows.
        **settings: single settings to replace, by name.
    """

    config_class: ClassVar[type[DenseHeadConfig]]
    view_count = 1

    def __init__(
        self,
        encoder_dim: int,
        config: Config | None = None,
        *,
        examples: int,
        seed: int = 0,
        **settings: Unpack[MethodArguments],
    ) -> None:
        super().__init__()
        check_number("examples", Positive, examples)
        selected = self.config_class.of(config, settings)
        weight = initial_rows(torch.arange(examples), encoder_dim, seed=seed, dtype=torch.float32)
        self.rows = nn.Parameter(weight)
        self.examples = examples
        self.head_lr_scale = selected.head_lr_scale
        self.compare = selected.head_loss()

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        (view,) = views
        h = encoder(view)
        return Loss(self.compare(h, self.rows, to_device(index, h.device)))

    def head_parameters(self) -> list[nn.Parameter]:
        """Return the rows, which have the head's own learning rate."""
        return [self.rows]

    def memory(self, examples: int) -> dict[str, Part]:
        """Return the bytes of the rows, whose moments the run's optimizer holds."""
        size = examples * self.rows.shape[1] * self.rows.element_size()
        return {"head": Part(bytes=size, place="device")}


@dataclass(frozen=True, kw_only=True)
class DietConfig(DenseHeadConfig):
    """Settings of `Diet`."""

    name: ClassVar[str] = "diet"

    # At 0.006 the class accuracy is the same and the digit accuracy 10 points lower
    # (studies/results/rate-diet.cpu.json).
    lr: Annotated[float, Gt(0)] = 2e-3
    """Peak learning rate of the encoder."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the target that is spread over all examples."""
    normalize: bool = False
    """Put features on the unit sphere; DIET as published does not."""

    def head_loss(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        return partial(
            index_cross_entropy, smoothing=self.label_smoothing, normalize=self.normalize
        )


class Diet(DenseHead[DietConfig]):
    """DIET: every example is its own class, with one dense linear head over all of them.

    The loss is the cross-entropy of a bias-free head W [n, D] against the example's own index.
    Time and memory grow with n; those of a step of S-DIET do not.

    Example:
        >>> views = [torch.rand(4, 8)]
        >>> Diet(8, examples=4)(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: DIET (Balestriero 2023); S-DIET (2025), section 3, equation 3.
    """

    config_class = DietConfig


@dataclass(frozen=True, kw_only=True)
class DietMSEConfig(DenseHeadConfig):
    """Settings of `DietMSE`."""

    name: ClassVar[str] = "diet-mse"

    # Chosen by hand: no study compares its rates.
    lr: Annotated[float, Gt(0)] = 1e-3
    """Peak learning rate of the encoder."""

    def head_loss(self) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
        return one_hot_error


class DietMSE(DenseHead[DietMSEConfig]):
    """DIET with squared error, which has a closed-form solution in theory.

    With an isometric head and a linear encoder its minimizers are those of the spectral
    contrastive loss (Theorem 4.3); here both are free. Time and memory grow with n.

    Example:
        >>> views = [torch.rand(4, 8)]
        >>> DietMSE(8, examples=4)(torch.nn.Identity(), views, torch.arange(4)).total.shape
        torch.Size([])

    Source: S-DIET (2025), section 4.
    """

    config_class = DietMSEConfig
