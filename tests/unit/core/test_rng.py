import hashlib

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from widefield.core import rng

MASK = 2**64 - 1


def splitmix64(state: int, position: int) -> int:
    """The sequential generator of Steele, Lea and Flood, on Python integers."""
    for _ in range(position + 1):
        state = (state + 0x9E3779B97F4A7C15) & MASK
    z = state
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def test_the_reference_is_splitmix64():
    # The first outputs for state 1234567, as published with the generator's C source.
    assert [splitmix64(1234567, i) for i in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]


@given(st.integers(-5, 2**40), st.text(max_size=8), st.lists(st.integers(0, 40), min_size=1))
def test_bits_are_splitmix64_entered_at_the_index(seed, stream, index):
    start = int.from_bytes(
        hashlib.blake2b(f"{seed}/{stream}".encode(), digest_size=8).digest(), "little"
    )
    expected = [splitmix64(start, i) for i in index]
    assert rng.bits(seed, stream, index).tolist() == expected


def test_integers_are_uniform_and_in_range():
    high = 7
    drawn = rng.integers(3, "dice", np.arange(70_000), high)
    counts = np.bincount(drawn, minlength=high)
    assert len(counts) == high
    assert np.abs(counts - 10_000).max() < 5 * np.sqrt(10_000 * 6 / 7)


def test_integers_take_a_bound_for_each_index():
    high = np.array([1, 2, 3, 1000])
    drawn = np.stack([rng.integers(s, "x", np.arange(4), high) for s in range(500)])
    assert (drawn >= 0).all()
    assert (drawn < high).all()
    assert drawn[:, 3].max() > 900


@given(st.integers(0, 300), st.integers(0, 9))
def test_a_shuffle_is_a_permutation_and_its_parts_keep_their_order(n, epoch):
    order = rng.shuffled(1, f"epoch {epoch}", np.arange(n))
    assert sorted(order.tolist()) == list(range(n))
    odd = rng.shuffled(1, f"epoch {epoch}", np.arange(1, n, 2))
    assert odd.tolist() == order[order % 2 == 1].tolist()


def test_shuffles_of_streams_and_seeds_differ():
    index = np.arange(50)
    orders = [rng.shuffled(seed, f"epoch {e}", index) for seed in range(3) for e in range(3)]
    assert len({tuple(order.tolist()) for order in orders}) == 9


@given(st.lists(st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=20))
def test_numpy_and_torch_hash_alike(states: list[int]) -> None:
    expected = [splitmix64(state & MASK, 0) for state in states]
    by_numpy = rng.splitmix64(np.array(states, dtype=np.int64))
    by_torch = rng.splitmix64(torch.tensor(states, dtype=torch.int64))
    assert by_numpy.view(np.uint64).tolist() == expected
    assert [value & MASK for value in by_torch.tolist()] == expected
