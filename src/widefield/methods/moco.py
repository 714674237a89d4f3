"""MoCo: find the slowly moving teacher's key of the other view among the keys of the past."""

from typing import Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widefield.methods.base import Method, RunFacts
from widefield.methods.gather import gather
from widefield.methods.precision import full_precision
from widefield.methods.projector import recipe_projector
from widefield.methods.teacher import Teacher
from widefield.recipe import Recipe
from widefield.types import Loss


@full_precision
def queue_cross_entropy(
    q: Tensor, keys: Tensor, queue: Tensor, usable: Tensor, *, temperature: float
) -> Tensor:
    """Cross-entropy of finding each query's key among the batch's and the queue's.

    With the rows of queries q [b, m], keys [b, m] and queue [K, m] normalised,

        loss = -1/b sum_i log( exp(q_i.k_i/t) / (sum_j exp(q_i.k_j/t) + sum_l exp(q_i.u_l/t)) ),

    j over the batch and l over the rows of the queue that are `usable`, bool [K]. MoCo v3 has the
    first sum alone, MoCo v1 and v2 the second alone and exp(q_i.k_i/t).

    Example:
        >>> none = torch.zeros(1, dtype=torch.bool)
        >>> loss = queue_cross_entropy(
        ...     torch.eye(2), torch.eye(2), torch.ones(1, 2), none, temperature=0.01
        ... )
        >>> float(loss)
        0.0

    Source: MoCo (He et al. 2020), equation 1; MoCo v3 (Chen et al. 2021), algorithm 1.
    """
    q, keys, queue = (F.normalize(rows, dim=1) for rows in (q, keys, queue))
    past = (q @ queue.T).masked_fill(~usable, float("-inf"))
    logits = torch.cat([q @ keys.T, past], dim=1) / temperature
    return F.cross_entropy(logits, torch.arange(len(q), device=q.device))


class MoCo(Method):
    """Queries of the first view against a teacher's keys of the second, and older keys.

    One direction, as in MoCo v2, so that a step trains on one view and only looks at the other.
    Ours: the queue starts empty instead of at random, and a queued key is left out while its
    example is in the batch, which has a newer one; with few examples it would repel its own query.

    Args:
        encoder: what the teacher starts as a copy of.
        projector: maps h [B, D] to [B, m].
        projector_dim: m.
        queue_size: keys to keep.
        momentum: of the teacher.
        temperature: of the softmax.
        gather: in several processes, tell the examples of all their batches apart. The queue holds
            the keys of all of them in any case.

    Source: MoCo v2 (Chen et al. 2020), MoCo v3 (Chen et al. 2021).
    """

    view_count = 2
    queue: Tensor
    queue_index: Tensor

    def __init__(
        self,
        *,
        encoder: nn.Module,
        projector: nn.Module,
        projector_dim: int,
        queue_size: int,
        momentum: float,
        temperature: float,
        gather: bool = False,
    ) -> None:
        super().__init__()
        self.projector = projector
        self.teacher = Teacher(encoder, projector)
        self.momentum = momentum
        self.temperature = temperature
        self.gather = gather
        self.register_buffer("queue", torch.zeros(queue_size, projector_dim))
        self.register_buffer("queue_index", torch.full((queue_size,), -1))
        self._batch: tuple[Tensor, Tensor] | None = None

    @classmethod
    def from_recipe(cls, recipe: Recipe, facts: RunFacts) -> Self:
        """The method as a run of `recipe` uses it."""
        return cls(
            encoder=facts.encoder,
            projector=recipe_projector(recipe, facts.feature_dim),
            projector_dim=recipe.projector_dim,
            # A longer queue would hold examples twice.
            queue_size=min(recipe.queue_size, facts.examples),
            momentum=recipe.teacher_momentum,
            temperature=recipe.temperature,
            gather=recipe.gather,
        )

    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Cross-entropy over the batch and the queue; `after_step` then queues the keys."""
        q, keys = self.projector(encoder(views[0])), self.teacher(views[1]).to(self.queue.dtype)
        index = index.to(q.device)
        if self.gather:
            q, keys, index = gather(q), gather(keys), gather(index)
        self._batch = (keys, index)
        usable = (self.queue_index >= 0) & ~torch.isin(self.queue_index, index)
        total = queue_cross_entropy(q, keys, self.queue, usable, temperature=self.temperature)
        return Loss(total)

    def after_step(self, encoder: nn.Module, step: int, lr: float) -> None:
        """Let the teacher follow, and the keys of the batch push out the oldest."""
        assert self._batch is not None, "after_step follows loss and backward"
        keys, index = self._batch
        if not self.gather:
            keys, index = gather(keys), gather(index)
        size = len(self.queue)
        self.queue.copy_(torch.cat([keys, self.queue])[:size])
        self.queue_index.copy_(torch.cat([index, self.queue_index])[:size])
        self.teacher.follow(encoder, self.projector, momentum=self.momentum)
        self._batch = None
