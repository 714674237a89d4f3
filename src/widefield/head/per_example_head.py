"""The per-example head as a part of its own: rows, their loss and their optimizer."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from widefield.core.gather import gather, rank_and_world
from widefield.core.names import check_name
from widefield.core.precision import at_least_float32
from widefield.head.lazy_adamw import WEIGHT_DECAY, LazyAdamW
from widefield.head.lazy_sgd import LazySGD
from widefield.head.losses import decoupled_contrast
from widefield.head.storage.layout import Layout
from widefield.head.storage.memory import MemoryStore
from widefield.head.table import RowTable, Rule, Store

SCALE = 10.0
"""What multiplies the logits of the decoupled contrast, unless told otherwise."""

Start = Literal["embedding", "random"]
Optimizer = Literal["adamw", "sgd"]


class PerExampleHead(nn.Module):
    """Compares each feature of a batch with the rows of its batch, and steps these rows.

    A row for each of n examples, of which a step uses those of its batch alone. Rows are no
    parameters: they are stepped by a lazy AdamW or SGD of their own, which equals a dense one over
    all n.

        loss = head(z, index)
        loss.backward()
        optimizer.step()
        head.step(lr=...)

    In several processes each keeps the rows of its own examples, and the run's loss is the mean of
    theirs; with `gather` it is the loss of one process with the batch of all.

    Args:
        examples: n.
        dim: m, the width of z and of a row.
        loss: compares z [b, m] with the rows [b, m], and with a second view's features [b, m] where
            there are any; by default `decoupled_contrast`.
        normalize: put z on the unit sphere first, as published.
        init: first value of a row: its example's own first z, or random as in the paper.
        rule: how missed steps are replayed, `exact` or `estimated` as in the paper.
        optimizer: `adamw`, or `sgd` with momentum, each with decoupled weight decay.
        gap: for `estimated`, steps between two visits of a row; by default n / b of each batch.
        weight_decay: decoupled weight decay of the rows.
        lr_scale: learning rate of the rows, as a multiple of the one that `step` gets.
        gather_distributed: in several processes, tell the examples of all their batches apart.
        seed: seed of random starts.
        store: where the rows live; by default in host memory.

    Raises:
        ValueError: `init`, `rule` or `optimizer` is unknown, or `store` is of another size.

    Example:
        >>> head, encoder = PerExampleHead(examples=100, dim=8), nn.Linear(4, 8)
        >>> optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
        >>> loss = head(encoder(torch.rand(16, 4)), torch.arange(16))
        >>> loss.backward()
        >>> optimizer.step()
        >>> head.step(lr=1e-3)

    Source: S-DIET (2025), section 5.
    """

    def __init__(
        self,
        examples: int,
        dim: int,
        *,
        loss: Callable[..., Tensor] | None = None,
        normalize: bool = True,
        init: Start = "embedding",
        rule: Rule = "exact",
        optimizer: Optimizer = "adamw",
        gap: int | None = None,
        weight_decay: float = WEIGHT_DECAY,
        lr_scale: float = 1.0,
        gather_distributed: bool = False,
        seed: int = 0,
        store: Store | None = None,
    ) -> None:
        super().__init__()
        check_name("init", init, get_args(Start))
        check_name("rule", rule, get_args(Rule))
        check_name("optimizer", optimizer, get_args(Optimizer))
        self.examples = examples
        self.compare = loss or partial(decoupled_contrast, scale=SCALE, normalize=normalize)
        self.normalize = normalize
        self.init = init
        self.lr_scale = lr_scale
        self.gather_distributed = gather_distributed
        # The listing of the paper has no bias correction.
        lazy: LazyAdamW | LazySGD = LazyAdamW(
            weight_decay=weight_decay, bias_correction=rule == "exact"
        )
        if optimizer == "sgd":
            lazy = LazySGD(weight_decay=weight_decay)
        layout = Layout(second_moment="none" if optimizer == "sgd" else "element")
        store = store or MemoryStore(examples, dim, seed=seed, layout=layout)
        if (store.n, store.dim) != (examples, dim):
            raise ValueError(
                f"the store holds {store.n} rows of width {store.dim}, and the PerExampleHead is "
                f"for {examples} of width {dim}: give both the same"
            )
        self.table = RowTable(store, lazy, rule=rule)
        self.gap = gap
        self.frozen = False
        """While set, losses are computed for somebody else's gradient, and no step follows."""
        self.row_norm = torch.zeros(())
        """Mean norm of the rows of the last batch."""
        self._rows: Tensor | None = None
        self._step_is_due = False

    def forward(self, z: Tensor, index: Tensor, second: Tensor | None = None) -> Tensor:
        """Return the loss of z [b, m] of the examples `index` [b], integers.

        `second` [b, m] are features of a second view, for losses that take them; a row then starts
        between both. No gradient goes through them.

        Raises:
            ValueError: `index` is out of range, names an example twice or holds no integers, the
                rows of the last batch were not stepped, or the loss refuses the batch.
        """
        if self._step_is_due and not self.frozen:
            raise ValueError(
                "PerExampleHead got a second batch before step(), and would move the rows of the "
                "last alone: call head.step(lr=...) once after each loss.backward(), give batches "
                "whose gradients add up as one, or look at a loss under torch.no_grad()"
            )
        index = self._checked(index, len(z))
        seen = [z] if second is None else [z, second.detach()]
        seen = [at_least_float32(x) for x in seen]
        if self.normalize:
            seen = [F.normalize(x, dim=1) for x in seen]
        z = seen[0]
        start = self._start(seen) if self.init == "embedding" else None
        _, world = rank_and_world()
        self.table.gap = self.gap or max(1, round(self.examples / (world * len(z))))
        rows = self.table.gather(index, start=start).to(z.device).detach()
        self.row_norm = torch.linalg.vector_norm(rows, dim=1).mean()
        self._rows = rows.requires_grad_() if not self.frozen else None
        rows = rows.to(z.dtype)
        if self.gather_distributed:
            rows, *seen = map(gather, (rows, *seen))
        value = self.compare(seen[0], rows, *seen[1:])
        self._step_is_due = not self.frozen and self.training and torch.is_grad_enabled()
        return value

    def _start(self, seen: list[Tensor]) -> Tensor:
        """Return where new rows start: at the view, or in the middle of two."""
        middle = torch.stack(seen).detach().mean(0)
        return F.normalize(middle, dim=1) if self.normalize else middle

    def step(self, *, lr: float, grad_scale: float = 1.0, skipped: bool = False) -> None:
        """Move the rows of the last batch by their gradient, at `lr_scale * lr`.

        Args:
            lr: learning rate of the step.
            grad_scale: what the loss was multiplied by before its backward pass. With a scale, a
                gradient that is not finite is skipped.
            skipped: the scaler took no step of the optimizer, as a gradient was not finite. The
                rows take none either, and none is counted, as in a dense optimizer.

        Raises:
            ValueError: no loss was computed, or no gradient came back, since the last step.
        """
        if self._rows is None or self._rows.grad is None:
            raise ValueError(
                "PerExampleHead.step() found no gradient: call it once after each loss.backward()"
            )
        _, world = rank_and_world()
        grad, self._rows = self._rows.grad / (world * grad_scale), None
        self._step_is_due = False
        # Without a scale nobody has waited for the device, and nobody does here.
        if skipped or (grad_scale != 1 and not grad.isfinite().all()):
            return
        self.table.apply_gradients(grad, lr=self.lr_scale * lr)

    def miss_step(self, *, lr: float) -> None:
        """Note a step that was taken without this head, at `lr_scale * lr`; rows replay it.

        A loss that was computed for the step is forgotten.
        """
        self._rows, self._step_is_due = None, False
        self.table.optimizer.record(self.lr_scale * lr)

    def refuse(self, *, lr: float) -> None:
        """Refuse a learning rate, `lr_scale * lr`, that no step of the rows can have.

        Raises:
            ValueError: with it, weight decay would take a row to zero or beyond.
        """
        self.table.optimizer.rates.refuse(self.lr_scale * lr)

    def prefetch(self, batches: Iterable[Tensor]) -> None:
        """Announce the batches to come, each index [b]: rows on disk are then read ahead."""
        self.table.store.prefetch(batches)

    @property
    def wait_seconds(self) -> float:
        """Time that steps have waited for rows on disk."""
        return self.table.store.wait_seconds

    def discard_old(self) -> None:
        """Drop what only older checkpoints need, once one with this head's state is saved."""
        self.table.store.discard_old()

    def close(self) -> None:
        """Let go of files and threads."""
        self.table.store.close()

    def get_extra_state(self) -> dict[str, Any]:
        """Return the rows, which are no parameters, and the history of their optimizer.

        Rows in memory are the head's own, not copied: steps that follow change them.
        """
        return self.table.state_dict()

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Take over what `get_extra_state` returned, on this rank or on all of another world.

        A loss whose step is due is forgotten.

        Raises:
            ValueError: its rows were stepped since, or do not fit the head's.
        """
        self.table.load_state_dict(state)
        self._rows, self._step_is_due = None, False

    def _checked(self, index: Tensor, count: int) -> Tensor:
        """Return `index` int64 in host memory, where the table looks rows up without waiting."""
        if index.is_floating_point() or index.is_complex() or index.dtype == torch.bool:
            raise ValueError(
                f"the index is of {index.dtype}, which numbers no examples: give an integer for "
                "each feature of the batch"
            )
        index = index.cpu().long()
        if index.shape != (count,):
            raise ValueError(f"{count} features came with an index of shape {tuple(index.shape)}")
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < self.examples:
            raise ValueError(
                f"index {int(index.min())} to {int(index.max())} is not in [0, {self.examples}): "
                "number the examples from 0, and make the PerExampleHead for all of them"
            )
        if len(torch.unique(index)) < len(index):
            raise ValueError("an example is twice in one batch: draw batches without replacement")
        return index


def per_example_heads(module: nn.Module) -> list[PerExampleHead]:
    """Return the per-example heads inside `module`; whoever trains it steps them."""
    return [part for part in module.modules() if isinstance(part, PerExampleHead)]
