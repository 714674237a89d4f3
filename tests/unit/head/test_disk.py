"""The disk storage against the in-memory one, and against crashes, foreign files and full disks."""

import errno
import os
import signal
import struct
from contextlib import closing
from multiprocessing.synchronize import Event as EventType
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from forked import CONTEXT
from heads import head_of, visit
from widefield.core.types import Shard
from widefield.head import (
    DiskStorage,
    FolderLock,
    Layout,
    LazyAdamW,
    MemoryStorage,
    RowState,
    Update,
    initial_rows,
)

N, DIM, BATCH = 40, 3, 5
EVERYONE = torch.arange(N)
LAYOUTS = [
    Layout(moments=m, second_moment=v) for m in ("float32", "bf16") for v in ("element", "row")
]
HEADER, HEAD = 64, 32  # bytes of a journal's header, and of an entry's head
EMPTY_JOURNAL = HEADER + HEAD


def disk(folder: Path, seed: int = 1) -> DiskStorage:
    return DiskStorage(folder, N, DIM, seed=seed)


def state_at(step: int, count: int) -> RowState:
    g = torch.Generator().manual_seed(step)
    row, m, v = (torch.randn(count, DIM, generator=g) for _ in range(3))
    return RowState(row, m, v, torch.full((count,), step))


def batch(step: int) -> Tensor:
    return torch.randperm(N, generator=torch.Generator().manual_seed(step))[:BATCH]


def assert_equal(one: RowState, two: RowState) -> None:
    for name in ("row", "m", "v", "last"):
        assert torch.equal(getattr(one, name), getattr(two, name)), name


def write(storage: DiskStorage | MemoryStorage, steps: range) -> None:
    for step in steps:
        storage.write(batch(step), state_at(step, BATCH))


@pytest.mark.parametrize("announced", ["nothing", "all", "others"])
@pytest.mark.parametrize("update", ["exact", "estimated"])
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda x: x.name)
def test_training_on_disk_equals_training_in_memory(
    tmp_path: Path, update: Update, announced: str, layout: Layout
) -> None:
    """Bit for bit, with batches that overlap those being read ahead and written behind."""
    steps = 60
    rates = torch.linspace(0.1, 0.01, steps, dtype=torch.float64)
    in_memory = MemoryStorage(N, DIM, seed=1, layout=layout)
    on_disk = DiskStorage(tmp_path / "rows", N, DIM, seed=1, layout=layout)
    for storage in (in_memory, on_disk):
        order = {"nothing": [], "all": range(1, steps + 1), "others": [3, 2, 1, 4]}[announced]
        storage.prefetch(batch(step) for step in order)
        head = head_of(storage)
        LazyAdamW(head, update=update, gap=4)
        for step, rate in enumerate(rates.tolist(), start=1):
            index = batch(step)
            visit(head, index, torch.tanh(head.rows(index) - 1), lr=rate)
    assert_equal(in_memory.read(EVERYONE), on_disk.read(EVERYONE))
    on_disk.close()


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    cuts=st.lists(st.integers(0, 12), min_size=1, max_size=4),
    saved=st.integers(0, 3),
    committed=st.booleans(),
    tail=st.integers(0, 12),
    twice=st.booleans(),
)
def test_any_uncommitted_cut_comes_back(
    tmp_path_factory: pytest.TempPathFactory,
    cuts: list[int],
    saved: int,
    committed: bool,
    tail: int,
    twice: bool,
) -> None:
    """Whatever was written after a cut, and however many later cuts were never saved."""
    folder, mirror = tmp_path_factory.mktemp("rows"), MemoryStorage(N, DIM, seed=1)
    saved, step = min(saved, len(cuts) - 1), 1
    with closing(disk(folder)) as storage:
        for number, count in enumerate(cuts):
            write(storage, range(step, step + count))
            if number <= saved:
                write(mirror, range(step, step + count))
            step += count
            cut = storage.state_dict()
            if number == saved:
                kept = cut
                if committed:
                    storage.remove_old()
        write(storage, range(step, step + tail))
    for _ in range(1 + twice):
        with closing(disk(folder)) as storage:
            storage.load_state_dict(kept)
            assert_equal(storage.read(EVERYONE), mirror.read(EVERYONE))
            write(storage, range(step, step + 3))
    assert len(list(folder.glob("journal-*"))) == 1


def test_a_cut_that_was_committed_drops_what_only_older_ones_need(tmp_path: Path) -> None:
    with closing(disk(tmp_path)) as storage:
        write(storage, range(1, 4))
        old = storage.state_dict()
        write(storage, range(4, 8))
        storage.state_dict()
        storage.remove_old()
    assert [p.name for p in tmp_path.glob("journal-*")] == ["journal-2"]
    with (
        closing(disk(tmp_path)) as storage,
        pytest.raises(ValueError, match="journal-1 is missing"),
    ):
        storage.load_state_dict(old)


def test_a_hundred_million_rows_cost_nothing_until_touched(tmp_path: Path) -> None:
    index = torch.tensor([99_999_999, 0, 12_345_678])
    with closing(DiskStorage(tmp_path, 10**8, 128, seed=4)) as storage:
        state = storage.read(index)
        assert torch.equal(state.row, initial_rows(index, 128, seed=4, dtype=torch.float32))
        assert (tmp_path / "rows.bin").stat().st_blocks * 512 < 2**16
        storage.write(index, RowState(state.row, state.m, state.v, state.last + 1))
        assert storage.read(index).last.tolist() == [1, 1, 1]
        assert (tmp_path / "rows.bin").stat().st_blocks * 512 < 2**23


def test_a_checkpoint_costs_what_was_touched(tmp_path: Path) -> None:
    """Rows never written cost 8 bytes each, others a record, and a second write nothing."""
    with closing(disk(tmp_path)) as storage:
        storage.write(EVERYONE, state_at(1, N))
        storage.state_dict()
        record = 8 + 4 * Layout().words(DIM)
        storage.write(EVERYONE[:7], state_at(2, 7))
        storage.write(EVERYONE[:5], state_at(3, 5))
        storage.state_dict()
        grown = (tmp_path / "journal-1").stat().st_size - EMPTY_JOURNAL
        assert 7 * record <= grown < 8 * (record + 8)
        assert (tmp_path / "journal-0").stat().st_size < EMPTY_JOURNAL + N * 8 + 2 * HEAD


@pytest.fixture
def checkpointed(tmp_path: Path) -> tuple[Path, dict[str, Any], RowState]:
    """A storage that died after a checkpoint: its folder, the checkpoint and the rows of then."""
    folder = tmp_path / "rows"
    with closing(disk(folder)) as storage:
        write(storage, range(1, 9))
        kept, rows = storage.state_dict(), storage.read(EVERYONE)
        storage.remove_old()
        write(storage, range(9, 20))
    return folder, kept, rows


Checkpointed = tuple[Path, dict[str, Any], RowState]


def test_a_checkpoint_that_the_run_left_behind_is_refused(tmp_path: Path) -> None:
    """Its generation has been numbered again since, by a run that went on from an earlier one."""
    with closing(disk(tmp_path)) as storage:
        write(storage, range(1, 11))
        early = storage.state_dict()
        write(storage, range(11, 21))
        left = storage.state_dict()
    with closing(disk(tmp_path)) as storage:
        storage.load_state_dict(early)
        write(storage, range(31, 41))
        last, rows = storage.state_dict(), storage.read(EVERYONE)
    assert left["generation"] == last["generation"]
    with pytest.raises(ValueError, match="an earlier one: resume from its") as caught:
        open_again(tmp_path, left)
    assert "\n" not in str(caught.value)
    assert_equal(open_again(tmp_path, last), rows)


def test_a_recovery_that_died_half_way_leaves_no_later_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows between two checkpoints are those of neither; the one that was asked for still is."""
    with closing(disk(tmp_path)) as storage:
        write(storage, range(1, 11))
        early, rows = storage.state_dict(), storage.read(EVERYONE)
        write(storage, range(11, 21))
        later = storage.state_dict()

    def fail(path: Path) -> None:
        raise no_space()

    with closing(disk(tmp_path)) as storage:
        monkeypatch.setattr(Path, "unlink", fail)
        with pytest.raises(ValueError, match="cannot be written"):
            storage.load_state_dict(early)
        monkeypatch.undo()
    with pytest.raises(ValueError, match="continued from an earlier one"):
        open_again(tmp_path, later)
    assert_equal(open_again(tmp_path, early), rows)


def test_a_damaged_journal_is_refused_before_a_row_changes(tmp_path: Path) -> None:
    """So that checkpoints after it stand as they were."""
    with closing(disk(tmp_path)) as storage:
        write(storage, range(1, 11))
        early = storage.state_dict()
        write(storage, range(11, 16))
        later, rows = storage.state_dict(), storage.read(EVERYONE)
        write(storage, range(16, 21))
    before = (tmp_path / "rows.bin").read_bytes()
    flip(tmp_path / "journal-1", EMPTY_JOURNAL)
    with pytest.raises(ValueError, match="journal-1 is damaged"):
        open_again(tmp_path, early)
    assert (tmp_path / "rows.bin").read_bytes() == before
    assert_equal(open_again(tmp_path, later), rows)


def test_rows_are_loaded_before_they_are_used(checkpointed: Checkpointed) -> None:
    folder, kept, rows = checkpointed
    with closing(disk(folder)) as storage:
        storage.load_state_dict(kept)
        with pytest.raises(ValueError, match=r"are in use.* make a new one") as caught:
            storage.load_state_dict(kept)
        assert "\n" not in str(caught.value)
        assert_equal(storage.read(EVERYONE), rows)
    in_memory = MemoryStorage(N, DIM, seed=1).state_dict()
    with closing(disk(folder)) as storage, pytest.raises(ValueError, match="of rows in memory"):
        storage.load_state_dict(in_memory)


def open_again(
    folder: Path, state: dict[str, Any], n: int = N, dim: int = DIM, **other: Any
) -> RowState:
    with closing(DiskStorage(folder, n, dim, seed=1, **other)) as storage:
        storage.load_state_dict(state)
        return storage.read(EVERYONE)


def test_a_torn_last_entry_is_ignored(checkpointed: Checkpointed) -> None:
    """Killed at any byte of its contents: its head was not written, nor were its records."""
    folder, kept, rows = checkpointed
    journal = folder / "journal-1"
    whole = journal.read_bytes()
    with closing(disk(folder)) as storage:  # one more batch, whose records never reached the file
        storage.load_state_dict(kept)
        before = (folder / "rows.bin").read_bytes()
        storage.write(batch(30), state_at(30, BATCH))
    entry = journal.read_bytes()
    assert len(whole) >= len(entry) > EMPTY_JOURNAL + 5 * 8
    for length in range(EMPTY_JOURNAL, len(entry), 7):
        (folder / "rows.bin").write_bytes(before)
        journal.write_bytes(entry[:HEADER] + bytes(HEAD) + entry[EMPTY_JOURNAL:length])
        assert_equal(open_again(folder, kept), rows)


def test_the_file_of_a_forgotten_journal_is_used_again(tmp_path: Path) -> None:
    """What it held before, and is longer than what it holds now, is not undone."""
    with closing(disk(tmp_path)) as storage:
        for first in (1, 11, 21):
            write(storage, range(first, first + 10))
            storage.state_dict()
            storage.remove_old()
        size = (tmp_path / "spare").stat().st_size
        assert size > EMPTY_JOURNAL + 100
        kept, rows = storage.state_dict(), storage.read(EVERYONE)
        assert (tmp_path / "journal-4").stat().st_size == size
        write(storage, range(40, 42))
    assert_equal(open_again(tmp_path, kept), rows)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_foreign_and_damaged_files_are_refused_by_name(checkpointed: Checkpointed) -> None:
    folder, kept, rows = checkpointed
    file, journal = folder / "rows.bin", folder / "journal-1"
    good = {path: path.read_bytes() for path in (file, journal)}

    def refused(match: str, **other: Any) -> None:
        with pytest.raises(ValueError, match=match) as caught:
            open_again(folder, **{"state": kept, **other})
        assert "\n" not in str(caught.value)
        for path, data in good.items():
            path.write_bytes(data)

    refused(r"holds 40 rows, not 20", n=20)  # some of the others were visited
    refused(r"holds rows of width 3, not 4", dim=4)
    refused(r"holds rows of process 0-of-1, not 0-of-2", shard=Shard(0, 2))
    for layout in (Layout(moments="bf16"), Layout(second_moment="row")):
        refused(rf"holds float32/element moments, not {layout.name}", layout=layout)
    refused(r"belongs to another run \(.{8}, not 00000000\)", state={**kept, "run": "0" * 32})
    refused(r"journal-5 is missing", state={**kept, "generation": 5})
    for at in (20, 24, 40, 60):
        flip(file, at)
        refused(r"rows\.bin has a damaged header")
    version = struct.pack("<I", 9)
    file.write_bytes(good[file][:16] + version + good[file][20:])
    refused(r"rows\.bin is of version 9, and this widefield reads version 2")
    file.write_bytes(b"PK" + good[file][2:])
    refused(r"rows\.bin has no widefield rows")
    file.write_bytes(good[file][:-1])
    refused(r"rows\.bin is truncated, \d+ bytes of \d+")
    file.unlink()
    refused(r"rows\.bin is missing")
    flip(journal, 3)
    refused(r"journal-1 is not this run's journal")
    for at in (0, 5, 18, 29, 40, 120, 200):
        flip(journal, HEADER + at)
        refused(r"journal-1 is damaged")
    journal.write_bytes(good[journal][:-1])
    refused(r"journal-1 is damaged")
    journal.unlink()
    refused(r"journal-1 is missing")
    assert_equal(open_again(folder, kept), rows)


def test_a_new_store_does_not_overwrite_another(checkpointed: Checkpointed) -> None:
    folder, kept, rows = checkpointed
    with (
        closing(disk(folder)) as storage,
        pytest.raises(ValueError, match="holds the rows of a run: resume that run"),
    ):
        storage.read(EVERYONE)
    assert_equal(open_again(folder, kept), rows)


def hold(folder: Path, held: EventType) -> None:
    with FolderLock(folder):
        held.set()
        signal.pause()


def test_a_second_process_is_refused_by_pid(checkpointed: Checkpointed) -> None:
    folder, kept, _ = checkpointed
    held = CONTEXT.Event()
    other = CONTEXT.Process(target=hold, args=(folder, held))
    other.start()
    assert held.wait(60)
    with pytest.raises(ValueError, match=f"is in use by process {other.pid}: wait"):
        open_again(folder, kept)
    other.kill()
    other.join()
    open_again(folder, kept)
    assert not (folder / ".lock").exists()


@pytest.mark.parametrize("where", ["rows", "journal", "half a journal entry"])
def test_full_disk_is_one_line_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Rows far apart, so that their space is not allocated before the disk is full."""
    index, pwrite = torch.arange(0, 10**6, 10**5), os.pwrite
    storage = DiskStorage(tmp_path, 10**6, DIM, seed=1)
    storage.write(index, state_at(1, 10))
    kept = storage.state_dict()
    storage.write(index[:5], state_at(2, 5))

    def half(fd: int, data: bytes, at: int) -> int:
        if at > EMPTY_JOURNAL + 200:
            raise no_space()
        return pwrite(fd, data[: -(-len(data) // 2)], at)

    def full(*args: object) -> None:
        raise no_space()

    broken = {"rows": ("posix_fallocate", full), "journal": ("pwrite", full)}
    monkeypatch.setattr(os, *broken.get(where, ("pwrite", half)))
    with pytest.raises(
        ValueError, match=r"No space left.*checkpoint, if there is one, is whole"
    ) as caught:
        write_all(storage, index + 50_000)
    assert "\n" not in str(caught.value)
    with pytest.raises(ValueError, match="No space left"):
        storage.read(index)
    monkeypatch.undo()
    storage.close()
    with closing(DiskStorage(tmp_path, 10**6, DIM, seed=1)) as storage:
        storage.load_state_dict(kept)
        assert_equal(storage.read(index), state_at(1, 10))
        assert storage.read(index + 50_000).last.tolist() == [0] * 10


def test_a_disk_that_fails_is_not_taken_for_a_full_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with closing(disk(tmp_path)) as storage:
        monkeypatch.setattr(os, "posix_fallocate", fail)
        with pytest.raises(ValueError, match=r"\(Input/output error\).*; check the disk and run"):
            write_all(storage, EVERYONE)


def no_space() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def write_all(storage: DiskStorage, index: Tensor) -> None:
    for step in range(3, 9):
        storage.write(index, state_at(step, len(index)))
    storage.state_dict()
