"""What a run says while it trains: a bar, a table of metrics on disk, TensorBoard."""

import csv
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from torch.utils.tensorboard import SummaryWriter

from widefield.train.loop import Pulse

SECONDS_BETWEEN_LOSSES = 1.0  # reading the loss waits for the device: once a second costs nothing

ROW_WAIT_SHOWN = 0.02  # below that the disk keeps up, and the bar has better things to say


class ProgressBar:
    """Epoch, loss, images/s, share of time spent waiting for data, time left; on stderr."""

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
        self._task = self._bar.add_task("starting", total=total_steps, completed=done, rate="")
        self._read_at = 0.0

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

    def step(self, pulse: Pulse) -> None:
        """Advance by one step."""
        now = time.monotonic()
        rows = f"{pulse.row_wait:.0%} for rows " if pulse.row_wait >= ROW_WAIT_SHOWN else ""
        if now - self._read_at > SECONDS_BETWEEN_LOSSES:
            self._read_at = now
            means = pulse.means()
            opponent = (
                f"  opponent {means['opponent_loss']:.3f}" if "opponent_loss" in means else ""
            )
            self._bar.update(
                self._task,
                description=(
                    f"epoch {pulse.epoch + 1}/{self._epochs}  loss {means['loss']:.3f}{opponent}"
                ),
                rate=(
                    f"{pulse.images / pulse.seconds:,.0f} images/s  "
                    f"{pulse.data_wait:.0%} waiting for data {rows}"
                ),
            )
        self._bar.update(self._task, completed=pulse.step)

    def say(self, line: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(line, highlight=False, markup=False, soft_wrap=True)


class MetricsLog:
    """`metrics.csv`, one row an epoch, and the same numbers for TensorBoard."""

    def __init__(self, folder: Path, *, epoch: int) -> None:
        """Go on after `epoch` finished epochs; later rows, of a lost stretch, are dropped."""
        self._path = folder / "metrics.csv"
        self._rows = [r for r in read_metrics(self._path) if int(r["epoch"]) <= epoch]
        self._board = SummaryWriter(str(folder / "tensorboard"), purge_step=epoch + 1)

    def add(self, epoch: int, values: dict[str, float | str]) -> None:
        """Append the row of a finished epoch."""
        row = {"epoch": str(epoch)}
        row |= {k: f"{v:.6g}" if isinstance(v, float) else str(v) for k, v in values.items()}
        self._rows.append(row)
        columns = list(dict.fromkeys(name for r in self._rows for name in r))
        draft = self._path.with_name(".metrics.csv.draft")
        with draft.open("w", newline="") as f:
            writer = csv.DictWriter(f, columns)
            writer.writeheader()
            writer.writerows(self._rows)
        os.replace(draft, self._path)
        for name, value in values.items():
            if not isinstance(value, str):
                self._board.add_scalar(name, value, epoch)

    def close(self) -> None:
        """Flush TensorBoard's file."""
        self._board.close()


def read_metrics(path: Path) -> list[dict[str, str]]:
    """Rows of a `metrics.csv`; none where there is no file yet."""
    if not path.exists():
        return []
    with path.open(newline="") as f:
        return list(csv.DictReader(f))
