"""What the processes of a run exchange in a step, and how long they wait for each other.

    python benchmarks/processes.py --json benchmarks/results/processes.json

Bytes are computed from the model; a test compares them with those that collective operations carry.
On the CPU, with one thread for each process, `idle` is the share of the cores' time in which no
process computes, and `waiting` the share of a step in which a process sleeps until others answer.
It needs Linux.
"""

import argparse
import json
import os
import socket
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import multiprocessing

from widefield.config.recipes import make_recipe
from widefield.core.cpus import available_cpus
from widefield.core.hardware import choose_device, machine
from widefield.methods import METHODS
from widefield.methods.base import Method
from widefield.methods.head_method import HeadMethod
from widefield.methods.lejepa import LeJEPA
from widefield.methods.moco import MoCo
from widefield.methods.pair import PairLoss
from widefield.train.build import DataInfo, build
from widefield.train.state import TrainState
from widefield.train.step import StepMetrics
from widefield.workflows.pretrain import pretrain

EXAMPLES, BATCH_SIZE, ENCODER = 50_000, 256, "resnet18"
"""Of the table of bytes, for images of 32 pixels."""
WORLDS = (1, 2, 4)
EPOCH, EPOCHS = 2048, 16
"""Examples of the runs that are timed, and their epochs."""
TEACHER_DIM = 768


@dataclass(frozen=True)
class StepBytes:
    """What each process receives in a step, in bytes."""

    gradients: int
    """All-reduced by DistributedDataParallel, while the backward pass goes on."""
    buffers: int
    """Running statistics, queues and directions of rank 0, broadcast before the forward pass."""
    gathered: int
    """Features and rows of all examples of a batch, with `gather_distributed`."""
    gathered_gradients: int
    """Their gradients, all-reduced in the backward pass."""


def step_bytes(state: TrainState, batch_size: int) -> StepBytes:
    """Return the bytes of a step on `batch_size` examples, over all processes."""
    model, method = state.model, state.method
    trained, others = (batch_size * width for width in _gathered_widths(method))
    return StepBytes(
        gradients=sum(p.nbytes for p in model.parameters() if p.requires_grad),
        buffers=sum(buffer.nbytes for buffer in model.buffers()),
        gathered=trained + others,
        gathered_gradients=trained,
    )


def _gathered_widths(method: Method) -> tuple[int, int]:
    """Return the bytes of an example that are gathered with gradient, and without."""
    if isinstance(method, MoCo):  # queries; keys and their index
        width = 4 * method.queue.shape[1]
        return (width, width + 8) if method.gather_distributed else (0, width + 8)
    if isinstance(method, HeadMethod) and method.head.gather_distributed:
        width = 4 * method.head.storage.dim  # z and rows; the second view
        return 2 * width, (method.view_count - 1) * width
    if isinstance(method, PairLoss | LeJEPA) and method.gather_distributed:
        *_, last = (part for part in method.projector.modules() if hasattr(part, "out_features"))
        return 2 * 4 * last.out_features, 0
    return 0, 0


def bytes_by_method() -> Iterator[dict[str, Any]]:
    """Yield the bytes of a step of each method at its default settings, gathered where it can."""
    labels = {"class": torch.arange(EXAMPLES) % 10}
    data = DataInfo(examples=EXAMPLES, image_size=32, labels=labels)
    targets = np.zeros((EXAMPLES, TEACHER_DIM), np.float16)
    for name in METHODS:
        recipe = make_recipe(method=name, encoder=ENCODER, batch_size=BATCH_SIZE, epochs=1)
        can_gather = "gather_distributed" in recipe.flat()
        if can_gather:
            recipe = recipe.changed({"gather_distributed": True})
        state = build(recipe, data, device=torch.device("cpu"), targets=targets)
        yield {"method": name, "gathers": can_gather, **vars(step_bytes(state, BATCH_SIZE))}
        state.close()


def times(world: int) -> dict[str, Any]:
    """Return the speed of `world` processes, their processor seconds, and how long they are idle.

    Other programs on the machine only add to what looks idle, so the epoch with the least is taken.
    """
    with tempfile.TemporaryDirectory(prefix="widefield-processes-") as name:
        folder = Path(name)
        pixels = np.random.default_rng(0).integers(0, 256, (EPOCH, 32, 32, 3), dtype=np.uint8)
        np.savez(folder / "images.npz", x=pixels)
        multiprocessing.spawn(_train, (world, _free_port(), folder), nprocs=world)
        ranks = [json.loads((folder / f"{rank}.json").read_text()) for rank in range(world)]
    marks = np.array(ranks)  # [world, epochs, 4]
    wall, cpu, ran, queued = np.moveaxis(np.diff(marks, axis=1), 2, 0)
    idle = 1 - cpu.sum(0) / (wall[0] * min(world, available_cpus()))
    waiting = (1 - (ran + queued) / wall).mean(0)
    best = int(idle.argmin())
    return {
        "processes": world,
        "images_per_second": EPOCH / float(wall[0, best]),
        "processor_ms_per_image": 1000 * float(np.median(cpu.sum(0))) / EPOCH,
        "idle": float(idle[best]),
        "waiting": float(waiting[best]),
    }


def _train(rank: int, world: int, port: int, folder: Path) -> None:
    """Train as a rank, and write its clocks after each epoch but the first."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(world)}
    os.environ |= {"LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(world)}
    marks: list[tuple[float, ...]] = []

    def mark(metrics: StepMetrics) -> None:
        if metrics.step % (EPOCH // BATCH_SIZE) == 1:
            marks.append(_clocks())

    pretrain(
        folder / "images.npz",
        out=folder / "run",
        method="row-contrast",
        gather_distributed=True,
        encoder="resnet-tiny",
        batch_size=BATCH_SIZE,
        epochs=EPOCHS,
        threads=1,
        quiet=True,
        health_every=EPOCHS,
        checkpoint_every=EPOCHS,
        on_step=mark,
    )
    (folder / f"{rank}.json").write_text(json.dumps(marks[1:]))


def _clocks() -> tuple[float, ...]:
    """Return the seconds of the clock, of this process, of this thread, and of its queueing."""
    ran, queued, _ = map(int, Path("/proc/thread-self/schedstat").read_text().split())
    return time.perf_counter(), time.process_time(), ran / 1e9, queued / 1e9


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def main() -> None:
    """Compute the bytes, measure the times, and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    result = {
        "encoder": ENCODER,
        "examples": EXAMPLES,
        "batch_size": BATCH_SIZE,
        "bytes": list(bytes_by_method()),
        "times": [times(world) for world in WORLDS],
        "machine": machine(choose_device("cpu")),
    }
    args.json.write_text(json.dumps(result, indent=1) + "\n")
    print(args.json.read_text())


if __name__ == "__main__":
    main()
