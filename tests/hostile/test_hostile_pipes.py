"""A named pipe without a writer: whoever opens it waits for ever, so nobody may."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import pytest

from widefield.audits.result import read_findings
from widefield.data import open_dataset
from widefield.encoders import load_encoder
from widefield.inference.open_encoder import open_encoder
from widefield.train.run_dir import load_recipe
from widefield.workflows.classify import read_labels


class Waited(Exception):
    """A call did not come back."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    def stop(number: int, frame: FrameType | None) -> None:
        raise Waited

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


READERS: dict[str, Callable[[Path], object]] = {
    "labels.csv": read_labels,
    "windows.parquet": open_dataset,
    "images.npz": open_dataset,
    "run.yaml": load_recipe,
    "audit.json": read_findings,
    "weights.pth": lambda path: open_encoder(f"{path}@resnet18"),
    "encoder.safetensors": load_encoder,
}


@pytest.mark.parametrize("name", READERS)
def test_a_pipe_in_place_of_a_file(name: str, tmp_path: Path) -> None:
    pipe = tmp_path / name
    os.mkfifo(pipe)
    with within(120), pytest.raises(ValueError, match=name):
        READERS[name](pipe)


def test_whoever_opens_a_pipe_waits(tmp_path: Path) -> None:
    """The control: without the check, the calls above would not come back."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Waited), within(0.2):
        (tmp_path / "pipe").open()
