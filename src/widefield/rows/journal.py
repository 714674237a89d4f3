"""Taking a row file back to a checkpoint: an undo journal for each generation.

Generation g is the time from checkpoint g to checkpoint g + 1. The first time in it that a record
is overwritten, its old content is appended to `journal-g`, and only then is the record changed. A
process that dies leaves records of any kind behind, torn ones included, but the journal holds what
each of them was at checkpoint g. Writing the old contents back, the latest first, restores that
checkpoint; doing it twice changes nothing more. A checkpoint therefore costs what was touched
since the last one, however many rows there are.

A record begins with the step that it is at. Steps only grow, so a record beyond the step of the
checkpoint has been journalled already, and one at step 0 was never written: of that one only the
index is kept.

An entry whose end is missing was being appended when the process died. Its records had not been
changed yet, so it is ignored.
"""

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import numpy as np

from widefield.rows.file import Index, Records, RowFile, RowFileHeader

_HEADER = struct.Struct("<8sIIQ16s")  # magic, version, words, generation, run
_ENTRY = struct.Struct("<4sIII")  # magic, never written, written, checksum of what follows
_CHECKSUM = struct.Struct("<I")
_MAGIC, _ENTRY_MAGIC, _VERSION = b"wf-undo\0", b"undo", 1
_HEADER_BYTES = _HEADER.size + _CHECKSUM.size
_ENTRY_BYTES = _ENTRY.size + _CHECKSUM.size


def _sealed(fields: bytes) -> bytes:
    return fields + _CHECKSUM.pack(zlib.crc32(fields))


class Journal:
    """Old contents of the records that changed since one checkpoint."""

    def __init__(self, path: Path, header: RowFileHeader, generation: int) -> None:
        self.path = path
        self._words = header.words
        self._header = _sealed(
            _HEADER.pack(_MAGIC, _VERSION, header.words, generation, bytes.fromhex(header.run))
        )
        self._fd = -1
        self._end = _HEADER_BYTES

    def create(self) -> Self:
        """Begin empty, in place of what the file held."""
        self._fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o644)
        os.pwrite(self._fd, self._header, 0)
        return self

    def open(self) -> Self:
        """Go on with the file.

        Raises:
            ValueError: it is missing, or another one's.
        """
        try:
            self._fd = os.open(self.path, os.O_RDWR)
        except FileNotFoundError:
            raise ValueError(
                f"{self.path} is missing, and without it the rows cannot be taken back to the "
                "checkpoint: restore it, or start a new run"
            ) from None
        if os.pread(self._fd, _HEADER_BYTES, 0) != self._header:
            self.close()
            raise ValueError(
                f"{self.path} is not this run's journal: restore it, or start a new run"
            )
        return self

    def append(self, fresh: Index, index: Index, records: Records) -> None:
        """Keep that rows `fresh` were never written and that `index` [b] held `records`.

        Raises:
            OSError: the disk is full; the journal is as it was before.
        """
        payload = [x.data.cast("B") for x in (fresh, index, records) if x.size]
        checksum = 0
        for part in payload:
            checksum = zlib.crc32(part, checksum)
        fields = _ENTRY.pack(_ENTRY_MAGIC, len(fresh), len(index), checksum)
        try:
            end = self._write([memoryview(_sealed(fields)), *payload])
        except OSError:
            os.ftruncate(self._fd, self._end)
            raise
        self._end = end

    def _write(self, parts: list[memoryview]) -> int:
        """Write `parts` at the end, one after the other; returns the new end."""
        at = self._end
        for rest in parts:
            while rest:
                written = os.pwrite(self._fd, rest, at)
                rest, at = rest[written:], at + written
        return at

    def undo(self, file: RowFile) -> None:
        """Write the old contents back into `file`, the latest first.

        Raises:
            ValueError: the journal is damaged.
        """
        for at, fresh, old in reversed(list(self._entries())):
            payload = os.pread(self._fd, self._payload_bytes(fresh, old), at)
            index, records = payload[: 8 * (fresh + old)], payload[8 * (fresh + old) :]
            rows = np.frombuffer(index, np.int64)
            contents = np.zeros((fresh + old, self._words), np.int32)
            contents[fresh:] = np.frombuffer(records, np.int32).reshape(old, self._words)
            file.write(rows, contents)

    def _entries(self) -> Iterator[tuple[int, int, int]]:
        """Where the payload of each whole entry begins, and its two counts."""
        at, size = _HEADER_BYTES, os.fstat(self._fd).st_size
        while size - at >= _ENTRY_BYTES:
            head = os.pread(self._fd, _ENTRY_BYTES, at)
            if head != _sealed(head[: _ENTRY.size]) or not head.startswith(_ENTRY_MAGIC):
                raise ValueError(f"{self.path} is damaged: restore it, or start a new run")
            _, fresh, old, checksum = _ENTRY.unpack_from(head)
            at, length = at + _ENTRY_BYTES, self._payload_bytes(fresh, old)
            if size - at < length:
                return
            if zlib.crc32(os.pread(self._fd, length, at)) != checksum:
                raise ValueError(f"{self.path} is damaged: restore it, or start a new run")
            yield at, fresh, old
            at += length

    def _payload_bytes(self, fresh: int, old: int) -> int:
        return 8 * (fresh + old) + 4 * self._words * old

    def clear(self) -> None:
        """Forget every entry."""
        os.ftruncate(self._fd, _HEADER_BYTES)
        self._end = _HEADER_BYTES

    def sync(self) -> None:
        """Return when the journal is on the disk."""
        os.fsync(self._fd)

    def close(self) -> None:
        """Let go of the file."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class RecoverableRows:
    """A row file that can be taken back to its last checkpoint, whatever happened since.

    `cut` begins a new generation and says how to come back to it; the caller saves that, in one
    step, with the rest of the run; `commit` then forgets the generations before. Opened with what
    a `cut` returned, the rows are what they were at that cut: every later journal is undone, the
    newest first.

    This holds when the process dies at any instant. When the machine itself loses power it holds
    for a run that had written nothing since its last checkpoint.
    """

    def __init__(self, folder: Path, file: RowFile, generation: int, step: int) -> None:
        self._folder, self._file = folder, file
        self._generation, self._cut_step, self._step = generation, step, step
        self._journal = self._journal_of(generation)

    @classmethod
    def create(cls, folder: Path, header: RowFileHeader) -> Self:
        """Rows never written, at generation 0.

        Raises:
            ValueError: the folder holds rows already.
        """
        rows = cls(folder, RowFile.create(folder / "rows.bin", header), 0, 0)
        rows._journal.create()
        return rows

    @classmethod
    def open(cls, folder: Path, header: RowFileHeader, state: dict[str, Any]) -> Self:
        """Rows as they were when `cut` returned `state`.

        Raises:
            ValueError: a file is missing, damaged, or another run's; the message says which.
        """
        file = RowFile.open(folder / "rows.bin", header)
        rows = cls(folder, file, state["generation"], state["step"])
        try:
            rows._recover()
        except ValueError:
            rows.close()
            raise
        return rows

    def _recover(self) -> None:
        """Undo all that came after the cut, and remove what is of no more use."""
        present = {int(p.name.partition("-")[2]): p for p in self._folder.glob("journal-*")}
        later = sorted((g for g in present if g > self._generation), reverse=True)
        for generation in later:
            journal = self._journal_of(generation)
            if present[generation].stat().st_size >= _HEADER_BYTES:  # else its cut was cut short
                journal.open().undo(self._file)
                journal.close()
        self._journal.open().undo(self._file)
        for generation in later:  # only now: until here an interrupted recovery needs them all
            present[generation].unlink()
        self._journal.clear()
        self.commit()

    def read(self, index: Index) -> Records:
        """Copies of records `index` [b]."""
        return self._file.read(index)

    def steps(self, index: Index) -> Index:
        """Steps that records `index` [b] are at; 0 where one was never written."""
        return self._file.stamps(index)

    def write(self, index: Index, records: Records) -> None:
        """Replace records `index` [b], which are distinct and begin with their step, above 0.

        Raises:
            OSError: the disk is full; no record has changed.
        """
        before = self._file.stamps(index)
        unkept = before <= self._cut_step
        if unkept.any():
            fresh, old = index[unkept & (before == 0)], index[unkept & (before > 0)]
            self._journal.append(fresh, old, self._file.read_again(old))
        self._file.write(index, records)
        steps = np.ascontiguousarray(records[:, :2]).view(np.int64)
        self._step = max(self._step, int(steps.max()))

    def cut(self) -> dict[str, Any]:
        """Begin a generation; returns what `open` needs to come back to this instant."""
        self._file.sync()
        following = self._journal_of(self._generation + 1).create()
        following.sync()
        self._journal.close()
        self._journal, self._generation = following, self._generation + 1
        self._cut_step = self._step
        return {"generation": self._generation, "step": self._cut_step}

    def commit(self) -> None:
        """Forget the generations before the last cut, which has been saved."""
        for path in self._folder.glob("journal-*"):
            if int(path.name.partition("-")[2]) < self._generation:
                path.unlink()

    def close(self) -> None:
        """Let go of the files."""
        self._journal.close()
        self._file.close()

    def _journal_of(self, generation: int) -> Journal:
        return Journal(self._folder / f"journal-{generation}", self._file.header, generation)


def remove_rows(folder: Path) -> None:
    """Remove the rows in `folder` and their journals, if there are any."""
    for path in (folder / "rows.bin", *folder.glob("journal-*")):
        path.unlink(missing_ok=True)
