"""What a training step costs beside the bare encoder: views, head and loss included.

    python -m benchmarks.ratios.step --encoder resnet-tiny --methods simclr \
        --into benchmarks/results/bench_step/resnet-tiny

`--into` writes a file for each method: the ratio of its step to the bare encoder's, both measured
in one process, with the machine and versions of that measurement.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from tempfile import TemporaryFile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from widefield.config.recipe import Recipe
from widefield.config.recipes import make_recipe
from widefield.core.hardware import choose_device
from widefield.core.names import check_name
from widefield.core.types import Batch
from widefield.data import Dataset, Loader, open_dataset
from widefield.encoders import Encoder, EncoderSettings, build_encoder
from widefield.head import PerExampleHead, RowState
from widefield.methods import METHODS
from widefield.train.build import DataInfo, build, check_view_policy
from widefield.train.distributed import single_process
from widefield.train.step import TrainStep

from .command import Result, command
from .timing import TOLERANCE, steady_ratio, turn_by_turn

TEACHER_DIM = 768
"""Width of the features of a teacher, as of a base vision transformer."""


def bench(
    *,
    encoder: str = "auto",
    batch_size: int = 256,
    image_size: int = 32,
    rows: int = 10_000,
    rounds: int = 15,
    methods: list[str] | None = None,
    views: str = "expert",
    tolerance: float = TOLERANCE,
) -> Result:
    """Measure seconds per step of the bare encoder and of each method, turn by turn in one process.

    On a CPU they are seconds of the processor, summed over threads.
    Bare is forward, backward and AdamW on a ready tensor. The methods draw their views from
    uint8 images and use their heads, as in training, at the sizes of their default recipes; every
    row of a per-example head has been visited, so that its missed steps have to be replayed.
    Features of a teacher are read from a file. Views that learn take their own step too. `methods`
    are all, with the variants that they declare, unless said otherwise.

    Returns:
        `ratios`: median of the rounds' own ratios to the bare step; `values`: median seconds.

    Raises:
        ValueError: an unknown name, views that do not fit a method, or a ratio that differs by
            more than `tolerance` between the halves of the rounds.
    """
    device = choose_device("auto")
    encoder = EncoderSettings(name=encoder).resolved(device).name
    dataset = random_images(rows, image_size)
    loader = Loader(dataset, batch_size=batch_size, device=device)
    steps = {"bare": bare_step(encoder, loader, device)}
    known = contestants()
    methods = methods or list(known)
    for name in methods:
        check_name("method", name, known)
        recipe = make_recipe(views=views, encoder=encoder, batch_size=batch_size, **known[name])
        steps[name] = method_step(recipe, loader, dataset, device)
    # On a CPU the time of the processor, which other work on the machine hardly changes.
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    seconds = turn_by_turn(steps, rounds, device, clock)
    return {
        "ratios": {
            f"{name}/bare": steady_ratio(f"{name}/bare", seconds[name], seconds["bare"], tolerance)
            for name in methods
        },
        "values": {f"{name}_seconds": statistics.median(times) for name, times in seconds.items()}
        | {"encoder": encoder, "batch_size": batch_size, "image_size": image_size, "rows": rows}
        | {"views": views},
    }


def _fresh_encoder(name: str, loader: Loader, device: torch.device) -> Encoder:
    image_size = next(iter(loader.epoch(0))).x.shape[-1]
    encoder = build_encoder(name, image_size=image_size, seed=0).to(device)
    return encoder.to(memory_format=torch.channels_last)


def bare_step(name: str, loader: Loader, device: torch.device) -> Callable[[], None]:
    """Return a step of the encoder alone: forward, backward and AdamW on a ready batch."""
    compute = single_process(device)
    encoder = _fresh_encoder(name, loader, device)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3, fused=True)
    x = next(iter(loader.epoch(0))).x

    def step() -> None:
        with compute.autocast():
            features = encoder(*compute.cast([x]))
        features.float().square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def contestants() -> dict[str, dict[str, Any]]:
    """Return the settings of every method, and of every variant that a method declares."""
    table: dict[str, dict[str, Any]] = {}
    for name, settings in METHODS.items():
        table[name] = {"method": name}
        for variant, changes in settings.step_variants.items():
            table[f"{name}-{variant}"] = {"method": name, **changes}
    return table


def method_step(
    recipe: Recipe, loader: Loader, dataset: Dataset, device: torch.device
) -> Callable[[], None]:
    """Return a training step of a recipe, views and reading included."""
    labels = {"class": torch.arange(len(dataset)) % 10}
    facts = replace(DataInfo.of(dataset), labels=labels)
    targets = _targets_on_disk(len(dataset)) if recipe.method.name == "distill" else None
    state = build(replace(recipe, epochs=100), facts, device=device, targets=targets)
    check_view_policy(state.views, state.method, dataset, recipe.views.names)
    for head in state.heads:
        _visit_every_row(head, loader.steps_per_epoch)
    train_step, batches = TrainStep(state, compute=single_process(device)), _endless(loader)

    def step() -> None:
        train_step(next(batches))

    return step


def _targets_on_disk(examples: int) -> NDArray[np.float16]:
    """Return features of a teacher in a file, as a run maps them."""
    with TemporaryFile() as file:  # which stays as long as it is mapped
        rows = np.memmap(file, np.float16, "w+", shape=(examples, TEACHER_DIM))
    rows[:] = np.random.default_rng(0).standard_normal(rows.shape)
    rows.flush()
    return rows


def _visit_every_row(head: PerExampleHead, steps: int) -> None:
    """Bring rows to where a first epoch leaves them: all have momentum and steps to catch up on."""
    assert head.optimizer is not None
    for _ in range(steps):
        head.optimizer.step()
    rows = torch.arange(head.examples)
    state = head.storage.read(rows)
    m, v = torch.full_like(state.m, 1e-3), torch.full_like(state.v, 1e-6)
    head.storage.write(rows, RowState(state.row, m, v, 1 + rows % steps))


def _endless(loader: Loader) -> Iterator[Batch]:
    epoch = 0
    while True:
        yield from loader.epoch(epoch)
        epoch += 1


def split(result: Result) -> dict[str, Result]:
    """Return, for each method, the part of a result that is about it and the bare encoder."""
    names = [ratio.removesuffix("/bare") for ratio in result["ratios"]]
    parts = {}
    for name in names:
        others = {f"{other}_seconds" for other in names if other != name}
        parts[name] = {
            "ratios": {f"{name}/bare": result["ratios"][f"{name}/bare"]},
            "values": {key: v for key, v in result["values"].items() if key not in others},
            "machine": result["machine"],
        }
    return parts


def random_images(count: int, size: int) -> Dataset:
    """Return images of random pixels, `count` of `size` x `size`."""
    shape = (count, size, size, 3)
    return open_dataset(np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8))


if __name__ == "__main__":
    command(bench, split)
