"""Random initial rows as a function of seed and example only."""

import math

import torch
from torch import Tensor

from widefield.core.rng import GOLDEN, logical_shift, splitmix64


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
