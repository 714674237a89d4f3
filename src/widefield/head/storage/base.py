"""What every storage of rows does."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from widefield.head.storage.layout import Layout


@dataclass(frozen=True, slots=True)
class RowState:
    """Rows with their optimizer state, as they were after each row's own last step."""

    row: Tensor
    """Weights [b, m]."""
    m: Tensor
    """First moment [b, m]."""
    v: Tensor
    """Second moment [b, m]; [b, 1], one for the whole row; or [b, 0], none."""
    last: Tensor
    """Step each row is at, int64 [b], in host memory; 0 before the first."""


class Storage(Protocol):
    """Holds n rows of width `dim` with their optimizer state."""

    n: int
    dim: int
    layout: Layout
    """How moments are kept."""
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
