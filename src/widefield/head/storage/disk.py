"""Rows on disk, read ahead and written behind by one thread."""

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

from widefield.core.files import disk_is_full
from widefield.core.types import WHOLE, Shard
from widefield.head.initial import initial_rows
from widefield.head.storage.base import RowState
from widefield.head.storage.file import RowFileHeader
from widefield.head.storage.journal import RecoverableRows, remove_rows
from widefield.head.storage.layout import FULL, STEP_WORDS, Layout
from widefield.head.storage.lock import FolderLock

_READ_AHEAD = 2
_WRITE_BEHIND = 4
_COPIED_AT_ONCE = 4096

T = TypeVar("T")


class DiskStorage:
    """n rows of width m with both moments in a file; host memory holds a few batches of them.

    A record is a row's last step, the row and its moments, as `layout` keeps them. A row that was
    never written is drawn from (seed, index), so that a new storage takes neither time nor space.

    One thread does all reading and writing, in the order in which it was asked. Batches announced
    by `prefetch` are read before they are needed; if one of their rows is written in the meantime,
    they get it from memory. A step waits for the disk only if the disk is slower than the steps;
    `wait_seconds` says how long.

    A checkpoint keeps what `state_dict` returns, which names a generation and holds no rows. Once
    it is saved, `discard_old` drops what only older checkpoints need, see
    `widefield.head.storage.journal`.

    Args:
        folder: holds the file and its journals; made at the first use.
        n: number of rows.
        dim: their width m.
        seed: of the rows' random starts.
        device: where `read` puts rows and `write` takes them from.
        shard: whose rows it holds; `read` and `write` are asked for no others.

    Raises:
        ValueError: at first use: the folder holds another run's rows, damaged ones, or is in use;
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

    def __init__(
        self,
        folder: str | Path,
        n: int,
        dim: int,
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
        self._ahead: deque[_Ahead] = deque()
        self._behind: deque[Future[None]] = deque()
        self._error: BaseException | None = None
        self._side: torch.cuda.Stream | None = None
        if self.device.type == "cuda":
            self._side = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def prefetch(self, batches: Iterable[Tensor]) -> None:
        """Announce the next reads, each index int64 [b], in their order."""
        self._ahead.clear()
        self._upcoming = iter(batches)
        self._read_ahead()

    def read(self, index: Tensor) -> RowState:
        """State of rows `index` [b], copied to the device; `index` is in host memory."""
        if self._ahead and torch.equal(self._ahead[0].index, index):
            ahead = self._ahead.popleft()
            records = self._wait(ahead.records)
            for written in ahead.overlaps:
                written.overwrite(index, records)
            self._read_ahead()
        else:  # not announced: read it after all that is still to be written
            records = self._wait(self._submit(self._load, index))
        on_device = records.to(self.device, non_blocking=True)
        return RowState(*self.layout.unpack(on_device, self.dim), _steps(records))

    def write(self, index: Tensor, state: RowState) -> None:
        """Replace rows `index` [b], which are distinct and past step 0.

        Returns before it is done, unless several batches are still to be written.
        """
        written = self._bring(index, state)
        for ahead in self._ahead:
            if ahead.has_any_of(index):
                ahead.overlaps.append(written)
        self._behind.append(self._submit(self._save, written))
        while self._behind and (len(self._behind) > _WRITE_BEHIND or self._behind[0].done()):
            self._wait(self._behind.popleft())

    def flush(self) -> None:
        """Return when all rows are written."""
        while self._behind:
            self._wait(self._behind.popleft())

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint needs to come back to this instant; the rows stay where they are."""
        self.flush()
        snapshot: Future[dict[str, Any]] = self._submit(lambda: self._open_rows().snapshot())
        generation = self._wait(snapshot)
        return {"run": self._run, **generation}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the rows in the folder back to the checkpoint that kept `state`.

        Raises:
            ValueError: the rows are in use already, or `state` does not belong to this folder.
        """
        if self._rows is not None:
            raise ValueError(
                f"the rows in {self._folder} are in use, and are loaded before they are: close() "
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
        """Copy its rows from the folders beside its own, of all ranks of another world size.

        `states` are what `state_dict` returned on each of them. Their files stay as they are until
        `discard_old`; a copy that a crash left half made begins anew.
        """
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock.acquire()
        remove_rows(self._folder)
        self._wait(self._submit(self._copy_shards, states))
        old = range(self.shard.rank, len(states), self.shard.world)
        self._superseded = [self._folder.with_name(Shard(r, len(states)).name) for r in old]

    def discard_old(self) -> None:
        """Drop what only checkpoints before the last `state_dict` need: that one is saved."""
        self._wait(self._submit(lambda: self._open_rows().discard_old()))
        while self._superseded:
            shutil.rmtree(self._superseded.pop(), ignore_errors=True)

    def close(self) -> None:
        """End the thread and let go of the folder; writes that have not begun are dropped."""
        self._worker.shutdown(cancel_futures=True)
        if self._rows is not None:
            self._rows.close()
        self._lock.release()

    def _read_ahead(self) -> None:
        while len(self._ahead) < _READ_AHEAD:
            index = next(self._upcoming, None)
            if index is None:
                return
            records = self._submit(self._load, index)
            self._ahead.append(_Ahead(index, index.sort().values, records))

    def _bring(self, index: Tensor, state: RowState) -> "_Written":
        """Copy `state` to host memory; on CUDA beside the computation, which does not wait."""
        records = self.layout.pack(state.row, state.m, state.v)
        if self._side is None:
            return _Written(index.clone(), state.last.clone(), records, None)
        host = torch.empty(records.shape, dtype=records.dtype, pin_memory=True)
        self._side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(self._side):
            host.copy_(records, non_blocking=True)
            records.record_stream(self._side)
            arrived = self._side.record_event()
        return _Written(index.clone(), state.last.clone(), host, arrived)

    def _submit(self, job: Callable[..., T], *args: Any) -> Future[T]:
        return self._worker.submit(self._unless_failed, job, *args)

    def _wait(self, future: Future[T]) -> T:
        """Result of a job.

        Raises:
            ValueError: the disk is full, or fails.
        """
        began = time.perf_counter()
        try:
            return future.result()
        except OSError as error:
            remedy = "make room" if disk_is_full(error) else "see to the disk"
            raise ValueError(
                f"the rows in {self._folder} cannot be written or read ({error.strerror}): the "
                f"last checkpoint, if there is one, is whole; {remedy} and run again with --resume"
            ) from error
        finally:
            self.wait_seconds += time.perf_counter() - began

    # From here on everything runs in the thread, one job after the other.

    def _unless_failed(self, job: Callable[..., T], *args: Any) -> T:
        """Run `job`; after one has failed no other is begun, and all end with its error."""
        if self._error is None:
            try:
                return job(*args)
            except (OSError, ValueError) as error:
                self._error = error
        raise self._error

    def _open_rows(self, state: dict[str, Any] | None = None) -> RecoverableRows:
        """The rows: as of the checkpoint with `state`, or, at first use, new."""
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
        """Take over rows of `self.shard` from every rank's folder, one after the other."""
        mine = self._open_rows()
        for rank, state in enumerate(states):
            theirs = Shard(rank, len(states))
            folder = self._folder.with_name(theirs.name)
            lock = FolderLock(folder)
            lock.acquire(wait=True)  # other ranks copy theirs
            try:
                header = self._header(theirs, state["run"])
                with closing(RecoverableRows.open(folder, header, state)) as rows:
                    self._copy(rows, theirs, mine)
            finally:
                lock.release()

    def _copy(self, rows: RecoverableRows, theirs: Shard, mine: RecoverableRows) -> None:
        """Write the rows of `theirs` that belong to `self.shard`, and were ever visited."""
        count = theirs.count(self.n)
        for first in range(0, count, _COPIED_AT_ONCE):
            local = torch.arange(first, min(first + _COPIED_AT_ONCE, count))
            example = theirs.examples_at(local)
            wanted = example % self.shard.world == self.shard.rank
            visited = torch.from_numpy(rows.steps(local[wanted].numpy()) > 0)
            at = local[wanted][visited]
            if len(at):
                target = self.shard.local(theirs.examples_at(at))
                mine.write(target.numpy(), rows.read(at.numpy()))

    def _load(self, index: Tensor) -> Tensor:
        """Read records, and draw the rows of those that were never written."""
        shape, pin = (len(index), self.layout.words(self.dim)), self._side is not None
        records = torch.empty(shape, dtype=torch.int32, pin_memory=pin)
        self._open_rows().read(self.shard.local(index).numpy(), records.numpy())
        never = _steps(records) == 0
        if never.any():
            row, _, _ = self.layout.unpack(records, self.dim)
            row[never] = initial_rows(index[never], self.dim, seed=self._seed, dtype=row.dtype)
        return records

    def _save(self, written: "_Written") -> None:
        """Write records."""
        index = self.shard.local(written.index)
        self._open_rows().write(index.numpy(), written.wait().numpy())


def _steps(records: Tensor) -> Tensor:
    """The step that each record is at, int64 [b]."""
    return records[:, :STEP_WORDS].contiguous().view(torch.int64)[:, 0]


@dataclass(frozen=True, slots=True)
class _Written:
    """A batch on its way to the disk."""

    index: Tensor
    last: Tensor
    records: Tensor
    """int32 [b, words] in host memory, once they have arrived; until then without their steps."""
    arrived: torch.cuda.Event | None

    def wait(self) -> Tensor:
        """The records, arrived."""
        if self.arrived is not None:
            self.arrived.synchronize()
        self.records[:, :STEP_WORDS] = self.last[:, None].view(torch.int32)
        return self.records

    def overwrite(self, index: Tensor, records: Tensor) -> None:
        """Put the rows that are also in `index` into `records`, which were read before."""
        at, mine = (index[:, None] == self.index).nonzero(as_tuple=True)
        records[at] = self.wait()[mine]


@dataclass(slots=True)
class _Ahead:
    """A batch announced and being read."""

    index: Tensor
    sorted: Tensor
    """The same, smallest first."""
    records: Future[Tensor]
    overlaps: list[_Written] = field(default_factory=list)
    """Batches written since it was announced, in their order."""

    def has_any_of(self, index: Tensor) -> bool:
        """Whether it shares a row with `index`."""
        at = torch.searchsorted(self.sorted, index).clamp_(max=len(self.sorted) - 1)
        return bool((self.sorted[at] == index).any())
