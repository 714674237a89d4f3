"""MoCo: match a view with the target network's key of the other view, against a queue of keys."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Unpack

import torch
import torch.nn.functional as F
from annotated_types import Ge, Gt, Interval
from torch import Tensor, nn

from widefield.core.batch import Positive, Rows, Shape, check_number, checked
from widefield.core.devices import to_device
from widefield.core.gather import gather
from widefield.core.precision import full_precision
from widefield.core.types import Loss
from widefield.methods.arguments import MethodArguments
from widefield.methods.base import BuildContext, Method
from widefield.methods.pair import ProjectionConfig
from widefield.methods.target import TargetNetwork


@checked
@full_precision
def queue_cross_entropy(
    q: Rows,
    keys: Rows,
    queue: Annotated[Tensor, Shape("K m", min_examples=0)],
    valid: Annotated[Tensor, Shape("K", kind="bool", min_examples=0)],
    *,
    temperature: Annotated[float, Gt(0)],
) -> Tensor:
    """Return the cross-entropy of finding each query's key among the batch's and the queue's.

    With the rows of queries q [b, m], keys [b, m] and queue [K, m] normalized,

        loss = -1/b sum_i log( exp(q_i.k_i/t) / (sum_j exp(q_i.k_j/t) + sum_l exp(q_i.u_l/t)) ),

    j over the batch and l over the rows of the queue that are `valid`, bool [K]. MoCo v3 has the
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
    queue_logits = (q @ queue.T).masked_fill(~valid, float("-inf"))
    logits = torch.cat([q @ keys.T, queue_logits], dim=1) / temperature
    return F.cross_entropy(logits, torch.arange(len(q), device=q.device))


@dataclass(frozen=True, kw_only=True)
class MoCoConfig(ProjectionConfig):
    """Settings of `MoCo`."""

    name: ClassVar[str] = "moco"

    temperature: Annotated[float, Gt(0)] = 0.2
    """Temperature of the softmax."""
    ema_decay: Annotated[float, Interval(ge=0, le=1)] = 0.99
    """Share of itself that the target network keeps at a step."""
    queue_size: Annotated[int, Ge(1)] = 4096
    """Number of past keys to compare with."""

    def build(self, context: BuildContext) -> Method:
        return MoCo(context.feature_dim, self, encoder=context.encoder, examples=context.examples)


class MoCo(Method):
    """Queries of the first view against a target network's keys of the second, and older keys.

    One direction, as in MoCo v2: a step has gradients through one view only. Two choices of this
    library: the queue starts empty instead of at random, and a queued key is left out while its
    example is in the batch, which has a newer one; with few examples it would repel its own query.

    Args:
        encoder_dim: D, the encoder's output width.
        config: settings, by default the measured ones.
        encoder: initial encoder of the target network, which is copied.
        examples: n, the largest length of the queue.
        **settings: single settings to replace, by name.

    Example:
        >>> import torch
        >>> encoder, views = torch.nn.Flatten(), list(torch.rand(2, 4, 1, 2, 4))
        >>> method = MoCo(8, encoder=encoder, examples=4, queue_size=8)
        >>> method(encoder, views, torch.arange(4)).total.shape
        torch.Size([])

    Source: MoCo v2 (Chen et al. 2020), MoCo v3 (Chen et al. 2021).
    """

    config_class = MoCoConfig
    view_count = 2
    moves_after_step = True
    queue: Tensor
    queue_index: Tensor

    def __init__(
        self,
        encoder_dim: int,
        config: MoCoConfig | None = None,
        *,
        encoder: nn.Module,
        examples: int,
        **settings: Unpack[MethodArguments],
    ) -> None:
        super().__init__()
        check_number("examples", Positive, examples)
        config = MoCoConfig.of(config, settings)
        self.projector = config.projector.build(encoder_dim)
        self.target = TargetNetwork(encoder, self.projector)
        self.ema_decay = config.ema_decay
        self.temperature = config.temperature
        # The queue holds the keys of all processes whether the loss is gathered or not.
        self.gather_distributed = config.gather_distributed
        queue_size, dim = min(config.queue_size, examples), config.projector.out_dim(encoder_dim)
        self.register_buffer("queue", torch.zeros(queue_size, dim))
        self.register_buffer("queue_index", torch.full((queue_size,), -1))
        self._trained: tuple[nn.Module, ...] = ()  # a tuple, so that it is not a submodule
        self._batch: tuple[Tensor, Tensor] | None = None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Load a state, also one with a shorter queue, of a run with fewer examples."""
        for name, empty in (("queue", 0.0), ("queue_index", -1)):
            saved, queue = state_dict.get(prefix + name), getattr(self, name)
            if saved is not None and saved.shape[1:] == queue.shape[1:] and len(saved) < len(queue):
                longer = torch.full_like(queue, empty)
                longer[: len(saved)] = saved
                state_dict[prefix + name] = longer
        super()._load_from_state_dict(state_dict, prefix, *args)

    def _loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        q, keys = self.projector(encoder(views[0])), self.target(views[1]).to(self.queue.dtype)
        index = to_device(index, q.device)
        if self.gather_distributed:
            q, keys, index = gather(q), gather(keys), gather(index)
        self._trained, self._batch = (encoder,), (keys, index)
        valid = (self.queue_index >= 0) & ~torch.isin(self.queue_index, index)
        total = queue_cross_entropy(q, keys, self.queue, valid, temperature=self.temperature)
        return Loss(total)

    def _move(self) -> None:
        """Update the target network, and put the keys of the batch in place of the oldest."""
        assert self._batch is not None
        (keys, index), (encoder,) = self._batch, self._trained
        if not self.gather_distributed:
            keys, index = gather(keys), gather(index)
        # The newest first, so that a queue that grows with the examples keeps its order.
        size = len(self.queue)
        self.queue.copy_(torch.cat([keys, self.queue])[:size])
        self.queue_index.copy_(torch.cat([index, self.queue_index])[:size])
        self.target.update(encoder, self.projector, ema_decay=self.ema_decay)
        self._batch = None
