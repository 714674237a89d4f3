"""Epochs that last for hours: checkpoints and the loss come while one is under way."""

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from runs import SMALL, STEPS, Killed, assert_same_weights, die_at, images, last_checkpoint
from widefield.probes.monitor import Monitor
from widefield.train import run as run_module
from widefield.train.progress import StepLog, read_metrics
from widefield.workflows.pretrain import pretrain

IMAGES = images()
ONE_EPOCH = {**SMALL, "epochs": 1, "batch_size": 4, "metrics_every": 1}  # of 16 steps


@pytest.mark.parametrize("method", ["s-diet", "simclr"])
@pytest.mark.parametrize("minutes", [1e-9, 60.0])
def test_what_a_killed_epoch_leaves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, method: str, minutes: float
) -> None:
    """A run saved after every step loses one; a run saved once an hour loses all."""
    monkeypatch.setattr(run_module, "MAX_SAVE_SHARE", 1e9)
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    settings = {**ONE_EPOCH, "method": method}
    pretrain(IMAGES, out=whole, **settings)
    with pytest.raises(Killed):
        pretrain(IMAGES, out=broken, on_step=die_at(7), checkpoint_minutes=minutes, **settings)
    if minutes < 1:
        assert last_checkpoint(broken)["step"] == 6
    else:
        assert not (broken / "checkpoints" / "last.pt").exists()
    resumed = pretrain(IMAGES, out=broken, resume=True, quiet=True)
    assert resumed.steps == STEPS
    assert_same_weights(whole, broken)
    assert [int(row["step"]) for row in read_metrics(broken / "steps.csv")] == [*range(1, 17)]


def test_a_terminal_moves_while_the_result_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    frames = []

    def compare(_: Monitor, progress: object) -> None:
        capsys.readouterr()
        time.sleep(0.5)
        frames.append(capsys.readouterr().err.count("measuring"))

    monkeypatch.setattr(Monitor, "compare", compare)
    monkeypatch.setenv("FORCE_COLOR", "1")  # rich takes any stream for a terminal
    pretrain(IMAGES, out=tmp_path / "run", **{**ONE_EPOCH, "quiet": False})
    assert frames[0] > 1


def metrics(epoch: int, step: int, count: int, loss: float) -> Any:
    return SimpleNamespace(
        epoch=epoch,
        step=step,
        lr=0.1,
        images=8 * count,
        seconds=2.0,
        sums={"count": count, "loss": loss},
    )


def test_a_row_is_the_mean_loss_since_the_row_before(tmp_path: Path) -> None:
    """Losses 1, 2, ..., 6 in epochs of three steps, a row every second step."""
    log = StepLog(tmp_path, step=0, every=2, epoch=0, sums={})
    for step in range(1, 7):
        epoch, within = divmod(step - 1, 3)
        first = 3 * epoch + 1
        log.add(metrics(epoch, step, within + 1, float(sum(range(first, step + 1)))))
    rows = read_metrics(tmp_path / "steps.csv")
    found = [(row["epoch"], row["step"], float(row["loss"])) for row in rows]
    assert found == [("1", "2", 1.5), ("2", "4", 4.0), ("2", "6", 5.5)]


def test_rows_of_a_lost_stretch_are_dropped_and_damage_is_left_out(tmp_path: Path) -> None:
    log = StepLog(tmp_path, step=0, every=1, epoch=0, sums={})
    for step in range(1, 6):
        log.add(metrics(0, step, step, float(step)))
    with (tmp_path / "steps.csv").open("a") as file:
        file.write("1,")  # a killed process writes half a row
    kept = {"count": torch.tensor(3.0), "loss": torch.tensor(3.0)}
    StepLog(tmp_path, step=3, every=1, epoch=0, sums=kept).add(metrics(0, 4, 4, 12.0))
    rows = read_metrics(tmp_path / "steps.csv")
    assert [(row["step"], float(row["loss"])) for row in rows][2:] == [("3", 1.0), ("4", 9.0)]
