"""Undo journals, which restore a row file to a checkpoint.

Generation g is the time from checkpoint g to checkpoint g + 1. Before a record is overwritten for
the first time in it, its old content is appended to `journal-g`. After a crash records may be
damaged, but the journal has their contents at checkpoint g. Writing these back, the latest first,
restores the checkpoint, and may be repeated. The cost of a checkpoint is that of the rows changed
since the last one.

A record starts with its last step. Steps only grow, so a record beyond the step of the checkpoint
is in the journal already, and one at step 0 was never written: only its index is stored.

A journal is a chain of entries that ends with an empty one. An entry's contents and the new end are
written first, its head last, so that a crash in between keeps the old end. The head lies within one
page and is written atomically. It has the generation, because files of old generations are reused
for their allocated blocks.

A run that continues from an earlier checkpoint repeats numbers of generations. Each checkpoint and
its journal therefore have a random mark too. A journal that is undone together with earlier ones
loses its mark first, because its checkpoint can no longer be restored.
"""

import os
import struct
import uuid
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from widefield.head.storage.file import Index, Records, RowFile, RowFileHeader

_HEADER = struct.Struct("<8sIIQ16s")  # magic, version, words, generation, run; then the mark
_ENTRY = struct.Struct("<4sIIIQ")  # magic, never written, written, generation, sum of what follows
_CHECKSUM = struct.Struct("<I")
_FILE_ID, _ENTRY_ID, _VERSION = b"wf-undo\0", b"undo", 3
_MARK_BYTES = 16
_NO_MARK = bytes(_MARK_BYTES).hex()
"""Mark of a journal without checkpoint."""
_HEADER_BYTES = 64
_HEAD_BYTES = 32  # of an entry; its start is a multiple of this, so it lies within one page
_END = bytes(_HEAD_BYTES)


Entry = tuple[int, int, int]
"""Position of an entry's contents; number of rows in it that were never written, and of others."""


def _with_checksum(fields: bytes, size: int) -> bytes:
    return (fields + _CHECKSUM.pack(zlib.crc32(fields))).ljust(size, b"\0")


def _sum(parts: list[NDArray[Any]]) -> int:
    """Return the sum of the 64-bit words of arrays modulo 2^64, a fast checksum."""
    return sum(int(x.view(np.uint64).sum()) for x in parts) % 2**64


class Journal:
    """Old contents of the records that changed since a checkpoint."""

    def __init__(self, path: Path, header: RowFileHeader, generation: int) -> None:
        self.path = path
        self.mark = _NO_MARK
        """Mark of the checkpoint, 32 hexadecimal digits."""
        self._words = header.words
        self._generation = generation
        self._run = bytes.fromhex(header.run)
        self._fd = -1
        self._end = _HEADER_BYTES

    def create(self, spare_path: Path, mark: str = _NO_MARK) -> Self:
        """Create an empty journal, in the file `spare_path` if that exists, and rename it last."""
        self.mark = mark
        self._fd = os.open(spare_path, os.O_RDWR | os.O_CREAT, 0o644)
        os.pwrite(self._fd, self._header(mark) + _END, 0)
        os.fsync(self._fd)
        os.rename(spare_path, self.path)
        return self

    def open(self) -> Self:
        """Open the file, with any mark."""
        try:
            self._fd = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            raise ValueError(
                f"{self.path} is missing, without which the rows cannot be restored to the "
                "checkpoint: restore it, or start a new run"
            ) from None
        found = os.pread(self._fd, _HEADER_BYTES, 0)
        self.mark = found[_HEADER.size : _HEADER.size + _MARK_BYTES].hex()
        if found != self._header(self.mark):
            self.close()
            raise ValueError(
                f"{self.path} is not this run's journal: restore it, or start a new run"
            )
        return self

    def _header(self, mark: str) -> bytes:
        fields = _HEADER.pack(_FILE_ID, _VERSION, self._words, self._generation, self._run)
        return _with_checksum(fields + bytes.fromhex(mark), _HEADER_BYTES)

    def clear_mark(self) -> None:
        """Remove the mark, so that no checkpoint uses the journal."""
        self.mark = _NO_MARK
        os.pwrite(self._fd, self._header(self.mark), 0)

    def append(self, new: Index, index: Index, records: Records) -> None:
        """Append rows `new`, which were never written, and the old `records` of `index` [b]."""
        parts: list[NDArray[Any]] = [x for x in (new, index, records) if x.size]
        fields = _ENTRY.pack(_ENTRY_ID, len(new), len(index), self._generation, _sum(parts))
        begin = self._end + _HEAD_BYTES
        after = _aligned(begin + self._payload_bytes(len(new), len(index)))
        self._write([x.data.cast("B") for x in parts], begin)
        self._write([memoryview(_END)], after)
        self._write([memoryview(_with_checksum(fields, _HEAD_BYTES))], self._end)
        self._end = after

    def _write(self, parts: list[memoryview], position: int) -> None:
        """Write `parts` one after the other from `position` on."""
        for rest in parts:
            while rest:
                written = os.pwrite(self._fd, rest, position)
                rest, position = rest[written:], position + written

    def undo(self, file: RowFile, entries: list[Entry]) -> None:
        """Write the old contents back into `file`, the last of `entries` first."""
        for position, new, old in reversed(entries):
            payload = os.pread(self._fd, self._payload_bytes(new, old), position)
            index, records = payload[: 8 * (new + old)], payload[8 * (new + old) :]
            rows = np.frombuffer(index, np.int64).copy()
            contents = np.zeros((new + old, self._words), np.int32)
            contents[new:] = np.frombuffer(records, np.int32).reshape(old, self._words)
            file.write(rows, contents)

    def entries(self) -> Iterator[Entry]:
        position = _HEADER_BYTES
        while (head := os.pread(self._fd, _HEAD_BYTES, position)) != _END:
            fields = head[: _ENTRY.size]
            entry_id, new, old, generation, total = _ENTRY.unpack(fields.ljust(_ENTRY.size))
            if (entry_id, generation) != (_ENTRY_ID, self._generation) or head != _with_checksum(
                fields, _HEAD_BYTES
            ):
                raise ValueError(f"{self.path} is damaged: restore it, or start a new run")
            position, length = position + _HEAD_BYTES, self._payload_bytes(new, old)
            payload = os.pread(self._fd, length, position)
            if len(payload) < length or _sum([np.frombuffer(payload, np.uint64)]) != total:
                raise ValueError(f"{self.path} is damaged: restore it, or start a new run")
            yield position, new, old
            position = _aligned(position + length)

    def _payload_bytes(self, new: int, old: int) -> int:
        return 8 * (new + old) + 4 * self._words * old

    def clear(self) -> None:
        self._write([memoryview(_END)], _HEADER_BYTES)
        self._end = _HEADER_BYTES

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _aligned(position: int) -> int:
    return -(-position // _HEAD_BYTES) * _HEAD_BYTES


class RecoverableRows:
    """A row file that can be restored to its last checkpoint.

    `snapshot` starts a new generation and returns its state, which the caller saves atomically with
    the rest of the run; `remove_old` then removes the generations before. `open` with this state
    restores the rows by undoing all later journals, the newest first.

    This holds if the process is killed at any time. After a power failure it holds if nothing was
    written since the last checkpoint.
    """

    def __init__(self, folder: Path, file: RowFile, generation: int, step: int) -> None:
        self._folder, self._file = folder, file
        self._generation, self._snapshot_step, self._step = generation, step, step
        self._journal = self._journal_of(generation)

    @classmethod
    def create(cls, folder: Path, header: RowFileHeader) -> Self:
        """Create rows at generation 0."""
        rows = cls(folder, RowFile.create(folder / "rows.bin", header), 0, 0)
        rows._journal.create(rows._spare_path)
        return rows

    @classmethod
    def open(cls, folder: Path, header: RowFileHeader, state: dict[str, Any]) -> Self:
        """Open the rows as of the `snapshot` that returned `state`."""
        file = RowFile.open(folder / "rows.bin", header)
        rows = cls(folder, file, state["generation"], state["step"])
        try:
            rows._recover(state.get("mark"))
        except ValueError:
            rows.close()
            raise
        return rows

    def _recover(self, mark: str | None) -> None:
        """Undo all changes after the snapshot of `mark`, and remove later journals."""
        if self._journal.open().mark != mark:
            raise ValueError(
                f"{self._folder} no longer has the rows of this checkpoint, because the run "
                "continued from an earlier one: resume from its last checkpoint, or start a new run"
            )
        present = [int(path.name.partition("-")[2]) for path in self._folder.glob("journal-*")]
        numbers = sorted((g for g in present if g > self._generation), reverse=True)
        with ExitStack() as stack:
            newer = [stack.enter_context(closing(self._journal_of(g).open())) for g in numbers]
            journals = [*newer, self._journal]
            entries = [list(journal.entries()) for journal in journals]  # raises if one is damaged
            for journal in newer:
                journal.clear_mark()
            for journal, items in zip(journals, entries, strict=True):
                journal.undo(self._file, items)
        for journal in newer:  # last, because an interrupted recovery needs them all
            journal.path.unlink()
        self._journal.clear()
        self.remove_old()

    @property
    def _spare_path(self) -> Path:
        """A file to reuse for the next journal."""
        return self._folder / "spare"

    def read(self, index: Index, out: Records | None = None) -> Records:
        """Return copies of records `index` [b], in `out` if given."""
        return self._file.read(index, out)

    def steps(self, index: Index) -> Index:
        """Return the last steps of records `index` [b]; 0 if never written."""
        return self._file.last_steps(index)

    def write(self, index: Index, records: Records) -> None:
        """Replace records `index` [b], which are distinct and start with their step, above 0."""
        before = self._file.last_steps(index)
        unsaved = before <= self._snapshot_step
        if unsaved.any():
            new, old = index[unsaved & (before == 0)], index[unsaved & (before > 0)]
            self._journal.append(new, old, self._file.read_cached(old))
        self._file.write(index, records)
        steps = np.ascontiguousarray(records[:, :2]).view(np.int64)
        self._step = max(self._step, int(steps.max()))

    def snapshot(self) -> dict[str, Any]:
        """Start a generation; return what `open` needs to restore the current rows."""
        self._file.sync()
        mark = uuid.uuid4().hex
        next_journal = self._journal_of(self._generation + 1).create(self._spare_path, mark)
        self._journal.close()
        self._journal, self._generation = next_journal, self._generation + 1
        self._snapshot_step = self._step
        return {"generation": self._generation, "step": self._snapshot_step, "mark": mark}

    def remove_old(self) -> None:
        """Remove the generations before the last snapshot, which has been saved."""
        for path in self._folder.glob("journal-*"):
            if int(path.name.partition("-")[2]) < self._generation:
                path.rename(self._spare_path)

    def close(self) -> None:
        self._journal.close()
        self._file.close()

    def _journal_of(self, generation: int) -> Journal:
        return Journal(self._folder / f"journal-{generation}", self._file.header, generation)


def remove_rows(folder: Path) -> None:
    """Remove the rows in `folder` and their journals, if there are any."""
    for path in (folder / "rows.bin", folder / "spare", *folder.glob("journal-*")):
        path.unlink(missing_ok=True)
