"""Initial rows and the in-memory store."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from widefield.rows import (
    DiskStore,
    MemoryStore,
    RowState,
    choose_place,
    choose_store,
    initial_rows,
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 2**40), min_size=1, max_size=20), st.integers(0, 2**31))
def test_a_row_depends_on_seed_and_example_alone(examples: list[int], seed: int) -> None:
    together = initial_rows(torch.tensor(examples), 5, seed=seed, dtype=torch.float64)
    for i, example in enumerate(examples):
        alone = initial_rows(torch.tensor([example]), 5, seed=seed, dtype=torch.float64)
        assert torch.equal(together[i], alone[0])


def test_splitmix_equals_plain_integers() -> None:
    """The first value of one row, recomputed with Python's unbounded integers."""

    def mix(x: int) -> int:
        mask = 2**64 - 1
        x = (x + 0x9E3779B97F4A7C15) & mask
        x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & mask
        x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & mask
        return x ^ (x >> 31)

    bits = mix(mix(1234 ^ mix(9)))
    expected = (2 * (bits >> 11) * 2.0**-53 - 1) / np.sqrt(3)
    got = initial_rows(torch.tensor([1234]), 3, seed=9, dtype=torch.float64)[0, 0]
    assert float(got) == expected


def test_values_are_uniform_and_independent() -> None:
    rows = initial_rows(torch.arange(2000), 32, seed=0, dtype=torch.float64) * 32**0.5
    assert stats.kstest(rows.flatten().numpy(), stats.uniform(-1, 2).cdf).pvalue > 1e-3
    correlation = np.corrcoef(rows.numpy().T)
    off_diagonal = correlation[~np.eye(32, dtype=bool)]
    assert np.abs(off_diagonal).max() < 5 / np.sqrt(2000)
    other = initial_rows(torch.arange(2000), 32, seed=1, dtype=torch.float64)
    assert abs(np.corrcoef(rows.flatten(), other.flatten())[0, 1]) < 0.02


def test_write_then_read_leaves_the_others_alone() -> None:
    store = MemoryStore(6, 4, seed=3)
    before = store.row.clone()
    index = torch.tensor([4, 1])
    new = RowState(*(torch.full((2, 4), float(k)) for k in range(3)), torch.tensor([7, 7]))
    store.write(index, new)
    back = store.read(index)
    assert torch.equal(back.row, new.row)
    assert torch.equal(back.m, new.m)
    assert torch.equal(back.v, new.v)
    assert back.last.tolist() == [7, 7]
    others = torch.tensor([0, 2, 3, 5])
    assert torch.equal(store.read(others).row, before[others])
    assert store.read(others).last.tolist() == [0] * 4


def test_state_survives_a_round_trip() -> None:
    one, two = MemoryStore(5, 2, seed=0), MemoryStore(5, 2, seed=1)
    state = RowState(torch.ones(1, 2), torch.ones(1, 2), torch.ones(1, 2), torch.tensor([3]))
    one.write(torch.tensor([2]), state)
    two.load_state_dict(one.state_dict())
    for name, value in one.state_dict().items():
        assert torch.equal(value, two.state_dict()[name])


def test_auto_takes_memory_while_the_rows_fit(tmp_path: Path) -> None:
    cpu = torch.device("cpu")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    most = memory // 4 // (3 * 4 * 128)
    assert choose_place("auto", most - 1, 128, cpu) == "host"
    assert choose_place("auto", most + 1, 128, cpu) == "disk"
    assert choose_place("device", 10**12, 128, cpu) == "device"
    store = choose_store("auto", most + 1, 128, seed=0, device=cpu, folder=tmp_path)
    assert isinstance(store, DiskStore)
    with pytest.raises(ValueError, match="need a folder"):
        choose_store("disk", 10, 2, seed=0, device=cpu)
