"""Storage of rows on disk, with asynchronous reads and writes by one thread."""

import shutil
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from widefield.core.batch import Positive, checked
from widefield.core.devices import to_device
from widefield.core.errors import option
from widefield.core.files import disk_is_full
from widefield.core.types import WHOLE, Shard
from widefield.head.storage.base import RowState, initial_rows
from widefield.head.storage.file import RowFileHeader
from widefield.head.storage.journal import RecoverableRows, remove_rows
from widefield.head.storage.layout import FULL, STEP_WORDS, Layout
from widefield.head.storage.lock import FolderLock

# Chosen by hand. A step needs one batch ahead; the second hides a slow read. No step needs what is
# written, so more writes may wait, and each holds the rows of a batch in memory.
_MAX_READS, _MAX_WRITES = 2, 4
# Rows copied at a time between shards: 6 MB of records at m = 128.
_CHUNK_ROWS = 4096

T = TypeVar("T")


class DiskStorage:
    """Storage of n rows of width m with both moments in a file, and a few batches in host memory.

    A record is a row's last step, the row and its moments in the format of `layout`. A row that was
    never written is a function of (seed, index), so that a new storage takes no time and no space.

    One thread does all reads and writes in order. Batches announced by `prefetch` are read before
    they are needed, and get rows that were written in the meantime from memory. A step waits only
    if the disk is slower than the steps; `wait_seconds` is the sum of these times.

    `state_dict` returns a generation and no rows. Once a checkpoint with it is saved, `remove_old`
    removes what only older checkpoints need, see `widefield.head.storage.journal`.

    Args:
        folder: folder of the file and its journals, created at the first use.
        n: number of rows.
        dim: their width m.
        seed: seed of the rows' initial values.
        device: device of the tensors of `read` and `write`.
        shard: examples of its rows.

    Raises:
        ValueError: at first use: the folder has rows of another run or damaged ones, or is in use;
            at any later call: the disk is full.

    Example:
        >>> import tempfile
        >>> import torch
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     storage = DiskStorage(folder, 10**6, 2, seed=0)
        ...     two = torch.tensor([999_999, 3])
        ...     state = storage.read(two)
        ...     storage.write(two, RowState(state.row, state.m, state.v, state.last + 1))
        ...     print(storage.read(two).last.tolist(), storage.read(two + 1 - 2).last.tolist())
        ...     storage.close()
        [1, 1] [0, 0]
    """

    @checked
    def __init__(
        self,
        folder: str | Path,
        n: Positive,
        dim: Positive,
        *,
        seed: int,
        device: torch.device | str = "cpu",
        shard: Shard = WHOLE,
        layout: Layout = FULL,
    ) -> None:
        self.n, self.dim, self.shard = n, dim, shard
        self.layout = layout
        self.device = torch.device(device)
        self.wait_seconds = 0.0
        self._folder, self._seed = Path(folder), seed
        self._lock = FolderLock(self._folder)
        self._run = uuid.uuid4().hex
        self._rows: RecoverableRows | None = None
        self._superseded: list[Path] = []
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="widefield-rows")
        self._upcoming: Iterator[Tensor] = iter(())
        self._pending_reads: deque[_PendingRead] = deque()
        self._pending_writes: deque[Future[None]] = deque()
        self._error: BaseException | None = None
        self._side: torch.cuda.Stream | None = None
        if self.device.type != "cpu":
            self._side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def __repr__(self) -> str:
        folder, device = str(self._folder), str(self.device)
        return f"DiskStorage({folder!r}, n={self.n}, dim={self.dim}, device={device!r})"

    def prefetch(self, batches: Iterable[Tensor]) -> None:
        """Announce the next reads, each index int64 [b], in their order."""
        self._pending_reads.clear()
        self._upcoming = iter(batches)
        self._start_reads()

    def read(self, index: Tensor) -> RowState:
        """Return the state of rows `index` [b] on the device; `index` is in host memory."""
        if self._pending_reads and torch.equal(self._pending_reads[0].index, index):
            pending = self._pending_reads.popleft()
            records = self._wait(pending.records)
            for written in pending.overlaps:
                written.overwrite(index, records)
            self._start_reads()
        else:  # not announced: read after all pending writes
            records = self._wait(self._submit(self._load, index))
        on_device = to_device(records, self.device)
        return RowState(*self.layout.unpack(on_device, self.dim), _steps(records))

    def write(self, index: Tensor, state: RowState) -> None:
        """Replace rows `index` [b], which are distinct and past step 0.

        Returns before the write is done, unless several batches are pending.
        """
        written = self._to_host(index, state)
        for pending in self._pending_reads:
            if pending.has_any_of(index):
                pending.overlaps.append(written)
        self._pending_writes.append(self._submit(self._save, written))
        queue = self._pending_writes
        while queue and (len(queue) > _MAX_WRITES or queue[0].done()):
            self._wait(queue.popleft())

    def flush(self) -> None:
        """Return when all rows are written."""
        while self._pending_writes:
            self._wait(self._pending_writes.popleft())

    def state_dict(self) -> dict[str, Any]:
        """Return what a checkpoint needs to restore the current rows, which stay on disk."""
        self.flush()
        snapshot: Future[dict[str, Any]] = self._submit(lambda: self._open_rows().snapshot())
        generation = self._wait(snapshot)
        return {"run": self._run, **generation}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the rows in the folder to the checkpoint with `state`.

        Raises:
            ValueError: the rows are in use already, or `state` does not belong to this folder.
        """
        if self._rows is not None:
            raise ValueError(
                f"the rows in {self._folder} are in use, and no state can be loaded: close() "
                "their storage, make a new one, and a new PerExampleHead if it had one, and load "
                "into that"
            )
        if "run" not in state:
            raise ValueError(
                "the state is of rows in memory, and this storage keeps its rows on disk: load it "
                "into one in memory, or start a new run"
            )
        self._run = state["run"]
        self._wait(self._submit(self._open_rows, state))

    def load_shards(self, states: Sequence[dict[str, Any]]) -> None:
        """Copy its rows from the folders of all ranks of another world size.

        `states` are what `state_dict` returned on these ranks. Their files do not change until
        `remove_old`; after a crash the copy starts again.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()
        remove_rows(self._folder)
        self._wait(self._submit(self._copy_shards, states))
        old = range(self.shard.rank, len(states), self.shard.world)
        self._superseded = [self._folder.with_name(Shard(r, len(states)).name) for r in old]

    def remove_old(self) -> None:
        """Remove what only checkpoints before the last `state_dict` need."""
        self._wait(self._submit(lambda: self._open_rows().remove_old()))
        while self._superseded:
            shutil.rmtree(self._superseded.pop(), ignore_errors=True)

    def close(self) -> None:
        """Stop the thread and release the folder; writes that have not started are dropped."""
        self._worker.shutdown(cancel_futures=True)
        if self._rows is not None:
            self._rows.close()
        self._lock.release()

    def _start_reads(self) -> None:
        while len(self._pending_reads) < _MAX_READS:
            index = next(self._upcoming, None)
            if index is None:
                return
            records = self._submit(self._load, index)
            self._pending_reads.append(_PendingRead(index, index.sort().values, records))

    def _to_host(self, index: Tensor, state: RowState) -> "_PendingWrite":
        """Copy `state` to host memory; from a device in a side stream."""
        records = self.layout.pack(state.row, state.m, state.v)
        if self._side is None:
            return _PendingWrite(index.clone(), state.last.clone(), records, None)
        host = torch.empty(records.shape, dtype=records.dtype, pin_memory=True)
        self._side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._side):
            host.copy_(records, non_blocking=True)
            records.record_stream(self._side)
            event = self._side.record_event()
        return _PendingWrite(index.clone(), state.last.clone(), host, event)

    def _submit(self, job: Callable[..., T], *args: Any) -> Future[T]:
        return self._worker.submit(self._run_job, job, *args)

    def _wait(self, future: Future[T]) -> T:
        start_time = time.perf_counter()
        try:
            return future.result()
        except OSError as error:
            hint = "make room" if disk_is_full(error) else "check the disk"
            raise ValueError(
                f"the rows in {self._folder} cannot be written or read ({error.strerror}): the "
                f"last checkpoint, if there is one, is whole; {hint} and run again with "
                f"{option('resume', True)}"
            ) from error
        finally:
            self.wait_seconds += time.perf_counter() - start_time

    # All methods below run in the thread, one job after the other.

    def _run_job(self, job: Callable[..., T], *args: Any) -> T:
        """Run `job`; after one has failed all others raise its error."""
        if self._error is None:
            try:
                return job(*args)
            except (OSError, ValueError) as error:
                self._error = error
        raise self._error

    def _open_rows(self, state: dict[str, Any] | None = None) -> RecoverableRows:
        """Return the rows, opened at first use: of the checkpoint with `state`, or new ones."""
        if self._rows is None:
            header = self._header(self.shard, self._run)
            self._folder.mkdir(parents=True, exist_ok=True)
            self._lock.acquire()
            if state is None:
                self._rows = RecoverableRows.create(self._folder, header)
            else:
                self._rows = RecoverableRows.open(self._folder, header, state)
        return self._rows

    def _header(self, shard: Shard, run: str) -> RowFileHeader:
        return RowFileHeader(
            n=self.n,
            dim=self.dim,
            words=self.layout.words(self.dim),
            layout=self.layout.name,
            seed=self._seed,
            shard=shard,
            run=run,
        )

    def _copy_shards(self, states: Sequence[dict[str, Any]]) -> None:
        """Copy the rows of `self.shard` from every rank's folder."""
        target = self._open_rows()
        for rank, state in enumerate(states):
            source = Shard(rank, len(states))
            folder = self._folder.with_name(source.name)
            lock = FolderLock(folder)
            lock.acquire(wait=True)  # other ranks copy theirs
            try:
                header = self._header(source, state["run"])
                with closing(RecoverableRows.open(folder, header, state)) as rows:
                    self._copy(rows, source, target)
            finally:
                lock.release()

    def _copy(self, rows: RecoverableRows, source: Shard, target: RecoverableRows) -> None:
        """Copy the visited rows of `source` that belong to `self.shard`."""
        count = source.count(self.n)
        for first in range(0, count, _CHUNK_ROWS):
            local = torch.arange(first, min(first + _CHUNK_ROWS, count))
            example = source.examples_at(local)
            wanted = example % self.shard.world == self.shard.rank
            visited = torch.from_numpy(rows.steps(local[wanted].numpy()) > 0)
            at = local[wanted][visited]
            if len(at):
                index = self.shard.local(source.examples_at(at))
                target.write(index.numpy(), rows.read(at.numpy()))

    def _load(self, index: Tensor) -> Tensor:
        """Read records, and initialize the rows of those that were never written."""
        shape, pin = (len(index), self.layout.words(self.dim)), self._side is not None
        records = torch.empty(shape, dtype=torch.int32, pin_memory=pin)
        self._open_rows().read(self.shard.local(index).numpy(), records.numpy())
        is_new = _steps(records) == 0
        if is_new.any():
            row, _, _ = self.layout.unpack(records, self.dim)
            row[is_new] = initial_rows(index[is_new], self.dim, seed=self._seed, dtype=row.dtype)
        return records

    def _save(self, written: "_PendingWrite") -> None:
        index = self.shard.local(written.index)
        self._open_rows().write(index.numpy(), written.wait().numpy())


def _steps(records: Tensor) -> Tensor:
    """Return the last step of each record, int64 [b]."""
    return records[:, :STEP_WORDS].contiguous().view(torch.int64)[:, 0]


@dataclass(frozen=True, slots=True)
class _PendingWrite:
    """A batch that is being written."""

    index: Tensor
    last: Tensor
    records: Tensor
    """int32 [b, words] in host memory, complete after `wait`."""
    event: torch.cuda.Event | None

    def wait(self) -> Tensor:
        """Wait for the copy to host memory and return the complete records."""
        if self.event is not None:
            self.event.synchronize()
        self.records[:, :STEP_WORDS] = self.last[:, None].view(torch.int32)
        return self.records

    def overwrite(self, index: Tensor, records: Tensor) -> None:
        """Replace the records of these rows in `records`, which were read as `index`."""
        at, target = (index[:, None] == self.index).nonzero(as_tuple=True)
        records[at] = self.wait()[target]


@dataclass(slots=True)
class _PendingRead:
    """An announced batch that is being read."""

    index: Tensor
    sorted: Tensor
    """`index` in ascending order."""
    records: Future[Tensor]
    overlaps: list[_PendingWrite] = field(default_factory=list)
    """Batches written since, in order."""

    def has_any_of(self, index: Tensor) -> bool:
        """Return whether it shares a row with `index`."""
        at = torch.searchsorted(self.sorted, index).clamp_(max=len(self.sorted) - 1)
        return bool((self.sorted[at] == index).any())
