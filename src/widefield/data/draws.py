"""Counter-based random numbers: each draw is a pure function of (seed, stream, index).

A sequential generator ties an example's draw to how many were drawn before it. Here any subset,
in any order and in any process, sees the same numbers, and nothing needs a checkpoint. The
generator is SplitMix64 (Steele, Lea and Flood 2014) started at a hash of (seed, stream) and
entered at position `index`.
"""

import hashlib

import numpy as np
from numpy.typing import ArrayLike, NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1 = np.uint64(0xBF58476D1CE4E5B9)
_MIX_2 = np.uint64(0x94D049BB133111EB)


def bits(seed: int, stream: str, index: ArrayLike) -> NDArray[np.uint64]:
    """Return 64 random bits for each `index` (non-negative integers of any shape).

    Example:
        >>> bool((bits(0, "a", [5, 2])[1:] == bits(0, "a", [2])).all())
        True
    """
    key = hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest()
    # The 0-d start is made an array: arrays wrap around 2^64 silently, scalars warn.
    start = np.frombuffer(key, dtype="<u8").astype(np.uint64)
    position = np.atleast_1d(np.asarray(index)).astype(np.uint64)
    z = start + (position + np.uint64(1)) * _GOLDEN
    z = (z ^ (z >> np.uint64(30))) * _MIX_1
    z = (z ^ (z >> np.uint64(27))) * _MIX_2
    mixed: NDArray[np.uint64] = z ^ (z >> np.uint64(31))
    return mixed


def integers(
    seed: int, stream: str, index: ArrayLike, high: int | NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return uniform integers in [0, high) for each `index`; `high` below 2^32."""
    # Fixed-point multiplication: (u32 * high) / 2^32; its bias is below high / 2^32.
    scaled = (bits(seed, stream, index) >> np.uint64(32)) * np.asarray(high, dtype=np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)


def shuffled(seed: int, stream: str, index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `index` [k] in a random order: that of one random key for each of its entries.

    A part of the entries comes in the order that it has among all of them.

    Example:
        >>> sorted(shuffled(0, "epoch 3", np.arange(4)).tolist())
        [0, 1, 2, 3]
    """
    return index[np.argsort(bits(seed, stream, index), kind="stable")]
