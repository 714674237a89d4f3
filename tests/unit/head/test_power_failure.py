"""What is on the disk after a power failure: of each file, what its last fsync saw."""

import os
from pathlib import Path

import pytest
import torch

from widefield.core.files import write_atomically
from widefield.head import DiskStorage, RowState

N, DIM = 12, 2


class Disk:
    """Content of each file at its last fsync; names survive, as a journaling file system has it."""

    def __init__(self) -> None:
        self.durable: dict[int, bytes] = {}
        self._fsync = os.fsync

    def fsync(self, fd: int) -> None:
        """Note what the file holds now."""
        self._fsync(fd)
        stat = os.fstat(fd)
        self.durable[stat.st_ino] = os.pread(fd, stat.st_size, 0)

    def lost(self, folder: Path) -> list[str]:
        """Return the names of the files whose content is not on the disk."""
        files = sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size)
        return [p.name for p in files if self.durable.get(p.stat().st_ino) != p.read_bytes()]


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(os, "fsync", disk.fsync)
    return disk


def test_a_file_is_on_the_disk_before_it_has_its_name(
    tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_rename: list[list[str]] = []
    replace = os.replace

    def noted(source: Path, target: Path) -> None:
        at_rename.append(disk.lost(tmp_path))
        replace(source, target)

    monkeypatch.setattr(os, "replace", noted)
    write_atomically(tmp_path / "note.txt", lambda path: path.write_text("complete"))
    assert at_rename == [[]]
    assert disk.lost(tmp_path) == []


def test_rows_and_journal_of_a_checkpoint_are_on_the_disk_before_its_state_is_returned(
    tmp_path: Path, disk: Disk
) -> None:
    storage = DiskStorage(tmp_path / "rows", N, DIM, seed=0)
    for checkpoint in range(3):
        index = torch.arange(checkpoint, checkpoint + 4)
        values = torch.full((4, DIM), float(checkpoint))
        steps = torch.full((4,), checkpoint + 1)
        storage.write(index, RowState(values, values, values, steps))
        storage.flush()
        assert "rows.bin" in disk.lost(tmp_path)  # the control: not before the checkpoint
        storage.state_dict()
        # Journals of earlier checkpoints are needed only if the process is killed.
        assert not {"rows.bin", f"journal-{checkpoint + 1}"} & set(disk.lost(tmp_path))
        assert (tmp_path / "rows" / f"journal-{checkpoint + 1}").exists()
        storage.remove_old()
    storage.close()
