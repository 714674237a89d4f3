"""A run keeps its number of threads, and no pool has more."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from threadpoolctl import threadpool_info

from widefield import pretrain
from widefield.core.hardware import limited_threads
from widefield.train.compute import default_threads
from widefield.train.step import StepMetrics

SMALL: dict[str, Any] = {
    "max_examples": 32,
    "batch_size": 16,
    "encoder": "resnet-tiny",
    "quiet": True,
}


def pools() -> set[int]:
    """Return the number of threads of torch and of every BLAS and OpenMP library."""
    return {torch.get_num_threads(), *(pool["num_threads"] for pool in threadpool_info())}


@pytest.fixture
def two_cores(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process with two threads, however many cores this machine has."""
    for name in ("widefield.train.compute", "widefield.workflows.resume"):
        monkeypatch.setattr(f"{name}.available_cpus", lambda: 2)
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


@pytest.mark.usefixtures("two_cores")
def test_the_default_is_what_torch_has_up_to_the_cores() -> None:
    assert default_threads() == 2
    with limited_threads(1):
        assert default_threads() == 1
    torch.set_num_threads(4)
    assert default_threads() == 2


@pytest.mark.usefixtures("two_cores")
def test_a_run_is_resumed_with_its_own_number(tmp_path: Path) -> None:
    run, notes = tmp_path / "run", list[str]()

    def seen(metrics: StepMetrics) -> None:
        raise Seen(torch.get_num_threads())

    pretrain("photos", out=run, epochs=1, threads=1, **SMALL)
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
