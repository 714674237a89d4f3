"""A run computes with the fastest number of threads, keeps it, and no pool has more."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from threadpoolctl import threadpool_info

from widefield import pretrain
from widefield.train import threads as module
from widefield.train.step import StepMetrics
from widefield.train.threads import fastest, fastest_for, limited_threads

SMALL: dict[str, Any] = {"max_examples": 64, "batch_size": 16, "projector_dim": 16, "quiet": True}


def pools() -> set[int]:
    """Return the number of threads of torch and of every BLAS and OpenMP library."""
    return {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process with two threads, however many cores this machine has."""
    for name in ("widefield.train.threads", "widefield.workflows.pretrain"):
        monkeypatch.setattr(f"{name}.usable_cpus", lambda: 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


class Seen(Exception):
    """Ends a run after its first step."""


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("threads", [1, 2])
def test_no_pool_has_more_threads_than_the_run(tmp_path: Path, threads: int) -> None:
    def on_step(metrics: StepMetrics) -> None:
        assert max(pools()) == threads
        raise Seen

    with pytest.raises(Seen):
        pretrain("photos", out=tmp_path, epochs=1, threads=threads, on_step=on_step, **SMALL)
    assert torch.get_num_threads() == 2


class SleepsUnless(torch.nn.BatchNorm1d):
    """Slow unless torch has `best` threads."""

    best = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(0.001 if torch.get_num_threads() == self.best else 0.1)
        return super().forward(torch.nn.functional.dropout(x))


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("best", [1, 2])
def test_an_encoder_is_tried_and_not_changed(best: int) -> None:
    encoder, x = SleepsUnless(3).eval(), torch.arange(12.0).view(4, 3)
    encoder.best = best
    before, state = torch.get_rng_state(), {k: v.clone() for k, v in encoder.state_dict().items()}
    assert fastest_for(encoder, x) == best
    assert not encoder.training
    assert all((v == state[k]).all() for k, v in encoder.state_dict().items())
    assert next(encoder.parameters()).grad is None
    assert (torch.get_rng_state() == before).all()
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("best", [1, 2])
def test_the_fastest_number_is_kept(best: int) -> None:
    def step() -> None:
        time.sleep(0.001 if torch.get_num_threads() == best else 0.1)

    assert fastest(step, most=2) == best


@pytest.mark.usefixtures("two_cores")
def test_a_run_is_resumed_with_its_own_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MIN_STEPS", 1)
    monkeypatch.setattr(module, "fastest", lambda step, most: (step(), 1)[1])
    run, notes = tmp_path / "run", list[str]()

    def seen(metrics: StepMetrics) -> None:
        raise Seen(torch.get_num_threads())

    pretrain("photos", out=run, epochs=1, **SMALL)
    assert yaml.safe_load((run / "run.yaml").read_text())["threads"] == 1
    for threads in (None, 2):
        with pytest.raises(Seen, match=str(threads or 1)):
            pretrain(
                "photos",
                out=run,
                epochs=3,
                resume=True,
                threads=threads,
                on_step=seen,
                on_note=notes.append,
                quiet=True,
            )
        assert any("2 threads, and 1 so far" in note for note in notes) == (threads == 2)


@pytest.mark.usefixtures("two_cores")
@pytest.mark.parametrize("threads", [0, 3])
def test_more_threads_than_cores_are_refused(tmp_path: Path, threads: int) -> None:
    with pytest.raises(ValueError, match=f"threads is {threads}; expected 1 to 2"):
        pretrain("photos", out=tmp_path / "run", threads=threads)


def test_the_limit_ends_with_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(KeyError), limited_threads(1):
        raise KeyError
    assert torch.get_num_threads() == before
