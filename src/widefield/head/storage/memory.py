"""Stores of rows: whole in the memory of a device or of the host, or on disk."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from widefield.core.memory import Memory
from widefield.core.types import WHOLE, Place, Shard
from widefield.head.initial import initial_rows
from widefield.head.lazy_adamw import RowState
from widefield.head.storage.disk import DiskStore
from widefield.head.storage.layout import FULL, Layout

_MEMORY_SHARE = 0.25
_DRAWN_AT_ONCE = 4096


class MemoryStore:
    """All n rows of width m, or those of a shard, with both moments in the memory of one device.

    Takes 3 n m floats and n integers, 1.5 GB for a million examples at m = 128, or less where
    `layout` says so.

    Example:
        >>> import torch
        >>> store = MemoryStore(4, 2, seed=0)
        >>> state = store.read(torch.tensor([2]))
        >>> store.write(torch.tensor([2]), RowState(state.row + 1, state.m, state.v, state.last))
        >>> bool((store.read(torch.tensor([2])).row == state.row + 1).all())
        True
    """

    def __init__(
        self,
        n: int,
        dim: int,
        *,
        seed: int,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        shard: Shard = WHOLE,
        layout: Layout = FULL,
    ) -> None:
        self.n, self.dim, self.shard = n, dim, shard
        self._layout = layout
        self.device = torch.device(device)
        self.wait_seconds = 0.0
        examples = shard.examples(n).to(self.device)
        self.row = torch.empty(len(examples), dim, dtype=dtype, device=self.device)
        for first in range(0, len(examples), _DRAWN_AT_ONCE):
            # In parts, because drawing takes several times the memory of what is drawn.
            part = slice(first, first + _DRAWN_AT_ONCE)
            self.row[part] = initial_rows(examples[part], dim, seed=seed, dtype=dtype)
        rounded = dtype == torch.float32
        self.m = torch.zeros_like(self.row, dtype=layout.m_dtype if rounded else dtype)
        self.v = torch.zeros(
            (len(examples), layout.v_width(dim)),
            dtype=layout.v_dtype if rounded else dtype,
            device=self.device,
        )
        # On the host: the step never waits for it.
        self.last = torch.zeros(len(examples), dtype=torch.int64)

    def read(self, index: Tensor) -> RowState:
        """Return the state of rows `index` [b], copied; `index` is in host memory."""
        local = self.shard.local(index)
        on_device = local.to(self.device)
        row = self.row[on_device]
        return RowState(row, self.m[on_device].to(row), self.v[on_device].to(row), self.last[local])

    def write(self, index: Tensor, state: RowState) -> None:
        """Replace rows `index` [b], which are distinct."""
        local = self.shard.local(index)
        on_device = local.to(self.device)
        moments = state.m, state.v
        if self.row.dtype == torch.float32:
            moments = self._layout.narrowed(state.row, *moments)
        for table, new in zip((self.row, self.m, self.v), (state.row, *moments), strict=True):
            table.index_copy_(0, on_device, new)
        self.last[local] = state.last

    def prefetch(self, batches: Iterable[Tensor]) -> None:
        """Take no note: rows in memory need no announcement."""

    def state_dict(self) -> dict[str, Tensor]:
        """Return all rows and their optimizer state."""
        return {"row": self.row, "m": self.m, "v": self.v, "last": self.last}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over rows written by `state_dict` of a store of the same size, or of the first n.

        Rows that nobody visited may follow: those of examples that were to join, and did not.

        Raises:
            ValueError: it was of a store of another size, or more rows than it holds are in use.
        """
        self._refuse_other(state)
        count = min(len(state["row"]), len(self.row))
        if state["last"][count:].any():
            raise ValueError(
                f"the state holds {len(state['row'])} rows, and this store {count}: make it, and "
                "its PerExampleHead, for as many examples as the one that was saved, or more"
            )
        if self.last[count:].any():
            raise ValueError(
                f"the state holds {count} rows, and this store, with {len(self.row)}, has visited "
                "others since: make a new one, and a new PerExampleHead if it has one, and load "
                "into that"
            )
        for name, table in self.state_dict().items():
            table[:count] = state[name][:count]

    def load_shards(self, states: Sequence[dict[str, Tensor]]) -> None:
        """Take over its rows from `state_dict` of all ranks of another world size.

        Raises:
            ValueError: one was of a store of another width, or of other moments.
        """
        for rank, state in enumerate(states):
            self._refuse_other(state)
            example = Shard(rank, len(states)).examples(self.n)[: len(state["row"])]
            wanted = example % self.shard.world == self.shard.rank
            local = self.shard.local(example[wanted])
            for name, table in self.state_dict().items():
                rows = state[name][: len(example)][wanted.to(state[name].device)]
                table[local.to(table.device)] = rows.to(table)

    def _refuse_other(self, state: dict[str, Tensor]) -> None:
        """Refuse rows that would be spread over the tables, or do not fit.

        Raises:
            ValueError: rows or moments are of another width, or the rows are on disk.
        """
        own = self.state_dict()
        if not own.keys() <= state.keys():
            raise ValueError(
                "the state is of rows on disk, and this store keeps its rows in memory: load it "
                "into a DiskStore on their folder"
            )
        if any(state[name].shape[1:] != table.shape[1:] for name, table in own.items()):
            raise ValueError(
                f"the state holds {_shapes(state)}, and this store {_shapes(own)}: make it, and "
                "its PerExampleHead, with the dim, optimizer and layout of the one that was saved"
            )

    def discard_old(self) -> None:
        """Do nothing: a checkpoint holds the rows themselves."""

    def close(self) -> None:
        """Do nothing: memory is given back with the store."""


def _shapes(state: dict[str, Tensor]) -> str:
    """Return the shapes of rows and moments in words."""
    return ", ".join(f"{name} {list(state[name].shape)}" for name in ("row", "m", "v"))


def choose_place(
    wanted_place: Place | Literal["auto"],
    n: int,
    dim: int,
    memory: Memory,
    layout: Layout = FULL,
) -> Place:
    """Return `where`, or for `auto` the first of device, host and disk with room for n rows.

    There is room where the rows need less than 25 % of the memory: of what is free on a GPU, of
    all that the host has.

    Example:
        >>> [choose_place("auto", n, 128, Memory(host=10**9)) for n in (10**3, 10**12)]
        ['host', 'disk']
    """
    if wanted_place != "auto":
        return wanted_place
    size = n * layout.row_bytes(dim)
    if size < _MEMORY_SHARE * memory.device:
        return "device"
    return "host" if size < _MEMORY_SHARE * memory.host else "disk"


def choose_store(
    wanted_place: Place | Literal["auto"],
    n: int,
    dim: int,
    *,
    seed: int,
    device: torch.device,
    folder: Path | None = None,
    shard: Shard = WHOLE,
    layout: Layout = FULL,
) -> MemoryStore | DiskStore:
    """Build a store for n rows of width `dim`, or a shard of them, where `choose_place` says.

    On disk each shard has a folder in `folder`.

    Raises:
        ValueError: the rows belong on disk and there is no folder.

    Example:
        >>> import torch
        >>> choose_store("auto", 4, 2, seed=0, device=torch.device("cpu")).device
        device(type='cpu')
    """
    place = choose_place(wanted_place, n, dim, Memory.of(device), layout)
    if place != "disk":
        home = device if place == "device" else "cpu"
        return MemoryStore(n, dim, seed=seed, device=home, shard=shard, layout=layout)
    if folder is None:
        raise ValueError("rows on disk need a folder: give the run one, or use head_storage host")
    return DiskStore(
        folder / shard.name, n, dim, seed=seed, device=device, shard=shard, layout=layout
    )
