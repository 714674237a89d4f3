"""Rows with their lazy optimizer: a batch gathers its rows and gives back their gradients."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from widefield.head.lazy_adamw import LazyAdamW, RowState
from widefield.head.lazy_sgd import LazySGD

Rule = Literal["exact", "estimated"]


class Store(Protocol):
    """Holds n rows of width `dim` with their optimizer state."""

    n: int
    dim: int
    wait_seconds: float
    """Time that its caller has waited for it."""

    def prefetch(self, batches: Iterable[Tensor]) -> None:
        """Announce the next reads, each index [b], in their order."""

    def read(self, index: Tensor) -> RowState:
        """Return the state of rows `index` [b]."""

    def write(self, index: Tensor, state: RowState) -> None:
        """Replace rows `index` [b]."""

    def state_dict(self) -> dict[str, Any]:
        """Return everything a checkpoint needs."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""

    def load_shards(self, states: Sequence[dict[str, Any]]) -> None:
        """Take over its rows from what `state_dict` returned on all ranks of another world size."""

    def discard_old(self) -> None:
        """Drop what only checkpoints before the last `state_dict` need: that one is saved."""

    def close(self) -> None:
        """Let go of files and threads."""


class RowTable:
    """Gives a batch its rows, up to date, and steps them by their gradients.

    `exact`: each row first catches up on the steps that it missed, at the learning rates that
    these had, so that the table equals, to rounding, a dense optimizer over all n rows whose
    gradient is zero off the batch: `torch.optim.AdamW`, or SGD with momentum. `estimated`: the
    paper's rule, which steps ahead at each visit by an estimate of the time until the next one.

    Args:
        store: where the rows live.
        optimizer: the row optimizer, with the history of its steps.
        rule: `exact` or `estimated`.
        gap: for `estimated`, steps between two visits of a row: n / b, rounded.

    Example:
        >>> from widefield.head.storage.memory import MemoryStore
        >>> table = RowTable(MemoryStore(4, 2, seed=0), LazyAdamW())
        >>> rows = table.gather(torch.tensor([3, 0]))
        >>> table.apply_gradients(torch.ones_like(rows), lr=0.1)
        >>> table.optimizer.steps
        1

    Source: S-DIET (2025), section 5.2.2 ("multistep update") and appendix E.
    """

    def __init__(
        self, store: Store, optimizer: LazyAdamW | LazySGD, *, rule: Rule = "exact", gap: int = 1
    ) -> None:
        self.store = store
        self.optimizer = optimizer
        self.rule = rule
        self.gap = gap
        self._read: tuple[Tensor, RowState] | None = None
        self._gathered: tuple[Tensor, RowState] | None = None

    def gather(self, index: Tensor, *, start: Tensor | None = None) -> Tensor:
        """Return the rows [b, m] of the distinct examples `index`, as they stand now.

        A row that is gathered for the first time starts at its row of `start` [b, m] if that is
        given, else at its random start.
        """
        state = self._read_once(index)
        is_new = (state.last == 0)[:, None]
        if self.rule == "exact":
            state = self.optimizer.catch_up(state, self.optimizer.steps)
        if start is not None:
            row = torch.where(is_new.to(state.row.device), start.to(state.row), state.row)
            state = replace(state, row=row)
        self._gathered = (index, state)
        return state.row

    def _read_once(self, index: Tensor) -> RowState:
        """Return the state of a batch, from the store if it was not read since the last step."""
        if self._read is None or not torch.equal(self._read[0], index):
            self._read = (index, self.store.read(index))
        return self._read[1]

    def apply_gradients(self, grad: Tensor, *, lr: float) -> None:
        """Take a step with `grad` [b, m] on the rows just gathered, and store them."""
        assert self._gathered is not None, "apply_gradients follows gather"
        (index, state), self._gathered, self._read = self._gathered, None, None
        grad = grad.to(state.m)
        if self.rule == "exact":
            state = self.optimizer.step(state, grad, lr=lr)
        else:
            state = self.optimizer.paper_step(state, grad, lr=lr, gap=self.gap)
        self.optimizer.record(lr)
        self.store.write(index, state)

    def state_dict(self) -> dict[str, Any]:
        """Return the rows and the history of the optimizer."""
        return {"rates": self.optimizer.rates.state_dict(), "rows": self.store.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over a state, or {"shards": [...]}, those of all ranks of another world size.

        Raises:
            ValueError: its rows were stepped since, or do not fit the store.
        """
        shards = state.get("shards")
        states = shards or [state]
        for each in states:
            _refuse_stepped(each)
        if shards:
            self.store.load_shards([shard["rows"] for shard in shards])
        else:
            self.store.load_state_dict(state["rows"])
        self.optimizer.rates.load_state_dict(states[0]["rates"])
        self._read = self._gathered = None


def _refuse_stepped(state: dict[str, Any]) -> None:
    """Refuse rows that have moved on, in place, from the history that was saved with them.

    Raises:
        ValueError: they have.
    """
    last, steps = state["rows"].get("last"), state["rates"]["table"].shape[1] - 1
    if last is not None and (last > steps).any():
        raise ValueError(
            "the rows of the state were stepped after it was taken, as it holds the table's own: "
            "keep copy.deepcopy(head.state_dict()) to come back to"
        )
