"""Shared by the studies: train a run once, score it once, and keep it in one file."""

import fcntl
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from widefield.core.files import write_atomically
from widefield.core.hardware import choose_device, machine
from widefield.data import Dataset, open_dataset
from widefield.data.open import Data
from widefield.encoders import Encoder, Projected
from widefield.methods import load_projector
from widefield.probes import Score, score
from widefield.train.step import StepMetrics
from widefield.workflows.pretrain import pretrain

VALIDATION = 3000  # images

Run = dict[str, Any]
"""What is kept of a run: plain JSON values."""


class Results:
    """Finished runs by name, in a JSON file that several processes may add to.

    The file names the machine of its first run; a run that was made on another names that.

    Args:
        path: the file; it is rewritten after every run, and never half written.
        summary: computes the rest of the file from all its runs.
    """

    def __init__(self, path: Path, summary: Callable[[dict[str, Run]], dict[str, Any]]) -> None:
        self.path, self.summary = path, summary
        self.machine = machine(choose_device("auto"))
        self.runs = self._read().get("runs", {})

    def __contains__(self, name: str) -> bool:
        return name in self.runs

    def add(self, name: str, run: Run) -> None:
        """Keep a run."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path.parent):
            kept = self._read()
            first = kept.get("machine", self.machine)
            here = {} if first == self.machine else {"machine": self.machine}
            self.runs = kept.get("runs", {}) | {name: run | here}
            report = {
                "machine": first,
                "threads": torch.get_num_threads(),
                **self.summary(self.runs),
                "runs": self.runs,
            }
            write_text(self.path, json.dumps(report, indent=1) + "\n")

    def _read(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        return content


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder, which one process at a time can have."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Replace the content of a file in one step."""

    def write(draft: Path) -> None:
        draft.write_text(text)

    write_atomically(path, write)


@dataclass(frozen=True, kw_only=True)
class Trained:
    """An encoder and what its epochs cost; other work on the machine adds no processor time."""

    encoder: Encoder
    projected: nn.Module | None
    """The encoder with its projector, if the method has one."""
    effective_rank: float
    processor_seconds: float
    wall_seconds: float


def train(
    data: Data, *, encoder: str = "resnet-tiny", out: Path | None = None, **settings: Any
) -> Trained:
    """Pretrain an encoder on `data` from start to end; Ctrl-C and SIGTERM end the program.

    The run stays in the folder `out`, if one is given.
    """
    clocks: list[tuple[float, float]] = []

    def look_at_clocks(_: StepMetrics | None = None) -> None:
        clocks.append((time.process_time(), time.monotonic()))

    with tempfile.TemporaryDirectory() as folder:
        look_at_clocks()
        done = pretrain(
            data,
            out=out or Path(folder) / "run",
            encoder=encoder,
            checkpoint_every=10_000,
            health_every=10_000,
            quiet=True,
            on_epoch=look_at_clocks,
            **settings,
        )
        processor, wall = (end - began for began, end in zip(clocks[0], clocks[-1], strict=True))
        projector = load_projector(done.run)
        return Trained(
            encoder=done.encoder,
            projected=projector and Projected(done.encoder, projector),
            effective_rank=round(done.health.effective_rank, 1),
            processor_seconds=round(processor, 2),
            wall_seconds=round(wall, 1),
        )


def scores(
    features: Callable[[np.ndarray], Tensor],
    train_set: Dataset,
    test_set: Dataset,
    *,
    pooled: int | None = None,
) -> dict[str, Score]:
    """Scores of every task's probes on frozen features of both sets; `pooled` of wide ones."""
    device = choose_device("auto")
    train_y, test_y = (
        {task: torch.from_numpy(y).to(device) for task, y in d.labels.items()}
        for d in (train_set, test_set)
    )
    classes = {task: len(names) for task, names in train_set.classes.items()}
    train_h, test_h = (features(d.images).to(device) for d in (train_set, test_set))
    return score(train_h, train_y, test_h, test_y, classes=classes, pooled=pooled)


def accuracies(
    features: Callable[[np.ndarray], Tensor],
    train_set: Dataset,
    test_set: Dataset,
    *,
    pooled: int | None = None,
) -> dict[str, float]:
    """Accuracy of every task's linear probe on frozen features of both sets."""
    read = scores(features, train_set, test_set, pooled=pooled)
    return {task: round(s.accuracy, 4) for task, s in read.items()}


def validation_sets(
    train_file: Path, plant: str, max_examples: int, seed: int, *, image_size: int | None = None
) -> tuple[Dataset, Dataset]:
    """Training images, and further ones of the same file that no run trains on, for choices."""
    opened = partial(open_dataset, f"{train_file}{plant}", seed=seed, image_size=image_size)
    train_set = opened(max_examples=max_examples)
    more = opened(max_examples=max_examples + VALIDATION, held_out=True)
    trained_on = set(train_set.paths)
    others = np.flatnonzero([path not in trained_on for path in more.paths])
    assert len(others) == VALIDATION
    return train_set, more.subset(others)
