"""Rows in the memory of a device or of the host."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from widefield.core.batch import Positive, checked
from widefield.core.devices import to_device
from widefield.core.types import WHOLE, Shard
from widefield.head.storage.base import RowState, initial_rows
from widefield.head.storage.layout import FULL, Layout

# Chosen by hand: 2 MB of rows of 128 numbers.
_CHUNK_ROWS = 4096


class MemoryStorage:
    """All n rows of width m, or those of a shard, with both moments in the memory of one device.

    With the default layout 3 n m floats and n integers, 1.5 GB for a million examples at m = 128.

    Example:
        >>> import torch
        >>> storage = MemoryStorage(4, 2, seed=0)
        >>> state = storage.read(torch.tensor([2]))
        >>> storage.write(torch.tensor([2]), RowState(state.row + 1, state.m, state.v, state.last))
        >>> bool((storage.read(torch.tensor([2])).row == state.row + 1).all())
        True
    """

    @checked
    def __init__(
        self,
        n: Positive,
        dim: Positive,
        *,
        seed: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        shard: Shard = WHOLE,
        layout: Layout = FULL,
    ) -> None:
        self.n, self.dim, self.shard = n, dim, shard
        self.layout = layout
        self.device = torch.device(device)
        self.wait_seconds = 0.0
        examples = shard.examples(n).to(self.device)
        self.row = torch.empty(len(examples), dim, dtype=dtype, device=self.device)
        for first in range(0, len(examples), _CHUNK_ROWS):
            # In chunks, because generation takes several times the memory of its result.
            part = slice(first, first + _CHUNK_ROWS)
            self.row[part] = initial_rows(examples[part], dim, seed=seed, dtype=dtype)
        rounded = dtype == torch.float32
        self.m = torch.zeros_like(self.row, dtype=layout.m_dtype if rounded else dtype)
        self.v = torch.zeros(
            (len(examples), layout.v_width(dim)),
            dtype=layout.v_dtype if rounded else dtype,
            device=self.device,
        )
        # On the host, so that a step does not wait for the device.
        self.last = torch.zeros(len(examples), dtype=torch.int64)

    def read(self, index: Tensor) -> RowState:
        """Return the state of rows `index` [b], copied; `index` is in host memory."""
        local = index // self.shard.world
        on_device = to_device(local, self.device)
        row = self.row[on_device]
        return RowState(row, self.m[on_device].to(row), self.v[on_device].to(row), self.last[local])

    def write(self, index: Tensor, state: RowState) -> None:
        """Replace rows `index` [b], which are distinct."""
        local = index // self.shard.world
        on_device = to_device(local, self.device)
        moments = state.m, state.v
        if self.m.dtype == torch.bfloat16:
            moments = self.layout.cast_moments(state.row, *moments)
        for table, new in zip((self.row, self.m, self.v), (state.row, *moments), strict=True):
            table.index_copy_(0, on_device, new)
        self.last[local] = state.last

    def __repr__(self) -> str:
        return f"MemoryStorage(n={self.n}, dim={self.dim}, device={str(self.device)!r})"

    def prefetch(self, batches: Iterable[Tensor]) -> None:
        """Do nothing: rows are in memory."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return all rows and their optimizer state."""
        return {"row": self.row, "m": self.m, "v": self.v, "last": self.last}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Load what `state_dict` returned, of a storage of as many rows or another number.

        Rows that only one of the two has must not have been visited.

        Raises:
            ValueError: the sizes do not fit, or such rows were visited.
        """
        self._check_state(state)
        count = min(len(state["row"]), len(self.row))
        if state["last"][count:].any():
            raise ValueError(
                f"the state holds {len(state['row'])} rows, and this storage {count}: make it, and "
                "its PerExampleHead, for as many examples as the one that was saved, or more"
            )
        if self.last[count:].any():
            raise ValueError(
                f"the state holds {count} rows, and this storage, with {len(self.row)}, has "
                "visited others since: make a new one, and a new PerExampleHead if it has one, and "
                "load into that"
            )
        for name, table in self.state_dict().items():
            table[:count] = state[name][:count]

    def load_shards(self, states: Sequence[dict[str, Tensor]]) -> None:
        """Load its rows from `state_dict` of all ranks of another world size.

        Raises:
            ValueError: one is of another width or layout.
        """
        for rank, state in enumerate(states):
            self._check_state(state)
            example = Shard(rank, len(states)).examples(self.n)[: len(state["row"])]
            wanted = example % self.shard.world == self.shard.rank
            local = self.shard.local(example[wanted])
            for name, table in self.state_dict().items():
                rows = state[name][: len(example)][wanted.to(state[name].device)]
                table[local.to(table.device)] = rows.to(table)

    def _check_state(self, state: dict[str, Tensor]) -> None:
        """Check that a state has rows in memory, of the same shapes."""
        expected = self.state_dict()
        if not expected.keys() <= state.keys():
            raise ValueError(
                "the state is of rows on disk, and this storage keeps its rows in memory: load it "
                "into a DiskStorage on their folder"
            )
        if any(state[name].shape[1:] != table.shape[1:] for name, table in expected.items()):
            raise ValueError(
                f"the state holds {_shapes(state)}, and this storage {_shapes(expected)}: make it, "
                "and its PerExampleHead, with the dim, optimizer and layout of the saved one"
            )

    def remove_old(self) -> None:
        """Do nothing: a checkpoint has the rows themselves."""

    def close(self) -> None:
        """Do nothing."""


def _shapes(state: dict[str, Tensor]) -> str:
    """Return the shapes of rows and moments in words."""
    return ", ".join(f"{name} {list(state[name].shape)}" for name in ("row", "m", "v"))
