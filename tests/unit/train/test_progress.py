"""What the progress bar says of time that is lost, and how numbers are logged."""

import io
from pathlib import Path

import pytest
import torch
from rich.console import Console

from widefield.train.adversary import adversary_log
from widefield.train.progress import MetricsLog, ProgressBar, read_metrics
from widefield.train.step import StepMetrics


def metrics(step: int = 3, epoch: int = 0, loss: float = 3.0, wait: float = 0.0) -> StepMetrics:
    return StepMetrics(
        epoch=epoch,
        step=step,
        lr=0.1,
        images=300,
        seconds=2.0,
        data_wait=0.04,
        row_wait=wait,
        sums={"count": torch.tensor(2.0), "loss": torch.tensor(loss)},
    )


def test_the_bar_ends_with_the_last_step() -> None:
    page = io.StringIO()
    console = Console(file=page, force_terminal=True, width=200)
    with ProgressBar(console, epochs=2, total_steps=10, done=0) as bar:
        for step in range(1, 11):  # faster than the bar reads the loss
            bar.step(metrics(step, epoch=step // 6, loss=float(step)))
    last = page.getvalue().rpartition("epoch ")[2]
    assert last.startswith("2/2  loss 5.000")


@pytest.mark.parametrize(("wait", "said"), [(0.0, False), (0.01, False), (0.25, True)])
def test_a_disk_slower_than_the_encoder_is_said(wait: float, said: bool) -> None:
    page = io.StringIO()
    console = Console(file=page, force_terminal=True, width=200)
    with ProgressBar(console, epochs=2, total_steps=10, done=0) as bar:
        bar.step(metrics(wait=wait))
    assert "loss 1.500" in page.getvalue()
    assert "150 examples/s  4% waiting for data" in page.getvalue()
    assert ("25% for rows" in page.getvalue()) is said
    assert ("for rows" in page.getvalue()) is said


@pytest.mark.parametrize(
    ("losses", "may_rise", "said"),
    [((3.0, 4.0, 5.0), True, 1), ((3.0, 4.0, 5.0), False, 0), ((3.0, 2.0, 1.0), True, 0)],
)
def test_a_rising_loss_is_explained_once(
    losses: tuple[float, ...], may_rise: bool, said: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, now = io.StringIO(), [0.0]
    monkeypatch.setattr("widefield.train.progress.time.monotonic", lambda: now[0])
    console = Console(file=page, width=200)
    with ProgressBar(console, epochs=1, total_steps=10, done=0, may_rise=may_rise) as bar:
        for step, loss in enumerate(losses):
            now[0] += 2.0
            bar.step(metrics(step + 1, loss=loss))
    assert page.getvalue().count("the loss rises at first, because the head") == said


def test_a_log_has_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    page, now = io.StringIO(), [0.0]
    monkeypatch.setattr("widefield.train.progress.time.monotonic", lambda: now[0])
    with ProgressBar(Console(file=page, width=200), epochs=2, total_steps=10, done=4) as bar:
        now[0] = 100.0
        bar.step(metrics(6))  # two steps in 100 s, so four take 200
    assert page.getvalue().splitlines()[0].endswith("4% waiting for data  3 min left")


def test_steps_are_logged_with_all_their_digits(tmp_path: Path) -> None:
    weight = torch.nn.Parameter(torch.zeros(1))
    adversary = torch.optim.Adam([weight])
    adversary.state[weight]["step"] = torch.tensor(1_234_567.0)
    log = MetricsLog(tmp_path, epoch=0)
    log.add(1, {"step": 1_234_567, "loss": 1 / 3, **adversary_log(adversary)})
    log.close()
    (row,) = read_metrics(tmp_path / "metrics.csv")
    assert (row["step"], row["adversary_step"], row["loss"]) == ("1234567", "1234567", "0.333333")
