"""File of rows: records of one size in a sparse, memory-mapped file.

The file has a header of one page and n records of `words` 32-bit integers. A record that was never
written is zero and takes no space, so that a file for 10^8 rows is created at once.

Blocks are allocated before the map is written to, so that a full disk is an exception and not a
signal that ends the process. Before a gather the kernel gets advice on all its records, and reads
them concurrently instead of one page fault after the other. This is left out for records that were
read before, if the file is small compared with the memory.
"""

import mmap
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from widefield.core.hardware import host_memory
from widefield.core.types import WHOLE, Shard

VERSION = 2
_FILE_ID = b"widefield rows\0\0"
# magic, version, words, n, dim, seed, rank, world, layout, run
_FIELDS = struct.Struct("<16sIIqqqII16s16s")
_CHECKSUM = struct.Struct("<I")
# A page, so that records begin on a page of the map.
_HEADER_BYTES = 4096
# Blocks are allocated by the megabyte: one system call for about 700 records of m = 128.
_CHUNK_BYTES = 1 << 20
# Chosen by hand: of a file up to this share of the memory, records stay in the page cache.
_CACHED_SHARE = 0.25

_MISMATCH = "{} holds {}, not {}: resume with the run's own data and settings, or start a new run"

Index = NDArray[np.int64]
Records = NDArray[np.int32]


@dataclass(frozen=True, kw_only=True)
class RowFileHeader:
    """Header of a row file."""

    n: int
    """Examples of the whole run."""
    dim: int
    words: int
    """32-bit words of a record."""
    layout: str
    """Name of the layout, at most 16 letters."""
    seed: int
    """Seed of the rows that were never written."""
    shard: Shard = WHOLE
    """Examples of the rows."""
    run: str
    """Hexadecimal id of the run, 32 digits."""

    @property
    def records(self) -> int:
        return self.shard.count(self.n)

    @property
    def file_bytes(self) -> int:
        """Size of the file without holes."""
        return _HEADER_BYTES + self.records * 4 * self.words

    def pack(self) -> bytes:
        fields = _FIELDS.pack(
            _FILE_ID,
            VERSION,
            self.words,
            self.n,
            self.dim,
            self.seed,
            self.shard.rank,
            self.shard.world,
            self.layout.encode(),
            bytes.fromhex(self.run),
        )
        return fields + _CHECKSUM.pack(zlib.crc32(fields))

    @classmethod
    def unpack(cls, data: bytes, path: Path) -> Self:
        if len(data) < _FIELDS.size + _CHECKSUM.size or not data.startswith(_FILE_ID):
            raise ValueError(f"{path} has no widefield rows: restore it, or start a new run")
        _, version, words, n, dim, seed, rank, world, layout, run = _FIELDS.unpack_from(data)
        if version != VERSION:
            raise ValueError(
                f"{path} is of version {version}, and this widefield reads version {VERSION}: "
                "use the widefield that wrote it, or start a new run"
            )
        if _CHECKSUM.unpack_from(data, _FIELDS.size) != (zlib.crc32(data[: _FIELDS.size]),):
            raise ValueError(f"{path} has a damaged header: restore it, or start a new run")
        return cls(
            n=n,
            dim=dim,
            words=words,
            layout=layout.rstrip(b"\0").decode(),
            seed=seed,
            shard=Shard(rank, world),
            run=run.hex(),
        )

    def check_matches(self, header: "RowFileHeader", path: Path) -> None:
        """Check that the header equals `header`, except for the number of examples."""
        for words, found, wanted in (
            ("rows of width {}", self.dim, header.dim),
            ("{} moments", self.layout, header.layout),
            ("rows of seed {}", self.seed, header.seed),
            ("rows of process {}", self.shard.name, header.shard.name),
        ):
            if found != wanted:
                raise ValueError(_MISMATCH.format(path, words.format(found), wanted))
        if self.run != header.run:
            raise ValueError(
                f"{path} belongs to another run ({self.run[:8]}, not {header.run[:8]}): "
                "restore this run's own rows, or start a new run"
            )


class RowFile:
    """n records of 32-bit words, addressed by index."""

    def __init__(self, path: Path, fd: int, header: RowFileHeader) -> None:
        self.header = header
        self._path, self._fd = path, fd
        self._record_bytes = 4 * header.words
        self._size = header.file_bytes
        self._map = mmap.mmap(fd, self._size)
        flat = np.frombuffer(self._map, np.dtype("<i4"), offset=_HEADER_BYTES)
        self._records: Records | None = flat.reshape(header.records, header.words)
        self._cached = np.zeros(header.records, dtype=np.bool_)  # zero pages take no memory
        self._allocated = np.zeros(-(-self._size // _CHUNK_BYTES), dtype=np.bool_)

    @classmethod
    def create(cls, path: Path, header: RowFileHeader) -> Self:
        """Create a sparse file with records of zeros."""
        try:
            fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
        except FileExistsError:
            raise ValueError(
                f"{path} holds the rows of a run: resume that run, or choose another folder"
            ) from None
        os.pwrite(fd, header.pack(), 0)
        os.ftruncate(fd, header.file_bytes)
        return cls(path, fd, header)

    @classmethod
    def open(cls, path: Path, header: RowFileHeader) -> Self:
        """Open the file of `header`, and add or remove empty records at its end."""
        try:
            fd = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            raise ValueError(f"{path} is missing: restore it, or start a new run") from None
        try:
            found = RowFileHeader.unpack(os.pread(fd, _HEADER_BYTES, 0), path)
            found.check_matches(header, path)
            size, expected = os.fstat(fd).st_size, found.file_bytes
            if size < expected:  # may be longer after a crash
                raise ValueError(
                    f"{path} is truncated, {size} bytes of {expected}: "
                    "restore it, or start a new run"
                )
            if found.n < header.n:  # the header last, in case of a crash
                os.ftruncate(fd, header.file_bytes)
                os.pwrite(fd, header.pack(), 0)
            if found.n > header.n:
                if _has_data(fd, header.file_bytes):
                    raise ValueError(_MISMATCH.format(path, f"{found.n} rows", header.n))
                os.pwrite(fd, header.pack(), 0)
                os.ftruncate(fd, header.file_bytes)
        except ValueError:
            os.close(fd)
            raise
        return cls(path, fd, header)

    def read(self, index: Index, out: Records | None = None) -> Records:
        """Return copies of records `index` [b], in `out` if given."""
        uncached = index[~self._cached[index]]
        for offset in self._offsets(uncached).tolist():
            os.posix_fadvise(self._fd, offset, self._record_bytes, os.POSIX_FADV_WILLNEED)
        self._cached[index] = self._size < _CACHED_SHARE * host_memory()
        return self.read_cached(index, out)

    def read_cached(self, index: Index, out: Records | None = None) -> Records:
        """Return copies of records `index` [b] without advice to the kernel."""
        assert self._records is not None, "the file is closed"
        # Checked here, because mode="raise" would use a buffer.
        assert len(index) == 0 or 0 <= int(index.min()) <= int(index.max()) < self.header.records
        return np.take(self._records, index, axis=0, out=out, mode="clip")

    def last_steps(self, index: Index) -> Index:
        """Return the first 64 bits of records `index` [b]."""
        assert self._records is not None, "the file is closed"
        return np.ascontiguousarray(self._records[index, :2]).view(np.int64)[:, 0]

    def write(self, index: Index, records: Records) -> None:
        """Replace records `index` [b], which are distinct."""
        assert self._records is not None, "the file is closed"
        self._allocate(index)
        # By torch, because numpy would hold the GIL while it waits for pages.
        table, new = torch.from_numpy(self._records), torch.from_numpy(records)
        table.index_copy_(0, torch.from_numpy(index), new)

    def sync(self) -> None:
        os.fsync(self._fd)

    def close(self) -> None:
        self._records = None
        self._map.close()
        os.close(self._fd)

    def _offsets(self, index: Index) -> Index:
        return _HEADER_BYTES + index * self._record_bytes

    def _allocate(self, index: Index) -> None:
        """Allocate disk blocks for records `index`, in large chunks."""
        first = self._offsets(index)
        chunks = np.concatenate([first, first + self._record_bytes - 1]) // _CHUNK_BYTES
        for chunk in np.unique(chunks[~self._allocated[chunks]]).tolist():
            begin = chunk * _CHUNK_BYTES
            os.posix_fallocate(self._fd, begin, min(_CHUNK_BYTES, self._size - begin))
            self._allocated[chunk] = True


def _has_data(fd: int, begin: int) -> bool:
    """Return whether a byte after `begin` is not 0."""
    while chunk := os.pread(fd, _CHUNK_BYTES, begin):
        if chunk.strip(b"\0"):
            return True
        begin += len(chunk)
    return False
