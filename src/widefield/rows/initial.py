"""Random rows that depend on nothing but (seed, example): made at first visit, in any order."""

import math

import torch
from torch import Tensor

# splitmix64 (Steele, Lea and Flood 2014), written as signed 64-bit integers.
_GOLDEN, _MIX1, _MIX2 = -0x61C8864680B583EB, -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _splitmix64(x: Tensor) -> Tensor:
    x = x + _GOLDEN
    x = (x ^ _shift(x, 30)) * _MIX1
    x = (x ^ _shift(x, 27)) * _MIX2
    return x ^ _shift(x, 31)


def initial_rows(index: Tensor, dim: int, *, seed: int, dtype: torch.dtype) -> Tensor:
    """Rows [b, dim] uniform in +-1 / sqrt(dim), the law of a fresh `torch.nn.Linear`.

    A counter-based generator: value (i, j) is a hash of (seed, index[i], j), so that a store
    needs no pass over n rows to be created and the visiting order does not matter.

    Example:
        >>> import torch
        >>> ahead = initial_rows(torch.tensor([7, 3]), 4, seed=0, dtype=torch.float32)
        >>> alone = initial_rows(torch.tensor([3]), 4, seed=0, dtype=torch.float32)
        >>> bool((ahead[1] == alone[0]).all())
        True
    """
    stream = _splitmix64(torch.tensor(seed, dtype=torch.int64, device=index.device))
    example = _splitmix64(index.to(torch.int64) ^ stream)
    bits = _splitmix64(example[:, None] + torch.arange(dim, device=index.device) * _GOLDEN)
    uniform = _shift(bits, 11).to(torch.float64) * 2.0**-53
    return ((2 * uniform - 1) / math.sqrt(dim)).to(dtype)
