"""Which store for rows on disk: gather and scatter of random records, five ways.

    python benchmarks/store_comparison.py --json benchmarks/results/store_comparison.json

- map: a plain memory-mapped array. No recovery: the limit of the machine.
- journal: widefield's store, a memory map with an undo journal, without its thread. Every write of
  a record is the first since a checkpoint, so that all are journalled.
- pread: the same file by one system call a record. No recovery.
- lmdb: one transaction a batch, not synced: safe when the process dies, as ours is, but it comes
  back to the last batch and not to the last checkpoint. Needs `pip install lmdb`.
- sqlite: one blob a row of a table, a transaction a batch, write-ahead log, not synced: as lmdb.

Warm means in the page cache. Cold means that the store was closed and its pages dropped before
each batch. Times are medians; the stores take turns.
"""
# ruff: noqa: D102 - `Store` describes the methods of all

import argparse
import json
import os
import sqlite3
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from widefield.core.hardware import choose_device, machine
from widefield.head.storage.file import RowFileHeader
from widefield.head.storage.journal import RecoverableRows

BYTES = 150_000_000  # of a store
WARM_ROUNDS, COLD_ROUNDS = 15, 5

Index = NDArray[np.int64]
Records = NDArray[np.int32]


class Store(Protocol):
    """Records of 32-bit words, the first two of which are an int64 above 0."""

    def __init__(self, folder: Path, n: int, words: int) -> None: ...
    def open(self) -> None:
        """Begin to use the files."""

    def read(self, index: Index) -> Records:
        """Copies of records `index` [b]."""

    def write(self, index: Index, records: Records) -> None:
        """Replace records `index` [b]."""

    def close(self) -> None:
        """Put everything on the disk and let go of it."""


class Map:
    """A plain memory-mapped array."""

    def __init__(self, folder: Path, n: int, words: int) -> None:
        self.path, self.shape = folder / "map.bin", (n, words)
        np.memmap(self.path, np.int32, "w+", shape=self.shape)

    def open(self) -> None:
        self.records = np.memmap(self.path, np.int32, "r+", shape=self.shape)

    def read(self, index: Index) -> Records:
        return np.take(self.records, index, axis=0)

    def write(self, index: Index, records: Records) -> None:
        self.records[index] = records

    def close(self) -> None:
        self.records.flush()
        del self.records


class JournalledMap:
    """Ours."""

    def __init__(self, folder: Path, n: int, words: int) -> None:
        self.folder = folder / "journal"
        self.folder.mkdir()
        self.header = RowFileHeader(n=n, dim=words, words=words, layout="any", seed=0, run="0" * 32)
        rows = RecoverableRows.create(self.folder, self.header)
        self.state = rows.snapshot()
        rows.close()

    def open(self) -> None:
        self.rows = RecoverableRows.open(self.folder, self.header, self.state)

    def read(self, index: Index) -> Records:
        return self.rows.read(index)

    def write(self, index: Index, records: Records) -> None:
        self.rows.write(index, records)

    def close(self) -> None:
        self.state = self.rows.snapshot()
        self.rows.remove_old()
        self.rows.close()


class Pread:
    """One system call a record."""

    def __init__(self, folder: Path, n: int, words: int) -> None:
        self.path, self.words = folder / "pread.bin", words
        with open(self.path, "wb") as file:
            file.truncate(4 * n * words)

    def open(self) -> None:
        self.fd = os.open(self.path, os.O_RDWR)

    def read(self, index: Index) -> Records:
        records = np.empty((len(index), self.words), np.int32)
        for record, offset in zip(records, (4 * self.words * index).tolist(), strict=True):
            os.preadv(self.fd, [record], offset)
        return records

    def write(self, index: Index, records: Records) -> None:
        for record, offset in zip(records, (4 * self.words * index).tolist(), strict=True):
            os.pwrite(self.fd, record, offset)

    def close(self) -> None:
        os.fsync(self.fd)
        os.close(self.fd)


class Lmdb:
    """A B-tree with copy on write."""

    def __init__(self, folder: Path, n: int, words: int) -> None:
        self.path, self.words = folder / "lmdb", words
        self.size = 40 * n * words + (1 << 26)

    def open(self) -> None:
        import lmdb  # here, so that --help needs no package that the library does not

        self.env = lmdb.open(str(self.path), map_size=self.size, sync=False, readahead=False)

    def read(self, index: Index) -> Records:
        keys = [key.tobytes() for key in index.astype(">i8")]
        with self.env.begin(buffers=True) as transaction:
            pairs = transaction.cursor().getmulti(keys)
            return np.frombuffer(b"".join(v for _, v in pairs), np.int32).reshape(-1, self.words)

    def write(self, index: Index, records: Records) -> None:
        keys = [key.tobytes() for key in index.astype(">i8")]
        with self.env.begin(write=True) as transaction:
            transaction.cursor().putmulti(zip(keys, map(bytes, records), strict=True))

    def close(self) -> None:
        self.env.sync(True)
        self.env.close()


class Sqlite:
    """A B-tree with a write-ahead log."""

    def __init__(self, folder: Path, n: int, words: int) -> None:
        self.path, self.words = folder / "sqlite.db", words

    def open(self) -> None:
        self.db = sqlite3.connect(self.path)
        self.db.executescript("PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF;")
        self.db.execute("CREATE TABLE IF NOT EXISTS rows (i INTEGER PRIMARY KEY, record BLOB)")

    def read(self, index: Index) -> Records:
        query = "SELECT record FROM rows WHERE i = ?"
        records = [self.db.execute(query, (i,)).fetchone()[0] for i in index.tolist()]
        return np.frombuffer(b"".join(records), np.int32).reshape(-1, self.words)

    def write(self, index: Index, records: Records) -> None:
        pairs = zip(index.tolist(), map(bytes, records), strict=True)
        with self.db:
            self.db.executemany("INSERT OR REPLACE INTO rows VALUES (?, ?)", pairs)

    def close(self) -> None:
        self.db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        self.db.close()


STORES: dict[str, type[Store]] = {
    "map": Map,
    "journal": JournalledMap,
    "pread": Pread,
    "lmdb": Lmdb,
    "sqlite": Sqlite,
}


def drop_pages(folder: Path) -> None:
    """Take the files' pages out of the page cache."""
    for path in (p for p in folder.rglob("*") if p.is_file()):
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def timed(store: Store, index: Index, records: Records) -> tuple[float, float]:
    """Seconds to read a batch, and to write it."""
    began = time.perf_counter()
    store.read(index)
    between = time.perf_counter()
    store.write(index, records)
    return between - began, time.perf_counter() - between


def compare(rows: int, floats: int, folder: Path, rng: np.random.Generator) -> list[dict[str, Any]]:
    """Median milliseconds to read and to write a batch, by store, cold and warm."""
    words = 2 + 3 * floats
    n = BYTES // (4 * words)
    stores = {name: store(folder, n, words) for name, store in STORES.items()}
    step = iter(range(1, 10**6))

    def batch(index: Index) -> tuple[Index, Records]:
        records = rng.integers(0, 2**30, (rows, words), dtype=np.int32)
        records[:, :2] = np.array([next(step), 0], np.int32)
        return index, records

    for store in stores.values():
        store.open()
        for index in np.array_split(rng.permutation(n), max(1, n // 4096)):
            records = np.ones((len(index), words), np.int32)
            records[:, 1] = 0
            store.write(index, records)
        store.close()
    times: dict[tuple[str, str], list[tuple[float, float]]] = {}

    def take(name: str, cache: str, index: Index) -> None:
        """Time one batch of a store."""
        times.setdefault((name, cache), []).append(timed(stores[name], *batch(index)))

    for _ in range(COLD_ROUNDS):
        drop_pages(folder)
        for name, store in stores.items():
            store.open()
            take(name, "cold", rng.choice(n, rows, replace=False))
            store.close()
    for store in stores.values():
        store.open()
        store.read(np.arange(n))
    order = rng.permutation(n)
    for begin in range(0, n - rows, rows)[:WARM_ROUNDS]:
        for name in stores:
            take(name, "warm", order[begin : begin + rows])
    for store in stores.values():
        store.close()
    return [
        {
            "store": name,
            "rows": rows,
            "floats": floats,
            "cache": cache,
            "read_ms": 1000 * statistics.median(read for read, _ in pairs),
            "write_ms": 1000 * statistics.median(write for _, write in pairs),
            "rows_per_second": rows / statistics.median(read + write for read, write in pairs),
        }
        for (name, cache), pairs in times.items()
    ]


def main() -> None:
    """Compare, and write the numbers."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    options = parser.parse_args()
    results = []
    for floats in (128, 512):
        for rows in (256, 4096):
            with tempfile.TemporaryDirectory(prefix="widefield-stores-") as folder:
                results += compare(rows, floats, Path(folder), np.random.default_rng(0))
    report = {
        "command": "python benchmarks/store_comparison.py --json FILE",
        "machine": {
            **machine(choose_device("auto")),
            "load": os.getloadavg()[0],
            "numpy": np.__version__,
            "lmdb": version("lmdb"),
            "sqlite": sqlite3.sqlite_version,
        },
        "results": results,
    }
    options.json.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
