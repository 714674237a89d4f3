"""Views against a per-example head: what `s-diet` and the methods made from it share."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, Literal, Self

import torch
from annotated_types import Gt
from torch import Tensor, nn

from widefield.core.memory import Memory
from widefield.core.settings import Settings
from widefield.core.types import Loss, Part, Place
from widefield.head import (
    Layout,
    Optimizer,
    PerExampleHead,
    Rule,
    Start,
    choose_place,
    choose_store,
)
from widefield.methods.base import BuildContext, Method
from widefield.methods.pair import PairConfig
from widefield.methods.projector import ProjectorConfig


class HeadMethod(Method):
    """A loss of the projections of one view against the b rows of the batch alone.

    With two views the second one is encoded without gradient, and compared with the first too.

    Args:
        projector: maps h [B, D] to [B, m].
        head: the n rows of width m; whoever trains the method steps it too.
        layout: how the head keeps the moments of a row.
        place: where the rows live.
        view_count: 1, or 2 for a loss that takes a second view.

    Source: S-DIET (2025), section 5.
    """

    def __init__(
        self,
        *,
        projector: nn.Module,
        head: PerExampleHead,
        layout: Layout,
        place: Place,
        view_count: int = 1,
    ) -> None:
        super().__init__()
        self.view_count = view_count
        self.projector = projector
        self.head = head
        self.layout = layout
        self.place: Place = place

    def projection_head(self) -> nn.Module:
        """Return the projector."""
        return self.projector

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Return the loss of the first view against the rows of the batch, and the second view."""
        view, *others = views
        z = self.projector(encoder(view))
        with torch.no_grad():
            second = [self.projector(encoder(other)) for other in others]
        total = self.head(z, index, *second)
        return Loss(total, {"row_norm": self.head.row_norm})

    def memory(self, examples: int) -> dict[str, Part]:
        """Return the bytes of the rows and of their moments."""
        dim = self.head.table.store.dim
        rows, all_bytes = 4 * dim, self.layout.row_bytes(dim)
        return {
            "head": Part(bytes=examples * rows, place=self.place),
            "moments": Part(bytes=examples * (all_bytes - rows), place=self.place),
        }


@dataclass(frozen=True, kw_only=True)
class HeadConfig(Settings):
    """Settings of the rows of a per-example head."""

    init: Start = "embedding"
    """First value of a row: its example's own first embedding, or random as in the paper."""
    optimizer: Optimizer = "adamw"
    """Optimizer of the rows; sgd has momentum 0.9 and no second moment."""
    update: Rule = "exact"
    """Replay a row's missed steps exactly, or estimate them as in the paper."""
    storage: Literal["auto", "device", "host", "disk"] = "auto"
    """Keep rows here; auto takes the first where they need less than 25 % of the memory."""
    moments: Literal["float32", "bf16"] = "float32"
    """Type of the rows' moments: bf16 takes half the space."""
    second_moment: Literal["element", "row"] = "element"
    """Keep a second moment for each element of a row, or one for the whole row."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            ValueError: one does not fit, or a second moment is chosen for SGD.
        """
        super().__post_init__()
        if self.optimizer == "sgd" and self.second_moment == "row":
            raise ValueError("second_moment row is for rows by adamw: sgd has none, leave it out")

    @property
    def layout(self) -> Layout:
        """How the moments of a row are kept."""
        second = "none" if self.optimizer == "sgd" else self.second_moment
        return Layout(moments=self.moments, second_moment=second)

    def placed(self, examples: int, dim: int, memory: Memory) -> Self:
        """Return the settings with the place of `examples` rows of width `dim`."""
        return replace(self, storage=choose_place(self.storage, examples, dim, memory, self.layout))

    def build(
        self,
        context: BuildContext,
        projector: ProjectorConfig,
        *,
        loss: Callable[..., Tensor],
        normalize: bool,
        lr_scale: float,
        gather_distributed: bool,
        view_count: int = 1,
    ) -> HeadMethod:
        """Build the method with a row for each example of the run."""
        built = projector.build(context.feature_dim)  # first: it refuses what is too large
        dim = projector.out_dim(context.feature_dim)
        place = self.placed(context.examples, dim, Memory.of(context.device)).storage
        assert place != "auto"
        store = choose_store(
            place,
            context.examples,
            dim,
            seed=context.seed,
            device=context.device,
            folder=context.folder,
            shard=context.shard,
            layout=self.layout,
        )
        head = PerExampleHead(
            context.examples,
            dim,
            loss=loss,
            normalize=normalize,
            init=self.init,
            optimizer=self.optimizer,
            rule=self.update,
            gap=max(1, round(context.examples / context.batch_size)),
            weight_decay=context.weight_decay,
            lr_scale=lr_scale,
            gather_distributed=gather_distributed,
            store=store,
        )
        return HeadMethod(
            projector=built,
            head=head,
            layout=self.layout,
            place=place,
            view_count=view_count,
        )


@dataclass(frozen=True, kw_only=True)
class HeadMethodConfig(PairConfig):
    """Settings that all losses of a batch against its rows share."""

    head_lr_scale: Annotated[float, Gt(0)] = 1.0
    """Learning rate of rows, as a multiple of lr; where an encoder takes less lr, rows do not."""
    head: HeadConfig = HeadConfig()
    """The rows of the per-example head."""

    def placed(self, examples: int, feature_dim: int, memory: Memory) -> Self:
        """Return the settings with the place of the rows."""
        dim = self.projector.out_dim(feature_dim)
        return replace(self, head=self.head.placed(examples, dim, memory))

    def build_rows(
        self,
        context: BuildContext,
        *,
        loss: Callable[..., Tensor],
        normalize: bool,
        view_count: int = 1,
    ) -> HeadMethod:
        """Build the method of a loss."""
        return self.head.build(
            context,
            self.projector,
            loss=loss,
            normalize=normalize,
            lr_scale=self.head_lr_scale,
            gather_distributed=self.gather_distributed,
            view_count=view_count,
        )
