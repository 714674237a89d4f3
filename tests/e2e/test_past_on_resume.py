"""What is past when a run is resumed comes from the run, and not from the settings of the resume.

The warm-up is half of all epochs at most. In each run here it meets this cap, so that a warm-up
computed from a larger number of epochs would be longer, and the learning rate would climb again.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runs import Killed, die_at, images, small
from widefield.train import resume
from widefield.train.optim import learning_rates
from widefield.train.run_dir import RunFolder
from widefield.train.step import StepMetrics
from widefield.workflows.pretrain import pretrain

FEW, MORE, ALL = 64, 80, 96
"""Examples; 4, 5 and 6 steps an epoch."""
PEAK = 0.02
BEGUN: dict[str, Any] = {
    **small("simclr"),
    "max_examples": None,
    "epochs": 2,
    "lr": PEAK,
    "checkpoint_every": 1,
}
"""The warm-up of three epochs is capped at one, of 4 steps."""


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that ends at step 8, after its last checkpoint."""
    run = tmp_path_factory.mktemp("runs") / "run"
    with pytest.raises(Killed):
        pretrain(images(FEW), out=run, **BEGUN, on_epoch=die_at(8))
    return run


def rates_of(run: Path, count: int, *, until: int, **settings: Any) -> list[float]:
    """Resume `run` on `count` examples; return the learning rates of the steps to `until`."""
    rates: list[float] = []

    def log(metrics: StepMetrics) -> None:
        rates.append(metrics.lr)
        die_at(until)(metrics)

    with pytest.raises(Killed):
        pretrain(images(count), out=run, resume=True, quiet=True, on_step=log, **settings)
    return rates


def expected(steps: int, warmup_steps: int, since: int, until: int) -> Any:
    rates = learning_rates(PEAK, steps=steps, warmup_steps=warmup_steps)
    return pytest.approx(rates[since:until].tolist())


def forget_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: the warm-up is computed from the settings of the resume, as it once was."""

    def in_order(*args: Any) -> Any:
        dataset, growth = original(*args)
        return dataset, None if growth is None else replace(growth, warmup_epochs=None)

    original = resume.in_order
    monkeypatch.setattr("widefield.workflows.resume.in_order", in_order)


def test_more_epochs_while_examples_join_leave_the_warm_up(begun: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    rates = rates_of(run, ALL, until=12, epochs=8)
    growth = RunFolder(path=run).manifest.growth()
    assert (growth.step, growth.warmup_steps) == (8, 4)
    assert rates == expected(8 + 6 * 6, 4, 8, 12)
    assert rates == sorted(rates, reverse=True)


def test_more_epochs_alone_leave_the_warm_up(begun: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    assert rates_of(run, FEW, until=11, epochs=8) == expected(32, 4, 8, 11)


def test_control_a_warm_up_of_the_new_epochs_climbs_again(
    begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget_the_warm_up(monkeypatch)
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    rates = rates_of(run, FEW, until=12, epochs=8)
    assert rates == expected(32, 12, 8, 12)
    assert rates == sorted(rates)


def test_a_resume_that_was_killed_at_once_leaves_the_warm_up(begun: Path, tmp_path: Path) -> None:
    """run.yaml has the new number of epochs by then, and the checkpoint is the old one."""
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    rates_of(run, FEW, until=9, epochs=8)
    assert RunFolder(path=run).recipe().epochs == 8
    assert rates_of(run, ALL, until=11) == expected(8 + 6 * 6, 4, 8, 11)
    assert RunFolder(path=run).manifest.growth().warmup_steps == 4


def test_examples_that_join_twice_with_more_epochs_leave_the_warm_up(
    begun: Path, tmp_path: Path
) -> None:
    run = Path(shutil.copytree(begun, tmp_path / "run"))
    rates_of(run, MORE, until=9, epochs=4)
    assert rates_of(run, ALL, until=10, epochs=8) == expected(8 + 6 * 6, 4, 8, 10)


def test_examples_that_join_in_the_warm_up_do_not_lengthen_it_by_more_epochs(
    tmp_path: Path,
) -> None:
    """One epoch of the two of the warm-up is left, of 6 steps, whatever the epochs are now."""
    run = tmp_path / "run"
    with pytest.raises(Killed):
        pretrain(images(FEW), out=run, **{**BEGUN, "epochs": 4}, on_epoch=die_at(4))
    rates = rates_of(run, ALL, until=12, epochs=12)
    assert rates == expected(4 + 11 * 6, 4 + 6, 4, 12)


def test_fewer_epochs_leave_a_warm_up_that_is_over(tmp_path: Path) -> None:
    """Three epochs of six were the warm-up; half of four would be shorter."""
    run = tmp_path / "run"
    with pytest.raises(Killed):
        pretrain(images(FEW), out=run, **{**BEGUN, "epochs": 6}, on_epoch=die_at(12))
    assert rates_of(run, FEW, until=15, epochs=4) == expected(16, 12, 12, 15)


def test_a_manifest_without_the_warm_up_leaves_it_to_the_settings_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    with monkeypatch.context() as patch:
        patch.setattr("widefield.train.run.warmup_epochs", lambda recipe: None)
        with pytest.raises(Killed):
            pretrain(images(FEW), out=run, **BEGUN, on_epoch=die_at(8))
    assert RunFolder(path=run).manifest.growth().warmup_epochs is None
    assert rates_of(run, ALL, until=10, epochs=8) == expected(8 + 6 * 6, 4, 8, 10)
