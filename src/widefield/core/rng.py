"""Counter-based random numbers, and a seeded torch generator.

A sequential generator ties an example's draw to how many were drawn before it. A counter-based one
is a pure function of (seed, stream, index): any subset, in any order and in any process, sees the
same numbers, and nothing needs a checkpoint. The generator is SplitMix64 (Steele, Lea and Flood
2014), written for signed 64-bit integers, which numpy and torch both wrap around at 2^64.
"""

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

if TYPE_CHECKING:
    from torch import Tensor

GOLDEN = -0x61C8864680B583EB
"""The step between states of SplitMix64, 2^64 / golden ratio, as a signed integer."""
# 0xBF58476D1CE4E5B9 and 0x94D049BB133111EB as signed integers.
_MIX_1, _MIX_2 = -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15

Int64Array = TypeVar("Int64Array", NDArray[np.int64], "Tensor")
"""An int64 array of numpy or torch."""


def splitmix64(state: Int64Array) -> Int64Array:
    """Return the output of SplitMix64 that follows each int64 `state`; call it with an array."""
    z = state + GOLDEN
    z = (z ^ logical_shift(z, 30)) * _MIX_1
    z = (z ^ logical_shift(z, 27)) * _MIX_2
    return z ^ logical_shift(z, 31)


def logical_shift(x: Int64Array, count: int) -> Int64Array:
    """Return int64 `x` shifted right by `count` bits, zeros moving in whatever the sign."""
    return (x >> count) & ((1 << (64 - count)) - 1)


def hash_items(items: Iterable[bytes]) -> NDArray[np.uint64]:
    """Return 64 bits of a hash of each item, which do not depend on the others."""
    hashes = (hashlib.blake2b(item, digest_size=8).digest() for item in items)
    return np.frombuffer(b"".join(hashes), dtype="<u8").astype(np.uint64)


def bits(seed: int, stream: str, index: ArrayLike) -> NDArray[np.uint64]:
    """Return 64 random bits for each `index` (non-negative integers of any shape).

    Example:
        >>> bool((bits(0, "a", [5, 2])[1:] == bits(0, "a", [2])).all())
        True
    """
    # A hash, so that neighboring seeds and similar names have unrelated numbers.
    start = hash_items([f"{seed}/{stream}".encode()]).view(np.int64)
    # At least 1-d: arrays wrap around 2^64 silently, scalars warn.
    position = np.atleast_1d(np.asarray(index)).astype(np.int64)
    return splitmix64(start + position * GOLDEN).view(np.uint64)


def uniforms(seed: int, stream: str, index: ArrayLike) -> NDArray[np.float64]:
    """Return uniform numbers in [0, 1) for each `index`."""
    return (bits(seed, stream, index) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def integers(
    seed: int, stream: str, index: ArrayLike, high: int | NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return uniform integers in [0, high) for each `index`; `high` below 2^32."""
    # Fixed-point multiplication: (u32 * high) / 2^32; its bias is below high / 2^32.
    scaled = (bits(seed, stream, index) >> np.uint64(32)) * np.asarray(high, dtype=np.uint64)
    return (scaled >> np.uint64(32)).astype(np.int64)


def shuffled(seed: int, stream: str, index: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return `index` [k] sorted by one random key for each entry.

    The order of a subset is its order within the whole.
    """
    return index[np.argsort(bits(seed, stream, index), kind="stable")]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's CPU generator; on exit restore the global random state.

    Use it around code that draws from the global generator, such as a layer's initial weights.
    """
    import torch  # imported here: counter-based numbers do not need it

    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which would seed every accelerator too.
        torch.default_generator.manual_seed(seed)
        yield
