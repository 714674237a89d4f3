"""Two processes train one run together; the run goes on with one, and with two again."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from forked import ForkedCommand
from ranks import free_port, in_processes
from runs import (
    EXAMPLES,
    SMALL,
    STEPS,
    assert_same_state,
    assert_same_weights,
    images,
    last_checkpoint,
    signal_at,
    weights,
)
from widefield.core.gather import gather, rank_and_world
from widefield.train.step import StepMetrics
from widefield.workflows.pretrain import pretrain

PRECISE = {**SMALL, "precision": "32"}


def asked_to_stop(run: Path, step: int, **settings: Any) -> None:
    """Train until `step`; the last rank alone gets the signal, and all stop."""
    rank, world = rank_and_world()
    send = signal_at(step) if rank == world - 1 else None
    with pytest.raises(KeyboardInterrupt):
        pretrain(run.parent / "images.npz", out=run, on_step=send, **settings)
    assert last_checkpoint(run)["step"] == step


def train_in_two(rank: int, folder: Path) -> None:
    """A run left alone, one that is stopped and resumed, and two that others will resume."""
    seeds = set[int]()

    def note_seeds(_: StepMetrics) -> None:
        """Of the generator that layers such as dropout draw from, in both ranks."""
        seeds.update(gather(torch.tensor([torch.initial_seed()])).tolist())

    whole = pretrain(folder / "images.npz", out=folder / "whole", on_step=note_seeds, **PRECISE)
    assert len(seeds) == 2
    assert (whole.finished, whole.steps) == (True, STEPS)
    start = {"init": folder / "whole", "init_average": 0.5, "epochs": 1}
    adapted = pretrain(folder / "images.npz", out=folder / "adapted", **{**PRECISE, **start})
    for done in (whole, adapted):  # on each rank
        assert_same_state(done.encoder.state_dict(), weights(done.run))
        assert done.comparison is not None or done is whole
    assert adapted.trained_share == 0.5
    asked_to_stop(folder / "broken", 6, **PRECISE)
    pretrain(folder / "images.npz", out=folder / "broken", resume=True, quiet=True)
    for place in ("host", "disk"):
        asked_to_stop(folder / place, 6, **{**PRECISE, "head_storage": place, "epochs": 400})


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    np.savez(folder / "images.npz", **images())
    in_processes(2, train_in_two, folder)
    return folder


def last_steps(run: Path, world: int) -> Tensor:
    """The step that each example's row is at, by the run's last checkpoint."""
    steps = torch.zeros(EXAMPLES, dtype=torch.int64)
    for rank in range(world):
        (file,) = (run / "checkpoints").glob(f"last-step-*-rank-{rank}-of-{world}.pt")
        extra = torch.load(file, weights_only=True)["extra"]
        steps[rank::world] = extra["method.head._extra_state"]["rows"]["last"]
    return steps


def test_stopped_and_resumed_they_end_as_if_left_alone(runs: Path) -> None:
    assert_same_weights(runs / "whole", runs / "broken")
    files = {p.name for p in (runs / "whole" / "checkpoints").iterdir() if p.is_file()}
    assert files == {"last.pt", *(f"last-step-16-rank-{r}-of-2.pt" for r in (0, 1))}


def test_one_process_goes_on_with_the_rows_of_both(
    runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = last_steps(runs / "host", 2)
    assert (before > 0).sum() == EXAMPLES
    asked_to_stop(runs / "host", 7, resume=True)
    printed = " ".join(capsys.readouterr().err.split())
    assert "2 processes so far, now 1: the loss contrasts 16 examples at a time" in printed
    after = last_steps(runs / "host", 1)
    assert (after == 7).sum() == SMALL["batch_size"]
    assert torch.equal(after[after < 7], before[after < 7])


def test_losing_a_rank_ends_the_other_with_one_line(runs: Path) -> None:
    """As a user would see it, with rows that one process had taken over from two."""
    run = runs / "disk"
    asked_to_stop(run, 7, resume=True, quiet=True)
    assert [p.name for p in (run / "rows").iterdir()] == ["0-of-1"]
    ranks = two_commands("pretrain", runs / "images.npz", "--out", run, "--resume")
    try:
        deadline = time.monotonic() + 120
        while not list((run / "checkpoints").glob("last-step-12-rank-1-of-2.pt")):
            assert time.monotonic() < deadline
            assert [rank.poll() for rank in ranks] == [None, None]
            time.sleep(0.02)
        assert {p.name for p in (run / "rows").iterdir()} == {"0-of-2", "1-of-2"}
        ranks[1].kill()
        _, said = ranks[0].communicate(timeout=120)
    finally:
        for rank in ranks:
            rank.kill()  # where the test fails
            rank.communicate()
    assert ranks[0].returncode == 2, said
    assert "each contrasts the 8 examples of its own part of a batch, not all 16" in said
    lines = [line for line in said.splitlines() if line.startswith("widefield: ")]
    assert len(lines) == 1, said
    assert "rank 0 of 2 stops, because another rank ended" in lines[0]
    assert "--resume" in lines[0]


def two_commands(*words: str | Path) -> list[ForkedCommand]:
    """Start `widefield WORDS` as two ranks, as torchrun does, whose agent would send signals."""
    address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    world = {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    ranks = [{"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(2)]
    return [ForkedCommand(*words, env={**address, **world, **rank}) for rank in ranks]
