"""Base class of the methods with a per-example head."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Generic, Literal, Self, TypeVar, Unpack

import torch
from annotated_types import Gt
from torch import Tensor, nn

from widefield.core.batch import Positive, check_number
from widefield.core.hardware import Memory
from widefield.core.settings import Settings
from widefield.core.types import WHOLE, Loss, Part
from widefield.head import (
    Init,
    Layout,
    LazyAdamW,
    LazySGD,
    PerExampleHead,
    Update,
    choose_storage,
    select_device_kind,
)
from widefield.head.lazy_optimizer import WEIGHT_DECAY
from widefield.methods.arguments import MethodArguments
from widefield.methods.base import BuildContext, Method
from widefield.methods.pair import ProjectionConfig


@dataclass(frozen=True, kw_only=True)
class HeadConfig(Settings):
    """Settings of a per-example head and its optimizer.

    Example:
        >>> HeadConfig(storage="disk").changed({"moments": "bf16"}).storage
        'disk'
    """

    lr_scale: Annotated[float, Gt(0)] = 1.0
    """Learning rate of rows, as a multiple of lr; where an encoder takes less lr, rows do not."""
    init: Init = "embedding"
    """First value of a row: its example's own first embedding, or random as in the paper."""
    optimizer: Literal["adamw", "sgd"] = "adamw"
    """Optimizer of the rows; sgd has momentum 0.9 and no second moment."""
    update: Update = "exact"
    """Replay a row's missed steps exactly, or estimate them as in the paper."""
    storage: Literal["auto", "device", "host", "disk"] = "auto"
    """Keep rows here; auto takes the first where they need less than 25 % of the memory."""
    moments: Literal["float32", "bf16"] = "float32"
    """Type of the rows' moments: bf16 takes half the space."""
    second_moment: Literal["element", "row"] = "element"
    """Keep a second moment for each element of a row, or one for the whole row."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.optimizer == "sgd" and self.second_moment == "row":
            raise ValueError("second_moment row is for rows by adamw: sgd has none, leave it out")

    @property
    def layout(self) -> Layout:
        """Format of the moments of a row."""
        second = "none" if self.optimizer == "sgd" else self.second_moment
        return Layout(moments=self.moments, second_moment=second)


@dataclass(frozen=True, kw_only=True)
class HeadMethodConfig(ProjectionConfig, ABC):
    """Settings of a method with a per-example head, which say what its loss is.

    Example:
        >>> from widefield.methods import SDietConfig
        >>> isinstance(SDietConfig(), HeadMethodConfig), SDietConfig().head.init
        (True, 'embedding')
    """

    head: HeadConfig = HeadConfig()
    """The rows of the per-example head."""

    @abstractmethod
    def head_loss(self) -> Callable[..., Tensor]:
        """Return the loss of z [b, m], rows [b, m], and a second view's z where there is one."""

    def build(self, context: BuildContext) -> Method:
        return self.method_class(
            context.feature_dim, self, examples=context.examples, context=context
        )

    def placed(self, examples: int, feature_dim: int, memory: Memory) -> Self:
        dim, rows = self.projector.out_dim(feature_dim), self.head
        storage = select_device_kind(rows.storage, examples, dim, memory, rows.layout)
        return replace(self, head=replace(rows, storage=storage))


Config = TypeVar("Config", bound=HeadMethodConfig)


class HeadMethod(Method, Generic[Config]):
    """A loss of the projections of one view against the b rows of the batch alone.

    A second view, if there is one, is encoded without gradient and compared with the first.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        examples: n.
        context: the run, which decides where the rows are stored and their weight decay; by
            default they are in memory.
        **settings: single settings to replace, by name.

    The training loop has to call `head.optimizer.step()` too.

    Example:
        >>> from widefield.methods import SDiet
        >>> method = SDiet(encoder_dim=8, examples=100)
        >>> isinstance(method, HeadMethod), method.head.examples
        (True, 100)

    Source: S-DIET (2025), section 5.
    """

    config_class: ClassVar[type[HeadMethodConfig]]
    view_count = 1

    def __init__(
        self,
        encoder_dim: int,
        config: Config | None = None,
        *,
        examples: int,
        context: BuildContext | None = None,
        **settings: Unpack[MethodArguments],
    ) -> None:
        super().__init__()
        check_number("examples", Positive, examples)
        selected = self.config_class.of(config, settings)
        # First, because it checks the memory.
        self.projector = selected.projector.build(encoder_dim)
        dim, rows = selected.projector.out_dim(encoder_dim), selected.head
        device = torch.device("cpu") if context is None else context.device
        self.layout = rows.layout
        self.place = select_device_kind(rows.storage, examples, dim, Memory.of(device), rows.layout)
        self.head = PerExampleHead(
            examples,
            dim,
            loss=selected.head_loss(),
            normalize=selected.flat().get("normalize", True),
            init=rows.init,
            gather_distributed=selected.gather_distributed,
            storage=choose_storage(
                self.place,
                examples,
                dim,
                seed=0 if context is None else context.seed,
                device=device,
                folder=None if context is None else context.folder,
                shard=WHOLE if context is None else context.shard,
                layout=rows.layout,
            ),
        )
        optimizer = (LazySGD if rows.optimizer == "sgd" else LazyAdamW)(
            self.head,
            lr=rows.lr_scale * selected.lr,
            weight_decay=WEIGHT_DECAY if context is None else context.weight_decay,
            update=rows.update,
            # n / b over all processes: about the steps of an epoch, in which a row is seen once.
            gap=None if context is None else max(1, round(examples / context.batch_size)),
        )
        optimizer.param_groups[0]["lr_scale"] = rows.lr_scale

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Return the loss of the first view against the rows of the batch, and the second view."""
        # Here, so that whoever freezes a method need not know of heads.
        self.head.frozen = self.frozen
        z, second = self.projector(encoder(views[0])), None
        if len(views) > 1:
            with torch.no_grad():
                second = self.projector(encoder(views[1]))
        total = self.head(z, index, second)
        return Loss(total, {"row_norm": self.head.row_norm})

    def memory(self, examples: int) -> dict[str, Part]:
        """Return the bytes of the rows and of their moments."""
        dim = self.head.storage.dim
        rows, all_bytes = 4 * dim, self.layout.row_bytes(dim)
        return {
            "head": Part(bytes=examples * rows, place=self.place),
            "moments": Part(bytes=examples * (all_bytes - rows), place=self.place),
        }
