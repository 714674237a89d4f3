"""What a run says while it trains: a bar, tables of metrics on disk, TensorBoard."""

import csv
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from torch import Tensor
from torch.utils.tensorboard import SummaryWriter

from widefield.core.files import check_plain_file, write_atomically
from widefield.train.loggers import LoggerName, open_logger
from widefield.train.step import StepMetrics

SECONDS_BETWEEN_LOSSES = 1.0  # reading the loss waits for the device: once a second costs nothing

SECONDS_BETWEEN_LINES = 60.0  # in a file, which shows no bar

ROW_WAIT_SHOWN = 0.02  # below that the disk keeps up, and the bar has better things to say


class EveryMinute:
    """Prints a line a minute where no bar can be seen: in a log file."""

    def __init__(self, console: Console) -> None:
        self._console, self._said_at = console, time.monotonic()

    def say(self, line: Callable[[], str]) -> None:
        """Print what `line` returns, if a minute has passed since the last one."""
        if not self._console.is_terminal and time.monotonic() - self._said_at > (
            SECONDS_BETWEEN_LINES
        ):
            self._said_at = time.monotonic()
            self._console.print(line(), highlight=False, markup=False, soft_wrap=True)


class ProgressBar:
    """Epoch, loss, examples/s, share of time spent waiting for data, time left; on stderr."""

    def __init__(self, console: Console, *, epochs: int, total_steps: int, done: int) -> None:
        self._epochs = epochs
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TextColumn("{task.fields[rate]}"),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
        )
        self._total_steps = total_steps
        self._task = self._bar.add_task("starting", total=total_steps, completed=done, rate="")
        self._read_at = 0.0
        self._minutely = EveryMinute(console)

    def __enter__(self) -> Self:
        """Show the bar."""
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()

    def step(self, metrics: StepMetrics) -> None:
        """Advance by one step."""
        now = time.monotonic()
        rows = f"{metrics.row_wait:.0%} for rows " if metrics.row_wait >= ROW_WAIT_SHOWN else ""
        if now - self._read_at > SECONDS_BETWEEN_LOSSES or metrics.step == self._total_steps:
            self._read_at = now
            means = metrics.means()
            loss = means.get("adversary_loss")
            adversary = "" if loss is None else f"  adversary {loss:.3f}"
            epoch = f"epoch {metrics.epoch + 1}/{self._epochs}  loss {means['loss']:.3f}{adversary}"
            rate = (
                f"{metrics.images / metrics.seconds:,.0f} examples/s  "
                f"{metrics.data_wait:.0%} waiting for data {rows}"
            )
            self._bar.update(self._task, description=epoch, rate=rate)
            self._minutely.say(lambda: f"{epoch}  {rate}".rstrip())
        self._bar.update(self._task, completed=metrics.step)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def images_bar(console: Console, doing: str) -> Iterator[Callable[[int, int], None]]:
    """Show how many images are done, while the returned callback gets (done, total).

    In a file, a line a minute stands for the bar.

    Args:
        console: where to show it.
        doing: what is done, such as "reading images".
    """
    if not console.is_terminal:
        minutely = EveryMinute(console)
        yield lambda done, total: minutely.say(lambda: f"{doing}: {done:,} of {total:,}")
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class MetricsLog:
    """`metrics.csv`, one row an epoch, and the same numbers for TensorBoard and another logger."""

    def __init__(self, folder: Path, *, epoch: int, logger: LoggerName | None = None) -> None:
        """Go on after `epoch` finished epochs; later rows, of a lost stretch, are dropped.

        A file in which something cannot be read is kept as `metrics.damaged.csv`.
        """
        self._path = folder / "metrics.csv"
        rows = _read_rows(self._path)
        if None in rows:
            self._path.rename(_free_name(folder))
        self._rows = [row for row in rows if row is not None and int(row["epoch"]) <= epoch]
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=epoch + 1)
        self._logger = None if logger is None else open_logger(logger, folder)

    def add(self, epoch: int, values: dict[str, float | str]) -> None:
        """Append the row of a finished epoch; whole numbers are written with all their digits."""
        row = {"epoch": str(epoch)}
        row |= {k: f"{v:.6g}" if isinstance(v, float) else str(v) for k, v in values.items()}
        self._rows.append(row)
        columns = list(dict.fromkeys(name for r in self._rows for name in r))
        write_atomically(self._path, lambda draft: _write_table(draft, columns, self._rows))
        numbers = {k: v for k, v in values.items() if not isinstance(v, str)}
        for name, value in numbers.items():
            self._board.add_scalar(name, value, epoch)
        if self._logger is not None:
            self._logger.log_metrics(numbers, step=epoch)

    def close(self) -> None:
        """Flush what loggers have not written yet."""
        self._board.close()
        if self._logger is not None:
            self._logger.finalize("success")


class StepLog:
    """`steps.csv`, a row every few steps: the mean loss since the row before.

    In several processes it is the loss of the first one. What is there after `step`, of a lost
    stretch, is dropped. The first row of a run that goes on within `epoch` leaves out `sums`, those
    of its steps until then.
    """

    def __init__(
        self, folder: Path, *, step: int, every: int, epoch: int, sums: dict[str, Tensor]
    ) -> None:
        self._path, self._every = folder / "steps.csv", every
        self._epoch = epoch
        self._count, self._loss = (float(sums.get(name, 0)) for name in ("count", "loss"))
        kept = [r for r in read_metrics(self._path) if int(r.get("step") or step + 1) <= step]
        write_atomically(self._path, lambda draft: _write_table(draft, STEP_COLUMNS, kept))

    def add(self, metrics: StepMetrics) -> None:
        """Append a row, if it is time for one; reading the loss waits for the device."""
        if metrics.step % self._every:
            return
        if metrics.epoch != self._epoch:  # sums begin anew with every epoch
            self._epoch, self._count, self._loss = metrics.epoch, 0.0, 0.0
        count, loss = float(metrics.sums["count"]), float(metrics.sums["loss"])
        mean = (loss - self._loss) / (count - self._count)
        self._count, self._loss = count, loss
        speed = metrics.images / metrics.seconds
        row = (metrics.epoch + 1, metrics.step, *(f"{x:.6g}" for x in (mean, metrics.lr, speed)))
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerow(row)


STEP_COLUMNS = ["epoch", "step", "loss", "lr", "images_per_second"]
"""Columns of `steps.csv`; the epoch is the one under way, counted from 1."""


def _write_table(path: Path, columns: list[str], rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def read_metrics(path: Path) -> list[dict[str, str]]:
    """Rows of `metrics.csv` or `steps.csv` that can be read; none where there is no file yet."""
    return [row for row in _read_rows(path) if row is not None]


_LARGEST = 2**28
"""Bytes of a table of metrics at most."""
_WORDS = ("verdict", "adversary_optimizer")
"""Columns that hold words; all others hold numbers."""


def _read_rows(path: Path) -> list[dict[str, str] | None]:
    """Return every row of a table of metrics, None for what cannot be read."""
    if not os.path.lexists(path):
        return []
    try:
        check_plain_file(path, largest=_LARGEST)
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            return [row if _is_sound(row) else None for row in csv.DictReader(file)]
    except (csv.Error, ValueError, OSError):
        return [None]


def _free_name(folder: Path) -> Path:
    """Return a name for a damaged log that no other one has."""
    names = (folder / f"metrics.damaged{number}.csv" for number in ("", *range(2, 10**6)))
    return next(path for path in names if not os.path.lexists(path))


def _is_sound(row: dict[str, str]) -> bool:
    """Return whether a row has a cell for each column, an epoch, and numbers where they belong."""
    try:
        if None in row or None in row.values() or int(row["epoch"]) < 1:
            return False
        for name, value in row.items():
            if value and name not in _WORDS:
                float(value)
    except (KeyError, ValueError):
        return False
    return True
