"""Progress of a run: a progress bar, tables of metrics, TensorBoard, and Lightning's loggers."""

import csv
import importlib.util
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self, get_args

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from torch import Tensor

from widefield.core.files import check_plain_file, write_atomically
from widefield.core.names import check_name, format_duration, printable
from widefield.train.step import StepMetrics

LoggerName = Literal["wandb", "mlflow"]
"""Weights & Biases, MLflow; `metrics.csv` and TensorBoard's files are written anyway."""

# Reading the loss waits for the device, which then has no work.
SECONDS_BETWEEN_LOSSES = 1.0
# In a file, which shows no bar.
SECONDS_BETWEEN_LINES = 60.0
# Chosen by hand; smaller shares are not shown.
MIN_ROW_WAIT = 0.02

RISING_LOSS = (
    "the loss rises at first, because the head is initialized with the features of its examples"
)


def print_line(console: Console, line: str) -> None:
    """Print a line as it is: names of files may hold what looks like markup, or control codes."""
    console.print(printable(line), highlight=False, markup=False, soft_wrap=True)


class LineLog:
    """Prints a line a minute with the time left, where the output is a file and shows no bar."""

    def __init__(self, console: Console, *, done: int = 0) -> None:
        self._console, self._printed_at = console, time.monotonic()
        self._began, self._done_before = self._printed_at, done

    def print_line(self, line: Callable[[], str], *, done: int, total: int) -> None:
        """Print what `line` returns, if a minute has passed since the last one."""
        now = time.monotonic()
        if self._console.is_terminal or now - self._printed_at <= SECONDS_BETWEEN_LINES:
            return
        self._printed_at = now
        seconds = (now - self._began) / max(1, done - self._done_before)
        print_line(self._console, f"{line()}  {format_duration(seconds * (total - done))} left")


class ProgressBar:
    """Epoch, loss, examples/s, share of time spent waiting for data, time left; on stderr.

    If the loss `may_rise`, a line says why when it does for the first time.
    """

    def __init__(
        self, console: Console, *, epochs: int, total_steps: int, done: int, may_rise: bool = False
    ) -> None:
        self._epochs = epochs
        self._may_rise, self._least_loss = may_rise, float("inf")
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
        self._line_log = LineLog(console, done=done)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._bar.stop()

    def step(self, metrics: StepMetrics) -> None:
        now = time.monotonic()
        if now - self._read_at > SECONDS_BETWEEN_LOSSES or metrics.step == self._total_steps:
            self._read_at = now
            self._show_loss(metrics)
        self._bar.update(self._task, completed=metrics.step)

    def _show_loss(self, metrics: StepMetrics) -> None:
        means = metrics.means()
        loss, adversary = means["loss"], means.get("adversary_loss")
        self._least_loss = min(self._least_loss, loss)
        if self._may_rise and loss > self._least_loss:
            self._may_rise = False
            self.print_line(RISING_LOSS)
        epoch = f"epoch {metrics.epoch + 1}/{self._epochs}  loss {loss:.3f}"
        if adversary is not None:
            epoch += f"  adversary {adversary:.3f}"
        rate = (
            f"{metrics.images / metrics.seconds:,.0f} examples/s  "
            f"{metrics.data_wait:.0%} waiting for data "
        )
        if metrics.row_wait >= MIN_ROW_WAIT:
            rate += f"{metrics.row_wait:.0%} for rows "
        self._bar.update(self._task, description=epoch, rate=rate)
        self._line_log.print_line(
            lambda: f"{epoch}  {rate}".rstrip(), done=metrics.step, total=self._total_steps
        )

    def print_line(self, line: str) -> None:
        print_line(self._bar.console, line)


@contextmanager
def images_bar(console: Console, description: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar over images, updated by the returned callback of (done, total).

    Output to a file has a line a minute instead.
    """
    if not console.is_terminal:
        line_log = LineLog(console)
        yield lambda done, total: line_log.print_line(
            lambda: f"{description}: {done:,} of {total:,}", done=done, total=total
        )
        return
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
        task = bar.add_task(description, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


class MetricsLog:
    """Writes `metrics.csv`, one row per epoch, and the same values to TensorBoard and a logger."""

    def __init__(self, folder: Path, *, epoch: int, logger: LoggerName | None = None) -> None:
        """Continue after `epoch` finished epochs; later rows are dropped.

        A damaged file is kept as `metrics.damaged.csv`.
        """
        self._path = folder / "metrics.csv"
        rows = _read_rows(self._path)
        if None in rows:
            self._path.rename(_free_name(folder))
        self._rows = [row for row in rows if row is not None and int(row["epoch"]) <= epoch]
        from torch.utils.tensorboard import SummaryWriter

        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=epoch + 1)
        self._logger = None if logger is None else open_logger(logger, folder)

    def add(self, epoch: int, values: dict[str, float | str]) -> None:
        """Append the row of a finished epoch; whole numbers are written with all their digits."""
        row = {"epoch": str(epoch)}
        row |= {k: f"{v:.6g}" if isinstance(v, float) else str(v) for k, v in values.items()}
        self._rows.append(row)
        columns = list(dict.fromkeys(name for r in self._rows for name in r))
        write_atomically(self._path, lambda tmp: _write_table(tmp, columns, self._rows))
        numbers = {k: v for k, v in values.items() if not isinstance(v, str)}
        for name, value in numbers.items():
            self._board.add_scalar(name, value, epoch)
        if self._logger is not None:
            self._logger.log_metrics(numbers, step=epoch)

    def close(self) -> None:
        self._board.close()
        if self._logger is not None:
            self._logger.finalize("success")


class StepLog:
    """Writes `steps.csv`, a row every few steps: the mean loss since the previous row.

    With several processes it is the loss of the first. Rows after `step` are dropped. `sums` are
    those of the steps of `epoch` before a resume, which the first row leaves out.
    """

    def __init__(
        self, folder: Path, *, step: int, every: int, epoch: int, sums: dict[str, Tensor]
    ) -> None:
        self._path, self._every = folder / "steps.csv", every
        self._epoch = epoch
        self._count, self._loss = (float(sums.get(name, 0)) for name in ("count", "loss"))
        old_rows = [r for r in read_metrics(self._path) if int(r.get("step") or step + 1) <= step]
        write_atomically(self._path, lambda tmp: _write_table(tmp, STEP_COLUMNS, old_rows))

    def add(self, metrics: StepMetrics) -> None:
        """Append a row every `every` steps; reading the loss waits for the device."""
        if metrics.step % self._every:
            return
        if metrics.epoch != self._epoch:  # sums are reset at every epoch
            self._epoch, self._count, self._loss = metrics.epoch, 0.0, 0.0
        count, loss = float(metrics.sums["count"]), float(metrics.sums["loss"])
        mean = (loss - self._loss) / (count - self._count)
        self._count, self._loss = count, loss
        rate = metrics.images / metrics.seconds
        row = (metrics.epoch + 1, metrics.step, *(f"{x:.6g}" for x in (mean, metrics.lr, rate)))
        with self._path.open("a", newline="") as file:
            csv.writer(file).writerow(row)


STEP_COLUMNS = ["epoch", "step", "loss", "lr", "images_per_second"]
"""Columns of `steps.csv`; the epoch is the current one, counted from 1."""


def _write_table(path: Path, columns: list[str], rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, columns, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)


def read_metrics(path: Path) -> list[dict[str, str]]:
    """Return the valid rows of `metrics.csv` or `steps.csv`; none if there is no file."""
    return [row for row in _read_rows(path) if row is not None]


# Chosen by hand.
_MAX_BYTES = 2**28
"""Largest size of a table of metrics."""
_TEXT_COLUMNS = ("verdict", "adversary_optimizer")
"""Columns of text; all others are of numbers."""


def _read_rows(path: Path) -> list[dict[str, str] | None]:
    """Return every row of a table of metrics, None for damaged ones."""
    if not os.path.lexists(path):
        return []
    try:
        check_plain_file(path, largest=_MAX_BYTES)
        with path.open(newline="", encoding="utf-8", errors="replace") as file:
            return [row if _is_valid(row) else None for row in csv.DictReader(file)]
    except (csv.Error, ValueError, OSError):
        return [None]


def _free_name(folder: Path) -> Path:
    names = (folder / f"metrics.damaged{number}.csv" for number in ("", *range(2, 10**6)))
    return next(path for path in names if not os.path.lexists(path))


def _is_valid(row: dict[str, str]) -> bool:
    try:
        if None in row or None in row.values() or int(row["epoch"]) < 1:
            return False
        for name, value in row.items():
            if value and name not in _TEXT_COLUMNS:
                float(value)
    except (KeyError, ValueError):
        return False
    return True


_CLASSES = {"wandb": "WandbLogger", "mlflow": "MLFlowLogger"}


def check_logger(name: str) -> None:
    """Check that a logger exists and that its package is installed."""
    check_name("logger", name, get_args(LoggerName))
    for package in (name, "lightning"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"logger {name} needs the package {package}: "
                f"pip install 'widefield[loggers]' {name}"
            )


def open_logger(name: LoggerName, run: Path) -> Any:
    """Return Lightning's logger of that name, for the run in the folder `run`.

    Account, server and project are taken from the logger's own environment variables.
    """
    from lightning.pytorch import loggers

    options = {
        "wandb": {
            "name": run.name,
            "project": os.environ.get("WANDB_PROJECT", "widefield"),
            "save_dir": str(run),
        },
        "mlflow": {
            "run_name": run.name,
            "experiment_name": os.environ.get("MLFLOW_EXPERIMENT_NAME", "widefield"),
        },
    }
    return getattr(loggers, _CLASSES[name])(**options[name])
