"""Rows: their initial values, their state, and the protocol of their storages."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from widefield.core.rng import GOLDEN, logical_shift, splitmix64
from widefield.head.storage.layout import Layout


def initial_rows(index: Tensor, dim: int, *, seed: int, dtype: torch.dtype) -> Tensor:
    """Return rows [b, dim] uniform in +-1 / sqrt(dim), as in a new `torch.nn.Linear`.

    A counter-based generator: value (i, j) is a hash of (seed, index[i], j). Rows are therefore
    created at their first visit, in any order.
    """
    stream = splitmix64(torch.tensor(seed, dtype=torch.int64, device=index.device))
    example = splitmix64(index.to(torch.int64) ^ stream)
    bits = splitmix64(example[:, None] + torch.arange(dim, device=index.device) * GOLDEN)
    uniform = logical_shift(bits, 11).to(torch.float64) * 2.0**-53
    return ((2 * uniform - 1) / math.sqrt(dim)).to(dtype)


@dataclass(frozen=True, slots=True)
class RowState:
    """Rows with their optimizer state after the last step of each."""

    row: Tensor
    """Weights [b, m]."""
    m: Tensor
    """First moment [b, m]."""
    v: Tensor
    """Second moment [b, m]; [b, 1], one for the whole row; or [b, 0], none."""
    last: Tensor
    """Last step of each row, int64 [b], in host memory; 0 before the first."""


class Storage(Protocol):
    """Storage of n rows of width `dim` with their state; `DiskStorage` describes the methods."""

    n: int
    dim: int
    layout: Layout
    """Format of the moments."""
    wait_seconds: float
    """Time that callers have waited."""

    def prefetch(self, batches: Iterable[Tensor]) -> None: ...
    def read(self, index: Tensor) -> RowState: ...
    def write(self, index: Tensor, state: RowState) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...
    def load_shards(self, states: Sequence[dict[str, Any]]) -> None: ...
    def remove_old(self) -> None: ...
    def close(self) -> None: ...
