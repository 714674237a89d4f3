"""Four processes train one run: they share examples and rows, with the losses of one process."""

import csv
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from ranks import in_processes, start
from runs import EXAMPLES, SMALL, images, last_checkpoint, signal_at
from widefield.core.gather import rank_and_world
from widefield.train.step import StepMetrics
from widefield.workflows.pretrain import pretrain

WORLD = 4
METHODS = ("row-contrast", "simclr", "byol")
PRECISE = {**SMALL, "precision": "32", "health_every": 100}
WHOLE = {**PRECISE, "batch_size": EXAMPLES, "views": "none", "epochs": 3, "lr": 1e-3}
"""A step has all examples, as they are, so that it is the same however they are shared.

At larger rates the rounding of sums, which processors add in other orders, grows from step to step.
"""


def settings(method: str) -> dict[str, Any]:
    gathered = {} if method == "byol" else {"gather_distributed": True}
    return {**WHOLE, **gathered, "method": method, "sync_batch_norm": True}


def train_in_four(rank: int, folder: Path) -> None:
    data = folder / "images.npz"
    for method in METHODS:
        pretrain(data, out=folder / f"{method}-4", **settings(method))
    apart = {**settings("simclr"), "sync_batch_norm": False}
    pretrain(data, out=folder / "apart", **apart)
    stop = signal_at(6) if rank == WORLD - 1 else None
    with pytest.raises(KeyboardInterrupt):
        pretrain(data, out=folder / "run", on_step=stop, **PRECISE, method="row-contrast")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    np.savez(folder / "images.npz", **images())
    in_processes(WORLD, train_in_four, folder)
    return folder


def losses(run: Path) -> list[float]:
    with (run / "metrics.csv").open() as file:
        return [float(row["loss"]) for row in csv.DictReader(file)]


@pytest.mark.parametrize("method", METHODS)
def test_their_losses_are_those_of_one_process(runs: Path, method: str) -> None:
    pretrain(runs / "images.npz", out=runs / f"{method}-1", **settings(method))
    alone = losses(runs / f"{method}-1")
    assert len(alone) == WHOLE["epochs"]
    assert losses(runs / f"{method}-4") == pytest.approx(alone, rel=1e-4)
    if method == "simclr":  # with statistics of each process's own batch they are not
        assert losses(runs / "apart") != pytest.approx(alone, rel=1e-3)


def test_each_has_a_quarter_of_the_rows_and_one_process_goes_on(runs: Path) -> None:
    run = runs / "run"
    before = torch.zeros(EXAMPLES, dtype=torch.int64)
    for rank in range(WORLD):
        (file,) = (run / "checkpoints").glob(f"last-step-6-rank-{rank}-of-{WORLD}.pt")
        last = torch.load(file, weights_only=True)["extra"]["method.head._extra_state"]["rows"]
        assert len(last["last"]) == len(last["row"]) == EXAMPLES // WORLD
        before[rank::WORLD] = last["last"]
        visited = (last["last"] > 4).sum()  # in both steps of the second epoch
        assert visited == 2 * SMALL["batch_size"] // WORLD
    assert before.min() > 0
    with pytest.raises(KeyboardInterrupt):
        pretrain(runs / "images.npz", out=run, resume=True, quiet=True, on_step=signal_at(7))
    (file,) = (run / "checkpoints").glob("last-step-7-rank-0-of-1.pt")
    after = torch.load(file, weights_only=True)["extra"]["method.head._extra_state"]["rows"]["last"]
    assert (after == 7).sum() == SMALL["batch_size"]
    assert torch.equal(after[after < 7], before[after < 7])


def lose_the_last(rank: int, folder: Path) -> None:
    """Resume what one process left; the last rank dies, and the others write what they say."""

    def die(metrics: StepMetrics) -> None:
        if rank == WORLD - 1 and metrics.step == 9:
            os.kill(os.getpid(), signal.SIGKILL)

    assert rank_and_world() == (rank, WORLD)
    said = "nothing"
    try:
        pretrain(folder / "images.npz", out=folder / "run", resume=True, on_step=die, quiet=True)
    except ValueError as error:
        said = str(error)
    (folder / f"said-{rank}").write_text(said)
    os._exit(0)  # a group without one of its ranks cannot be left


def test_a_lost_rank_ends_the_others_with_one_line(runs: Path) -> None:
    context = start(WORLD, lose_the_last, runs)
    for process in context.processes:
        process.join(60)
    assert [process.exitcode for process in context.processes] == [0, 0, 0, -signal.SIGKILL]
    for rank in range(WORLD - 1):
        said = (runs / f"said-{rank}").read_text()
        assert said.startswith(f"rank {rank} of {WORLD} stops, because another rank ended"), said
        assert "\n" not in said
    assert last_checkpoint(runs / "run")["step"] == 8
