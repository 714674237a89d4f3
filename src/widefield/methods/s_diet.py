"""S-DIET: every example is its own class, and a step uses the rows of its batch alone."""

from collections.abc import Iterable
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widefield.methods.base import Method, RunFacts
from widefield.methods.gather import gather, rank_and_world
from widefield.methods.precision import at_least_float32, full_precision
from widefield.methods.projector import recipe_projector
from widefield.recipe import Recipe, RowLoss
from widefield.rows import Layout, LazyAdamW, RowHead, choose_store
from widefield.types import Loss


@full_precision
def batch_cross_entropy(z: Tensor, rows: Tensor, *, scale: float, smoothing: float) -> Tensor:
    """Cross-entropy of telling the examples of a batch apart, z [b, m] against rows [b, m].

    With z_i on the unit sphere and w_j the row of example j,

        loss = -1/b sum_i sum_j q_ij log softmax_j(scale z_i . w_j),
        q_ij = (1 - smoothing) [i = j] + smoothing / b.

    Example:
        >>> import torch
        >>> far_apart = 100 * torch.eye(4)
        >>> float(batch_cross_entropy(torch.eye(4), far_apart, scale=1.0, smoothing=0.0))
        0.0

    Source: S-DIET (2025), section 5.3, equation 5; label smoothing as in DIET (2023).
    """
    target = torch.arange(len(z), device=z.device)
    return F.cross_entropy(scale * z @ rows.T, target, label_smoothing=smoothing)


@full_precision
def decoupled_contrast(z: Tensor, rows: Tensor, *, scale: float) -> Tensor:
    """Draw every feature z_i [b, m] to its own row [b, m], and away from all the others'.

    With z_i and w_j on the unit sphere,

        loss = 1/b sum_i ( -scale z_i . w_i
                           + log sum_{j != i} (exp(scale z_i . w_j) + exp(scale z_i . z_j)) ).

    Three things differ from `batch_cross_entropy`. An example is also told apart from what the
    encoder says of the others now, not only from what their rows remember. Its own row is left
    out of the sum, so that an easy example does not cease to teach. Rows lie on the sphere too,
    so that `scale` alone sets how much the nearest others count.

    Example:
        >>> import torch
        >>> z = torch.eye(4)
        >>> right, wrong = (decoupled_contrast(z, rows, scale=10.0) for rows in (z, z.roll(1, 0)))
        >>> bool(right < wrong)
        True

    Source: ours; leaving the positive out is Yeh et al. (2022), *Decoupled contrastive learning*.
    """
    rows = F.normalize(rows, dim=1)
    near_rows, near_features = scale * z @ rows.T, scale * z @ z.T
    own = torch.eye(len(z), dtype=torch.bool, device=z.device)
    others = torch.cat([near_rows, near_features], dim=1)
    others = others.masked_fill(own.repeat(1, 2), float("-inf"))
    return (others.logsumexp(1) - near_rows.diagonal()).mean()


def recipe_layout(recipe: Recipe) -> Layout:
    """How `recipe` keeps the moments of a row."""
    return Layout(moments=recipe.row_moments, second_moment=recipe.row_second_moment)


class SDiet(Method):
    """DIET on the unit sphere, with a projection head, over the b rows of the batch alone.

    Args:
        projector: maps h [B, D] to [B, m].
        head: the n rows of width m, with their optimiser.
        start_at_embedding: a row starts as its example's own first embedding instead of at
            random (ours): from then on the loss compares an example with its past self.
        row_loss: batch cross-entropy as published, or decoupled contrast (ours).
        logit_scale: multiplies the logits; 1 as published.
        label_smoothing: of batch cross-entropy; 0.8 as published.
        gather: in several processes, tell the examples of all their batches apart.

    In several processes each keeps the rows of its own examples. The run's loss is the mean of
    theirs, for the rows as for the encoder; with `gather` it is the one-process loss.

    Source: S-DIET (2025), section 5.
    """

    view_count = 1

    def __init__(
        self,
        *,
        projector: nn.Module,
        head: RowHead,
        start_at_embedding: bool,
        row_loss: RowLoss,
        logit_scale: float,
        label_smoothing: float,
        gather: bool = False,
    ) -> None:
        super().__init__()
        self.start_at_embedding = start_at_embedding
        self.projector = projector
        self.head = head
        self.logit_scale = logit_scale
        self.label_smoothing = label_smoothing
        self.row_loss = row_loss
        self.gather = gather
        self.steps = 0
        self._batch: tuple[Tensor, Tensor] | None = None

    @classmethod
    def from_recipe(cls, recipe: Recipe, facts: RunFacts) -> Self:
        """The method as a run of `recipe` uses it."""
        if recipe.row_loss == "decoupled" and recipe.batch_size < 2:
            raise ValueError("s-diet tells a batch's examples apart: use a batch_size of 2 or more")
        optimizer = LazyAdamW(
            facts.learning_rates * recipe.head_lr_scale,
            weight_decay=recipe.weight_decay,
            bias_correction=recipe.row_update == "exact",
        )
        store = choose_store(
            recipe.row_store,
            facts.examples,
            recipe.projector_dim,
            seed=recipe.seed,
            device=facts.device,
            folder=facts.folder,
            shard=facts.shard,
            layout=recipe_layout(recipe),
        )
        gap = max(1, round(facts.examples / recipe.batch_size))
        return cls(
            projector=recipe_projector(recipe, facts.feature_dim),
            head=RowHead(store, optimizer, rule=recipe.row_update, gap=gap),
            start_at_embedding=recipe.row_start == "embedding",
            logit_scale=recipe.logit_scale,
            label_smoothing=recipe.label_smoothing,
            row_loss=recipe.row_loss,
            gather=recipe.gather,
        )

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """The one view against the rows of the batch; `after_step` then moves the rows it used."""
        (view,) = views
        z = F.normalize(at_least_float32(self.projector(encoder(view))), dim=1)
        newcomers = z.detach() if self.start_at_embedding else None
        rows = self.head.take(index, self.steps + 1, newcomers=newcomers)
        rows = rows.to(z.device).requires_grad_()
        self._batch = (index, rows)
        against = rows
        if self.gather:
            z, against = gather(z), gather(rows)
        total = self._compare(z, against.to(z.dtype))
        norm = torch.linalg.vector_norm(rows.detach(), dim=1).mean()
        return Loss(total, {"row_norm": norm})

    def _compare(self, z: Tensor, rows: Tensor) -> Tensor:
        if self.row_loss == "decoupled":
            return decoupled_contrast(z, rows, scale=self.logit_scale)
        return batch_cross_entropy(z, rows, scale=self.logit_scale, smoothing=self.label_smoothing)

    def after_step(self, encoder: nn.Module, step: int, lr: float) -> None:
        """Move the rows of the batch by their own gradient."""
        assert self._batch is not None, "after_step follows loss and backward"
        index, rows = self._batch
        assert rows.grad is not None
        _, world = rank_and_world()
        self.head.put(index, rows.detach(), rows.grad / world, step)
        self.steps, self._batch = step, None

    @property
    def wait_seconds(self) -> float:
        """Time that steps have waited for rows."""
        return self.head.store.wait_seconds

    def expect(self, batches: Iterable[Tensor]) -> None:
        """Let the store read the rows of the batches to come."""
        self.head.store.expect(batches)

    def after_checkpoint(self) -> None:
        """Let the store forget what older checkpoints needed."""
        self.head.store.commit()

    def close(self) -> None:
        """Let go of the rows."""
        self.head.store.close()

    def get_extra_state(self) -> dict[str, Any]:
        """Rows are not parameters: they travel in the checkpoint beside them."""
        return {"steps": self.steps, "rows": self.head.store.state_dict()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over rows saved by `get_extra_state`, or of all ranks of another world size."""
        if "shards" in state:
            self.steps = state["shards"][0]["steps"]
            self.head.store.load_shards([shard["rows"] for shard in state["shards"]])
        else:
            self.steps = state["steps"]
            self.head.store.load_state_dict(state["rows"])
