"""What the per-example head costs: a step at four sizes, and the bare store beside a memory map.

    python -m benchmarks.ratios.head --encoder resnet-tiny \
        --json benchmarks/results/bench_head_resnet-tiny.json
"""

import statistics
import tempfile
import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from widefield.config.recipe import Recipe
from widefield.config.recipes import make_recipe
from widefield.core.hardware import choose_device, host_memory
from widefield.core.types import Batch
from widefield.encoders import Encoder, EncoderSettings
from widefield.head import DiskStorage, MemoryStorage, RowState, Storage
from widefield.methods import DietConfig, RowContrastConfig
from widefield.train.build import DataInfo, build
from widefield.train.distributed import single_process
from widefield.train.step import TrainStep

from .command import Result, command

SIZES = (10**4, 10**5, 10**6, 10**7)
_VISITED_AT, _NOW = 1, 1000  # steps: rows were last seen long enough ago to replay every term
_WARM_UP = 2


def bench(
    *,
    encoder: str = "auto",
    batch_size: int = 256,
    image_size: int = 32,
    dim: int = 128,
    rounds: int = 8,
    sizes: tuple[int, ...] = SIZES,
) -> Result:
    """Measure seconds per training step with n rows of width `dim` on disk, for every n of `sizes`.

    All sizes take turns in one process, as do the first size's rows in host memory. DIET's dense
    head takes part where the head and its logits, with a gradient and two moments each, need less
    than 25 % of the memory. Every row used was visited long ago and is written for the first time
    since a checkpoint, so that each step replays missed steps and journals what it overwrites.
    Images are the same at every step.

    Returns:
        `ratios`: medians over the rounds of `step@1e7/step@1e4` (last and first size) and
        `disk/host`; `bytes@1e7/bytes@1e4` on the device; and `store/memmap`, the bare store's
        rows per second over those of a plain memory map;
        `values`: the settings, the step with rows in host memory, and `diet_limit_bytes`, that
        quarter;
        `table`: median seconds and bytes on the device by n, for DIET None where it does not fit.
    """
    device = choose_device("auto")
    encoder = EncoderSettings(name=encoder).resolved(device).name
    settings: dict[str, Any] = {
        "encoder": encoder,
        "batch_size": batch_size,
        "image_size": image_size,
    }
    first, last = sizes[0], sizes[-1]
    is_gpu = device.type == "cuda"
    diet_limit = (torch.cuda.mem_get_info(device)[1] if is_gpu else host_memory()) // 4
    rows: dict[str, Any] = {"method": RowContrastConfig.name, "projector_dim": dim, **settings}
    on_disk = make_recipe(head_storage="disk", **rows)
    on_host = make_recipe(head_storage="host", **rows)
    dense = make_recipe(method=DietConfig.name, **settings)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="widefield-bench-")))
        disk = {n: _Run(on_disk, n, device, rounds, folder / str(n)) for n in sizes}
        host = _Run(on_host, first, device, rounds, folder)
        diet = {
            n: _Run(dense, n, device, rounds, folder)
            for n in sizes
            if _dense_bytes(n, disk[n], batch_size) < diet_limit
        }
        runs = (*disk.values(), host, *diet.values())
        for run in runs:
            stack.enter_context(closing(run))
        for _ in range(rounds):
            for run in runs:
                run.step()
        store = _store_over_memmap(folder, batch_size, dim)
    return {
        "ratios": {
            f"step@{_power(last)}/step@{_power(first)}": disk[last].median_over(disk[first]),
            "disk/host": disk[first].median_over(host),
            f"bytes@{_power(last)}/bytes@{_power(first)}": (
                disk[last].device_bytes() / disk[first].device_bytes()
            ),
            "store/memmap": store,
        },
        "values": {
            **settings,
            "projector_dim": dim,
            "host_seconds": host.median(),
            "host_bytes": host.device_bytes(),
            "diet_limit_bytes": diet_limit,
        },
        "table": [_row(n, disk[n], diet.get(n)) for n in sizes],
    }


class _Run:
    """A training run in its middle, one step at a time."""

    def __init__(
        self, recipe: Recipe, n: int, device: torch.device, rounds: int, folder: Path
    ) -> None:
        self.device, self.seconds, self.peak = device, list[float](), 0
        size, steps = recipe.image_size or 32, rounds + _WARM_UP
        facts = DataInfo(examples=n, image_size=size, labels={})
        self.state = build(replace(recipe, epochs=1), facts, device=device, folder=folder)
        order = _spread(n, steps, recipe.batch_size)
        for head in self.state.heads:
            _visit(head.storage, order)
            assert head.optimizer is not None
            for _ in range(_NOW):
                head.optimizer.step()
            head.storage.prefetch(order)
        pixels = torch.rand(recipe.batch_size, 3, size, size, device=device)
        self.batches = (Batch(x=pixels, index=index) for index in order)
        self.train_step = TrainStep(self.state, compute=single_process(device))
        for _ in range(_WARM_UP):
            self.step()
        self.seconds.clear()

    def step(self) -> None:
        """Take one step, and note its time and, on CUDA, how much memory it needed besides."""
        cuda = self.device.type == "cuda"
        if cuda:
            torch.cuda.reset_peak_memory_stats(self.device)
            before = torch.cuda.memory_allocated(self.device)
        began = time.perf_counter()
        self.train_step(next(self.batches))
        if cuda:
            torch.cuda.synchronize(self.device)
            self.peak = torch.cuda.max_memory_allocated(self.device) - before
        self.seconds.append(time.perf_counter() - began)

    def median(self) -> float:
        """Seconds per step."""
        return statistics.median(self.seconds)

    def median_over(self, other: "_Run") -> float:
        """Median of the rounds' own ratios."""
        return statistics.median(a / b for a, b in zip(self.seconds, other.seconds, strict=True))

    def device_bytes(self) -> int:
        """Weights, optimizer state and head on the device; on CUDA the step's own peak besides."""
        model = self.state.model
        held = [*model.parameters(), *model.buffers()]
        for entry in self.state.optimizer.state.values():
            held += [x for x in entry.values() if isinstance(x, Tensor)]
        for storage in (head.storage for head in self.state.heads):
            if isinstance(storage, MemoryStorage):
                held += [storage.row, storage.m, storage.v]
        return self.peak + sum(x.nbytes for x in held if x.device.type == self.device.type)

    def close(self) -> None:
        """Let go of the rows."""
        self.state.close()


def _row(n: int, disk: _Run, diet: _Run | None) -> dict[str, Any]:
    """Return seconds and bytes at n examples, for DIET None where it took no part."""
    return {
        "n": n,
        "disk_seconds": disk.median(),
        "disk_bytes": disk.device_bytes(),
        "diet_seconds": None if diet is None else diet.median(),
        "diet_bytes": None if diet is None else diet.device_bytes(),
    }


def _spread(n: int, steps: int, batch_size: int) -> list[Tensor]:
    """Distinct examples for each step, from all over the n."""
    count = steps * batch_size
    if count > n:
        raise ValueError(f"{steps} steps of {batch_size} need {count} rows, and there are {n}")
    generator = torch.Generator().manual_seed(0)
    stretch = n // count
    examples = torch.arange(count) * stretch
    examples += torch.randint(stretch, (count,), generator=generator)
    return list(examples[torch.randperm(count, generator=generator)].reshape(steps, batch_size))


def _visit(storage: Storage, batches: list[Tensor]) -> None:
    """Let the rows be as after one visit, long ago, and begin a generation of the journal."""
    for index in batches:
        row = torch.rand(len(index), storage.dim)
        last = torch.full((len(index),), _VISITED_AT)
        storage.write(index, RowState(row, 0.1 * row, 0.01 * row, last))
    storage.state_dict()
    storage.remove_old()


def _dense_bytes(n: int, run: _Run, batch_size: int) -> int:
    """Return the bytes of DIET's head and logits, each with its gradient and two moments' room."""
    encoder = run.state.encoder
    assert isinstance(encoder, Encoder)
    return 4 * 4 * n * (encoder.dim + batch_size)


def _power(n: int) -> str:
    """10000 -> 1e4."""
    return f"{n:.0e}".replace("+0", "")


def _store_over_memmap(folder: Path, batch_size: int, dim: int, rounds: int = 40) -> float:
    """Rows per second read and written by the store, over those of a plain memory map."""
    n = 4 * rounds * batch_size
    batches = _spread(n, rounds, batch_size)
    with closing(DiskStorage(folder / "bare", n, dim, seed=0)) as store:
        for _ in range(3):  # as in the middle of a run: journals take over the files of older ones
            _visit(store, batches)
        states = [store.read(index) for index in batches]
        records = [torch.cat([s.row, s.m, s.v], dim=1).numpy() for s in states]
        began = time.perf_counter()
        store.prefetch(batches)
        for index, state in zip(batches, states, strict=True):
            store.read(index)
            store.write(index, replace(state, last=state.last + _NOW))
        store.flush()
        ours = time.perf_counter() - began
    plain = np.memmap(folder / "plain.bin", np.float32, mode="w+", shape=(n, 3 * dim))
    for index, record in zip(batches, records, strict=True):
        plain[index.numpy()] = record
    plain.flush()  # both begin with clean pages, as after a checkpoint
    began = time.perf_counter()
    for index, record in zip(batches, records, strict=True):
        plain[index.numpy()]
        plain[index.numpy()] = record
    return (time.perf_counter() - began) / ours


if __name__ == "__main__":
    command(bench)
