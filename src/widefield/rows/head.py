"""The per-example head: one trainable row per example, used b at a time."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

import torch
from torch import Tensor

from widefield.rows.adamw import LazyAdamW, RowState

Rule = Literal["exact", "estimated"]


class Store(Protocol):
    """Holds n rows of width `dim` with their optimiser state."""

    n: int
    dim: int
    wait_seconds: float
    """Time that its caller has waited for it."""

    def expect(self, batches: Iterable[Tensor]) -> None:
        """Announce the next reads, each index [b], in their order."""

    def read(self, index: Tensor) -> RowState:
        """State of rows `index` [b]."""

    def write(self, index: Tensor, state: RowState) -> None:
        """Replace rows `index` [b]."""

    def state_dict(self) -> dict[str, Any]:
        """Everything a checkpoint needs."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over what `state_dict` returned."""

    def load_shards(self, states: Sequence[dict[str, Any]]) -> None:
        """Take over its rows from what `state_dict` returned on all ranks of another world size."""

    def commit(self) -> None:
        """Take note that what `state_dict` last returned is saved."""

    def close(self) -> None:
        """Let go of files and threads."""


class RowHead:
    """Gives a batch its rows, up to date, and takes their gradients back.

    `exact`: each row first catches up on the steps it missed, under the true schedule, so that
    the head equals, to rounding, a dense `torch.optim.AdamW` over all n rows whose gradient is
    zero off the batch. `estimated`: the paper's rule, which steps ahead at each visit by an
    estimate of the time until the next one.

    Args:
        store: where the rows live.
        optimizer: the row optimiser, with its schedule.
        rule: `exact` or `estimated`.
        gap: for `estimated`, steps between two visits of a row: n / b, rounded.

    Source: S-DIET (2025), section 5.3 ("multistep update") and appendix E.
    """

    def __init__(
        self, store: Store, optimizer: LazyAdamW, *, rule: Rule = "exact", gap: int = 1
    ) -> None:
        self.store = store
        self.optimizer = optimizer
        self.rule = rule
        self.gap = gap
        self._taken: RowState | None = None

    def take(self, index: Tensor, step: int, *, newcomers: Tensor | None = None) -> Tensor:
        """Rows [b, m] of the distinct examples `index`, as they stand before step `step`.

        A row that is taken for the first time starts at its row of `newcomers` [b, m] if that is
        given, else at its random start.
        """
        state = self.store.read(index)
        first = (state.last == 0)[:, None]
        if self.rule == "exact":
            state = self.optimizer.coast(state, until=step - 1)
        if newcomers is not None:
            row = torch.where(first.to(state.row.device), newcomers.to(state.row), state.row)
            state = replace(state, row=row)
        self._taken = state
        return state.row

    def put(self, index: Tensor, rows: Tensor, grad: Tensor, step: int) -> None:
        """Apply step `step` with `grad` [b, m] to `rows`, just taken, and store them."""
        assert self._taken is not None, "put follows take"
        state = RowState(rows.to(self._taken.m), self._taken.m, self._taken.v, self._taken.last)
        grad, self._taken = grad.to(state.m), None
        if self.rule == "exact":
            state = self.optimizer.step(state, grad, step=step)
        else:
            state = self.optimizer.published_visit(state, grad, step=step, gap=self.gap)
        self.store.write(index, state)
