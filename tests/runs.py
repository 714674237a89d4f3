"""Small runs of `pretrain`, ways to end them early, and what two of them have in common."""

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from widefield.encoders import load_encoder
from widefield.methods import METHODS
from widefield.probes.compare import IMAGE_COUNTS
from widefield.train.loop import OnStep
from widefield.train.step import StepMetrics
from widefield.workflows.pretrain import pretrain

EXAMPLES, STEPS = 64, 16

SHORT: dict[str, Any] = {
    "max_examples": EXAMPLES,
    "batch_size": 16,
    "image_size": 16,
    "epochs": 4,
    "checkpoint_every": 1,
    "health_every": 4,
    "encoder": "resnet-tiny",
    "quiet": True,
}
"""A run of four epochs of four steps, of any method."""

SMALL: dict[str, Any] = {**SHORT, "projector_width": 32, "projector_dim": 16}
"""The same for a method with a projector."""


def small(method: str) -> dict[str, Any]:
    """Settings of a small run of any method."""
    settings = SMALL if "projector_width" in METHODS[method]().flat() else SHORT
    teacher = {"teacher": "pixels"} if method == "distill" else {}
    return {**settings, **teacher, "method": method}


def images(count: int = EXAMPLES) -> dict[str, np.ndarray]:
    """Noise, the halves of which have colors of their own: class 0 is red, class 1 is blue."""
    rng = np.random.default_rng(0)
    y = np.arange(count) % 2
    x = rng.integers(0, 128, (count, 16, 16, 3))
    x[np.arange(count), :, :, 2 * y] += 128
    return {"x": x.astype(np.uint8), "y": y}


def paint(folder: Path, images: np.ndarray, *, first: int = 0, step: int = 1) -> None:
    """Write images to PNG files, each named by its number, from `first` on."""
    folder.mkdir(exist_ok=True)
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{first + step * i:03}.png")


@contextmanager
def uncompared() -> Iterator[None]:
    """Runs end without a comparison with the untrained network, which takes longer than they do."""
    with mock.patch.dict(IMAGE_COUNTS, untrained=(10**9, 10**9)):
        yield


class Killed(Exception):
    """Ends a run at once, as no part of it expects."""


def die_at(step: int) -> OnStep:
    """End the run after a step, without a checkpoint."""

    def die(metrics: StepMetrics) -> None:
        if metrics.step == step:
            raise Killed

    return die


def noted(note: Callable[[int, float], object]) -> OnStep:
    """Note the number of each step, and the mean loss of the epoch so far."""
    return lambda metrics: note(metrics.step, metrics.means()["loss"])


def train_and_die(data: str, out: Path, file: Path, stop: int, **settings: Any) -> None:
    """Write steps and losses into a file, and end this process by SIGKILL after step `stop`."""
    with file.open("w") as lines:

        def write(step: int, loss: float) -> None:
            print(json.dumps([step, loss]), file=lines, flush=True)
            if step == stop:
                os.kill(os.getpid(), signal.SIGKILL)

        pretrain(data, out=out, on_step=noted(write), **settings)


def signal_at(step: int, sign: signal.Signals = signal.SIGINT) -> OnStep:
    """Send this process a signal at the end of a step, after which the run stops."""

    def send(metrics: StepMetrics) -> None:
        if metrics.step == step:
            os.kill(os.getpid(), sign)

    return send


def last_checkpoint(run: Path) -> dict[str, Any]:
    """What all ranks share of the run's last checkpoint."""
    return torch.load(run / "checkpoints" / "last.pt", weights_only=True)


def weights(run: Path) -> dict[str, Tensor]:
    return load_encoder(run).state_dict()


def assert_same_weights(one: Path, two: Path) -> None:
    assert_same_state(weights(one), weights(two))


def assert_same_state(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for key, value in first.items():
        assert torch.equal(value, second[key]), key


def assert_same(one: Path, two: Path) -> None:
    """Weights and logs are equal, except for what depends on the machine's speed."""
    assert_same_weights(one, two)
    first, second = ((run / "metrics.csv").read_text().splitlines() for run in (one, two))
    columns = first[0].split(",")
    timed = {columns.index("images_per_second"), columns.index("data_wait")}
    for rows in zip(first, second, strict=True):
        a, b = ([v for i, v in enumerate(row.split(",")) if i not in timed] for row in rows)
        assert a == b
