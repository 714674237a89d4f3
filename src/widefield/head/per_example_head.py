"""The per-example head: a trained row for each example."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, distributed, nn

from widefield.core.batch import Positive, Shape, check_index, check_tensors, checked
from widefield.core.devices import to_device
from widefield.core.gather import gather, over_world
from widefield.core.names import check_name
from widefield.core.precision import at_least_float32
from widefield.head.history import StepHistory
from widefield.head.losses import decoupled_contrast
from widefield.head.storage.base import RowState, Storage
from widefield.head.storage.memory import MemoryStorage

# A temperature of 0.1; the study contrast-weights (docs/studies.md) compares others for runs.
SCALE = 10.0
"""Default factor of the logits of the decoupled contrast."""

Init = Literal["embedding", "random"]

_FEATURES = {"z": Shape("b m"), "second": Shape("b m")}


class PerExampleHead(nn.Module):
    """Loss of the features of a batch and the rows of its examples.

    The head has a row for each of n examples, and a step uses those of its batch only. The rows are
    not in `parameters()`: `LazyAdamW(head)` or `LazySGD(head)` updates them, with the result of a
    dense optimizer over all n rows.

    Each of several processes has the rows of its own examples, and the loss is the mean over
    processes; with `gather_distributed` it is the loss of the joint batch.

    Args:
        examples: n.
        dim: m, the width of z and of a row.
        loss: compares z [b, m] with the rows [b, m], and with a second view's features [b, m] where
            there are any; by default `decoupled_contrast`.
        normalize: normalize z first, as published.
        init: initial value of a row: the first z of its example, or random as in the paper.
        gather_distributed: compute the loss over the examples of all processes.
        seed: seed of random rows.
        storage: storage of the rows; by default in host memory.

    Raises:
        ValueError: `init` is unknown, there are no examples, or `storage` is of another size.

    Example:
        >>> from widefield.head import LazyAdamW
        >>> head, encoder = PerExampleHead(examples=100, dim=8), nn.Linear(4, 8)
        >>> optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3)
        >>> head_optimizer = LazyAdamW(head, lr=1e-3)
        >>> loss = head(encoder(torch.rand(16, 4)), torch.arange(16))
        >>> loss.backward()
        >>> optimizer.step()
        >>> head_optimizer.step()

    Source: S-DIET (2025), section 5.
    """

    @checked
    def __init__(
        self,
        examples: Positive,
        dim: Positive,
        *,
        loss: Callable[..., Tensor] | None = None,
        normalize: bool = True,
        init: Init = "embedding",
        gather_distributed: bool = False,
        seed: int = 0,
        storage: Storage | None = None,
    ) -> None:
        super().__init__()
        check_name("init", init, get_args(Init))
        storage = storage or MemoryStorage(examples, dim, seed=seed)
        if (storage.n, storage.dim) != (examples, dim):
            raise ValueError(
                f"the storage holds {storage.n} rows of width {storage.dim}, and the "
                f"PerExampleHead is for {examples} of width {dim}: give both the same"
            )
        self.examples = examples
        self.compare = loss or partial(decoupled_contrast, scale=SCALE, normalize=normalize)
        self.normalize = normalize
        self.init = init
        self.gather_distributed = gather_distributed
        self.storage = storage
        self.history = StepHistory()
        self.optimizer: torch.optim.Optimizer | None = None
        """Optimizer of the rows, once there is one."""
        self.catch_up: Callable[[RowState], RowState] | None = None
        """Takes the steps that rows missed; the optimizer sets it, unless it estimates them."""
        self.frozen = False
        """While set, losses are computed without an optimizer step after them."""
        self.row_norm = torch.zeros(())
        """Mean norm of the rows of the last batch."""
        self.batch_rows = [torch.zeros(0, dim, requires_grad=True)]
        """The rows of the last batch, the one parameter of the optimizer; a new leaf each time."""
        self.step_pending = False
        # First example of each group that joined together, and the steps before.
        self._joined = torch.zeros(2, 1, dtype=torch.int64)
        self._batch: tuple[Tensor, RowState] | None = None  # index and state of `batch_rows`
        self._read: tuple[Tensor, RowState, Tensor] | None = None  # the last batch since a step

    if TYPE_CHECKING:

        def __call__(self, z: Tensor, index: Tensor, second: Tensor | None = None) -> Tensor: ...

    def extra_repr(self) -> str:
        return (
            f"examples={self.examples}, dim={self.storage.dim}, normalize={self.normalize}, "
            f"init={self.init!r}, storage={self.storage!r}"
        )

    def forward(self, z: Tensor, index: Tensor, second: Tensor | None = None) -> Tensor:
        """Return the loss of z [b, m] of the examples `index` [b], integers.

        `second` [b, m] are features of a second view without gradient, for losses that take them;
        the initial value of a row is then the mean of both.

        Raises:
            ValueError: `index` is out of range, has an example twice or no integers, there was no
                step after the last batch, or the batch is too small for the loss.
        """
        check_tensors({"z": z, "second": second}, _FEATURES, {"m": self.storage.dim})
        seen = [self._normalized(z)]
        if second is not None:
            seen.append(self._normalized(second.detach()))
        rows = self._rows_of_batch(index, seen)
        self.row_norm = torch.linalg.vector_norm(rows.detach(), dim=1).mean()
        rows = rows.to(seen[0].dtype)
        if self.gather_distributed:
            rows, *seen = map(gather, (rows, *seen))
        value = self.compare(seen[0], rows, *seen[1:])
        self.step_pending |= self.training and rows.requires_grad
        return value

    def _normalized(self, z: Tensor) -> Tensor:
        z = at_least_float32(z)
        return F.normalize(z, dim=1) if self.normalize else z

    def _rows_of_batch(self, index: Tensor, seen: list[Tensor]) -> Tensor:
        """Return the rows [b, m] on the device of `seen`, which initializes new ones."""
        tracked = torch.is_grad_enabled() and not self.frozen
        pending = self.step_pending or self.batch_rows[0].grad is not None
        if tracked and self.training and pending:
            raise ValueError(
                "PerExampleHead got a second batch before step(), which would update the last rows "
                "only: call step() of its optimizer once after each loss.backward(), or "
                "zero_grad() to skip a batch; accumulate gradients in one batch, and evaluate a "
                "loss under torch.no_grad()"
            )
        index = self._checked(index, len(seen[0]))
        state, is_new = self._state(index)
        if self.init == "embedding" and is_new.any():
            first = torch.stack(seen).detach().mean(0)  # between the views, where there are two
            first = F.normalize(first, dim=1) if self.normalize else first
            is_new = to_device(is_new[:, None], state.row.device)
            state = replace(state, row=torch.where(is_new, first.to(state.row), state.row))
        rows = to_device(state.row, seen[0].device).detach()
        if not tracked:
            return rows
        self._batch, self.batch_rows[0] = (index, state), rows.requires_grad_()
        if distributed.is_available() and distributed.is_initialized():
            rows.register_hook(over_world)  # type: ignore[no-untyped-call]
        return rows

    def _state(self, index: Tensor) -> tuple[RowState, Tensor]:
        """Return the state of a batch, read once per step and caught up, and which rows are new."""
        if self._read is None or not torch.equal(self._read[0], index):
            state = self.storage.read(index)
            is_new = state.last == 0
            if self.catch_up is not None:
                # A row that joined later has not missed the steps before.
                first, steps = self._joined
                join_step = steps[torch.searchsorted(first, index, right=True) - 1]
                state = self.catch_up(replace(state, last=torch.maximum(state.last, join_step)))
            self._read = (index, state, is_new)
        return self._read[1:]

    def rows(self, index: Tensor) -> Tensor:
        """Return the current rows [b, m] of distinct examples `index` [b].

        Rows that were never visited are random.
        """
        count = len(index) if hasattr(index, "__len__") else 0
        return self._state(self._checked(index, count))[0].row.clone()

    def take_batch(self) -> tuple[Tensor, RowState, Tensor] | None:
        """Return index, state and gradient of the last batch; None without gradient.

        Raises:
            ValueError: the gradient came after the step of its batch.
        """
        (rows,), batch = self.batch_rows, self._batch
        grad, rows.grad = rows.grad, None
        self._batch = self._read = None
        self.step_pending = False
        if grad is None:
            return None
        if batch is None:
            raise ValueError(
                "the gradient of a batch came after its step(): call loss.backward() before step()"
            )
        return *batch, grad

    def get_extra_state(self) -> dict[str, Any]:
        """Return the rows and the history of their steps.

        Rows in memory are not copied: later steps change them.
        """
        return {
            "rates": self.history.state_dict(),
            "rows": self.storage.state_dict(),
            "examples": self.examples,
            "joined": self._joined.clone(),
        }

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Load what `get_extra_state` returned, on this rank or on all ranks of another world size.

        Examples that the state does not have join after its steps. A loss without a step is
        dropped.

        Raises:
            ValueError: there were steps since, or the rows do not fit the head.
        """
        shards = state.get("shards")
        states = shards or [state]
        for each in states:
            _check_not_updated(each)
        if shards:
            self.storage.load_shards([shard["rows"] for shard in shards])
        else:
            self.storage.load_state_dict(state["rows"])
        self.history.load_state_dict(states[0]["rates"])
        # A state of an earlier version does not say how many examples it has.
        self._joined = states[0].get("joined", self._joined).cpu()
        before = states[0].get("examples", self.examples)
        if before < self.examples:
            group = torch.tensor([[before], [self.history.steps]])
            self._joined = torch.cat([self._joined, group], dim=1)
        self.batch_rows[0].grad = self._batch = self._read = None
        self.step_pending = False

    def _checked(self, index: Tensor, count: int) -> Tensor:
        """Return a valid `index` as int64 in host memory, where no device has to be waited for."""
        index = index.cpu() if isinstance(index, Tensor) else index
        check_index(index, count, self.examples)
        index = index.long()
        if len(torch.unique(index)) < len(index):
            raise ValueError("an example is twice in one batch: draw batches without replacement")
        return index


def _check_not_updated(state: dict[str, Any]) -> None:
    """Check that the rows were not updated in place after the state was taken."""
    last, steps = state["rows"].get("last"), state["rates"]["table"].shape[1] - 1
    if last is not None and (last > steps).any():
        raise ValueError(
            "the rows of the state were updated after it was taken, as they are not a copy: keep "
            "copy.deepcopy(head.state_dict()) instead"
        )
