"""Initial rows and the in-memory storage."""

import copy
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from widefield.core.hardware import Memory
from widefield.core.types import Shard
from widefield.head import (
    DiskStorage,
    MemoryStorage,
    RowState,
    choose_storage,
    initial_rows,
    select_device_kind,
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
    storage = MemoryStorage(6, 4, seed=3)
    before = storage.row.clone()
    index = torch.tensor([4, 1])
    new = RowState(*(torch.full((2, 4), float(k)) for k in range(3)), torch.tensor([7, 7]))
    storage.write(index, new)
    back = storage.read(index)
    assert torch.equal(back.row, new.row)
    assert torch.equal(back.m, new.m)
    assert torch.equal(back.v, new.v)
    assert back.last.tolist() == [7, 7]
    others = torch.tensor([0, 2, 3, 5])
    assert torch.equal(storage.read(others).row, before[others])
    assert storage.read(others).last.tolist() == [0] * 4


@pytest.mark.parametrize("place", ["host", "disk"])
@pytest.mark.parametrize(("before", "after"), [(1, 1), (3, 3), (1, 3), (3, 1), (3, 2), (2, 3)])
@pytest.mark.parametrize("new", [0, 1, 5])
def test_rows_move_to_another_number_of_processes_or_of_examples(
    tmp_path: Path, place: Literal["host", "disk"], before: int, after: int, new: int
) -> None:
    """Every row arrives as it was at the checkpoint; those never visited start as they would."""
    n, cpu, visited = 11, torch.device("cpu"), torch.tensor([0, 1, 2, 5, 7, 10])

    def storages(world: int, n: int = n + new) -> list[MemoryStorage | DiskStorage]:
        shards = [Shard(rank, world) for rank in range(world)]
        return [
            choose_storage(place, n, 2, seed=3, device=cpu, folder=tmp_path, shard=s)
            for s in shards
        ]

    def write(storage: MemoryStorage | DiskStorage, step: int) -> None:
        mine = visited[visited % storage.shard.world == storage.shard.rank]
        row = (mine + step / 10)[:, None].repeat(1, 2)
        storage.write(mine, RowState(row, row + 100, row + 200, step + mine))

    states = []
    for storage in storages(before, n):
        write(storage, 1)
        states.append(copy.deepcopy(storage.state_dict()))
        storage.remove_old()
        write(storage, 50)  # after the checkpoint, and so lost
        storage.close()
    n += new
    whole = MemoryStorage(n, 2, seed=3)
    write(whole, 1)
    moved = storages(after)
    for storage in moved:
        if before == after:
            storage.load_state_dict(states[storage.shard.rank])
        else:
            storage.load_shards(states)
    for storage in moved:
        everyone = storage.shard.examples(n)
        got, expected = storage.read(everyone), whole.read(everyone)
        for name in ("row", "m", "v", "last"):
            assert torch.equal(getattr(got, name), getattr(expected, name)), name
        kept = storage.state_dict()
        storage.remove_old()
        storage.close()
        if place == "disk":
            again = storages(after)[storage.shard.rank]
            again.load_state_dict(kept)
            assert torch.equal(again.read(everyone).row, expected.row)
            again.close()
    if place == "disk":
        names = {Shard(rank, after).name for rank in range(after)}
        assert {path.name for path in tmp_path.iterdir()} == names


def test_auto_takes_memory_while_the_rows_fit(tmp_path: Path) -> None:
    cpu = torch.device("cpu")
    memory = Memory.of(cpu)
    most = memory.host // 4 // (3 * 4 * 128)
    assert select_device_kind("auto", most - 1, 128, memory) == "host"
    assert select_device_kind("auto", most + 1, 128, memory) == "disk"
    assert select_device_kind("device", 10**12, 128, memory) == "device"
    gpu = replace(memory, device=memory.host)
    assert select_device_kind("auto", most - 1, 128, gpu) == "device"
    assert (
        select_device_kind("auto", most + 1, 128, replace(memory, device=memory.host // 2))
        == "disk"
    )
    storage = choose_storage("auto", most + 1, 128, seed=0, device=cpu, folder=tmp_path)
    assert isinstance(storage, DiskStorage)
    with pytest.raises(ValueError, match="need a folder"):
        choose_storage("disk", 10, 2, seed=0, device=cpu)
