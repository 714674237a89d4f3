"""S-DIET: every example is its own class, and a step uses the rows of its batch alone."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, ClassVar, Literal, Self

import torch
from annotated_types import Gt, Interval
from torch import Tensor, nn

from widefield.methods.base import BuildContext, Method
from widefield.methods.pair import PairSettings
from widefield.methods.projector import ProjectorSettings
from widefield.rows import (
    Layout,
    Optimizer,
    RowHead,
    Rule,
    Start,
    batch_cross_entropy,
    choose_place,
    choose_store,
    decoupled_contrast,
)
from widefield.rows.head import SCALE
from widefield.types import Loss, Part, Place


class SDiet(Method):
    """DIET on the unit sphere, with a projection head, over the b rows of the batch alone.

    Args:
        projector: maps h [B, D] to [B, m].
        head: the n rows of width m; whoever trains the method steps it too.
        layout: how the head keeps the moments of a row.
        place: where the rows live.

    Source: S-DIET (2025), section 5.
    """

    view_count = 1

    def __init__(
        self, *, projector: nn.Module, head: RowHead, layout: Layout, place: Place
    ) -> None:
        super().__init__()
        self.projector = projector
        self.head = head
        self.layout = layout
        self.place: Place = place

    def projection_head(self) -> nn.Module:
        """Return the projector."""
        return self.projector

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Return the loss of the one view against the rows of the batch."""
        (view,) = views
        total = self.head(self.projector(encoder(view)), index)
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
class SDietSettings(PairSettings):
    """S-DIET with a lazily stepped per-example head."""

    name: ClassVar[str] = "s-diet"

    projector: ProjectorSettings = ProjectorSettings(layers=2)
    """The projection head."""
    head_lr_scale: Annotated[float, Gt(0)] = 1.0
    """Learning rate of the per-example head, as a multiple of lr."""
    row_loss: Literal["decoupled", "batch-ce"] = "decoupled"
    """Compare features with rows by decoupled contrast (ours), or by the paper's cross-entropy."""
    logit_scale: Annotated[float, Gt(0)] = SCALE
    """Factor of the logits; 1 in the paper."""
    label_smoothing: Annotated[float, Interval(ge=0, lt=1)] = 0.8
    """Share of the target that batch-ce spreads over the batch."""
    normalise: bool = True
    """Put features on the unit sphere, and with decoupled the rows too."""
    row_start: Start = "embedding"
    """First value of a row: its example's own first embedding, or random as in the paper."""
    row_optimizer: Optimizer = "adamw"
    """Optimiser of the rows; sgd has momentum 0.9 and no second moment."""
    row_update: Rule = "exact"
    """Replay a row's missed steps exactly, or estimate them as in the paper."""
    row_store: Literal["auto", "device", "host", "disk"] = "auto"
    """Keep rows here; auto takes the first where they need less than 25 % of the memory."""
    row_moments: Literal["float32", "bf16"] = "float32"
    """Type of the rows' moments: bf16 takes half the space."""
    row_second_moment: Literal["element", "row"] = "element"
    """Keep a second moment for each element of a row, or one for the whole row."""

    def __post_init__(self) -> None:
        """Check every field.

        Raises:
            ValueError: one does not fit, or a second moment is chosen for SGD.
        """
        super().__post_init__()
        if self.row_optimizer == "sgd" and self.row_second_moment == "row":
            raise ValueError(
                "row_second_moment row is for row_optimizer adamw: sgd has none, leave it out"
            )

    @property
    def layout(self) -> Layout:
        """How the moments of a row are kept."""
        second = "none" if self.row_optimizer == "sgd" else self.row_second_moment
        return Layout(moments=self.row_moments, second_moment=second)

    def resolved(self, examples: int, feature_dim: int, device: torch.device) -> Self:
        """Return the settings with the place of the rows on this machine."""
        dim = self.projector.out_dim(feature_dim)
        place = choose_place(self.row_store, examples, dim, device, self.layout)
        return replace(self, row_store=place)

    def build(self, context: BuildContext) -> Method:
        """Build the method for a run.

        Raises:
            ValueError: batches of one example, which cannot be told apart.
        """
        if self.row_loss == "decoupled" and context.batch_size < 2:
            raise ValueError("s-diet tells a batch's examples apart: use a batch_size of 2 or more")
        dim = self.projector.out_dim(context.feature_dim)
        place = self.resolved(context.examples, context.feature_dim, context.device).row_store
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
        projector = self.projector.build(context.feature_dim)
        if self.row_loss == "decoupled":
            loss = partial(decoupled_contrast, scale=self.logit_scale, normalise=self.normalise)
        else:
            loss = partial(
                batch_cross_entropy, scale=self.logit_scale, smoothing=self.label_smoothing
            )
        head = RowHead(
            context.examples,
            dim,
            loss=loss,
            normalise=self.normalise,
            start=self.row_start,
            optimizer=self.row_optimizer,
            rule=self.row_update,
            gap=max(1, round(context.examples / context.batch_size)),
            weight_decay=context.weight_decay,
            lr_scale=self.head_lr_scale,
            gather=self.gather,
            store=store,
        )
        return SDiet(projector=projector, head=head, layout=self.layout, place=place)
