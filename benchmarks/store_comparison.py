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

import os
import sqlite3
import statistics
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from ratios.command import Result, command
from widefield.head.storage.file import RowFileHeader
from widefield.head.storage.journal import RecoverableRows

WARM_ROUNDS, COLD_ROUNDS = 15, 5

Index = NDArray[np.int64]
Records = NDArray[np.int32]


class Store:
    """`n` records of 32-bit words, the first two of which are an int64 above 0.

    `open` begins to use the files, `read(index)` returns copies of records [b], and
    `write(index, records)` replaces them. `close` puts everything on the disk and lets go of it.
    """

    def __init__(self, path: Path, n: int, words: int) -> None:
        self.path, self.n, self.words = path, n, words


class Map(Store):
    """A plain memory-mapped array."""

    def __init__(self, path: Path, n: int, words: int) -> None:
        super().__init__(path, n, words)
        np.memmap(self.path, np.int32, "w+", shape=(self.n, self.words))

    def open(self) -> None:
        self.records = np.memmap(self.path, np.int32, "r+", shape=(self.n, self.words))

    def read(self, index: Index) -> Records:
        return np.take(self.records, index, axis=0)

    def write(self, index: Index, records: Records) -> None:
        self.records[index] = records

    def close(self) -> None:
        self.records.flush()
        del self.records


class JournalledMap(Store):
    """Ours."""

    def __init__(self, path: Path, n: int, words: int) -> None:
        super().__init__(path, n, words)
        self.path.mkdir()
        sizes = {"n": self.n, "dim": self.words, "words": self.words}
        self.header = RowFileHeader(**sizes, layout="any", seed=0, run="0" * 32)
        rows = RecoverableRows.create(self.path, self.header)
        self.state = rows.snapshot()
        rows.close()

    def open(self) -> None:
        self.rows = RecoverableRows.open(self.path, self.header, self.state)

    def read(self, index: Index) -> Records:
        return self.rows.read(index)

    def write(self, index: Index, records: Records) -> None:
        self.rows.write(index, records)

    def close(self) -> None:
        self.state = self.rows.snapshot()
        self.rows.remove_old()
        self.rows.close()


class Pread(Store):
    """One system call a record."""

    def __init__(self, path: Path, n: int, words: int) -> None:
        super().__init__(path, n, words)
        with open(self.path, "wb") as file:
            file.truncate(4 * self.n * self.words)

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


class Lmdb(Store):
    """A B-tree with copy on write."""

    def open(self) -> None:
        import lmdb  # here, so that --help needs no package that the library does not

        size = 40 * self.n * self.words + (1 << 26)
        self.env = lmdb.open(str(self.path), map_size=size, sync=False, readahead=False)

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


class Sqlite(Store):
    """A B-tree with a write-ahead log."""

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


def bench(*, megabytes: int = 150) -> Result:
    """Return the rates of stores of so many megabytes, for two widths and two sizes of batches."""
    results = []
    for floats in (128, 512):
        for rows in (256, 4096):
            with tempfile.TemporaryDirectory(prefix="widefield-stores-") as folder:
                results += Comparison(Path(folder), rows, floats, megabytes).rows()
    return {
        "command": "python benchmarks/store_comparison.py --json FILE",
        "load": os.getloadavg()[0],
        "versions": {"lmdb": version("lmdb"), "sqlite": sqlite3.sqlite_version},
        "results": results,
    }


class Comparison:
    """The stores with batches of `rows` records, each of a row and two moments of `floats`."""

    def __init__(self, folder: Path, rows: int, floats: int, megabytes: int) -> None:
        self.folder, self.batch, self.floats = folder, rows, floats
        self.words = 2 + 3 * floats
        self.n = megabytes * 10**6 // (4 * self.words)
        self.rng, self.step = np.random.default_rng(0), 0
        self.times: dict[tuple[str, str], list[tuple[float, float]]] = {}
        self.stores = {k: store(folder / k, self.n, self.words) for k, store in STORES.items()}
        for store in self.stores.values():
            store.open()
            for index in np.array_split(self.rng.permutation(self.n), max(1, self.n // 4096)):
                store.write(index, self._records(len(index)))
            store.close()

    def _records(self, count: int) -> Records:
        """Return random records of a later step than all before."""
        self.step += 1
        records = self.rng.integers(0, 2**30, (count, self.words), dtype=np.int32)
        records[:, :2] = self.step, 0
        return records

    def rows(self) -> list[Result]:
        """Take the times, cold and then warm, and return the medians."""
        for _ in range(COLD_ROUNDS):
            self._drop_pages()
            for name, store in self.stores.items():
                store.open()
                self._time(name, "cold", self.rng.choice(self.n, self.batch, replace=False))
                store.close()
        for store in self.stores.values():
            store.open()
            store.read(np.arange(self.n))
        order = self.rng.permutation(self.n)
        for begin in range(0, self.n - self.batch, self.batch)[:WARM_ROUNDS]:
            for name in self.stores:
                self._time(name, "warm", order[begin : begin + self.batch])
        for store in self.stores.values():
            store.close()
        about = {"rows": self.batch, "floats": self.floats}
        return [
            {
                "store": name,
                **about,
                "cache": cache,
                "read_ms": 1000 * statistics.median(read for read, _ in pairs),
                "write_ms": 1000 * statistics.median(write for _, write in pairs),
                "rows_per_second": self.batch / statistics.median(r + w for r, w in pairs),
            }
            for (name, cache), pairs in self.times.items()
        ]

    def _time(self, name: str, cache: str, index: Index) -> None:
        """Take the seconds to read a batch of a store, and to write it."""
        store, records = self.stores[name], self._records(len(index))
        began = time.perf_counter()
        store.read(index)
        between = time.perf_counter()
        store.write(index, records)
        seconds = between - began, time.perf_counter() - between
        self.times.setdefault((name, cache), []).append(seconds)

    def _drop_pages(self) -> None:
        """Take the files' pages out of the page cache."""
        for path in (p for p in self.folder.rglob("*") if p.is_file()):
            fd = os.open(path, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def main() -> None:
    """Measure as the command line says."""
    command(bench)


if __name__ == "__main__":
    main()
