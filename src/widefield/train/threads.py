"""The number of CPU threads of a training: the fastest one, from a short trial.

Where other programs run, or steps are small, fewer threads than cores can be several times as fast.
The number can change the last bits of sums, so a run keeps the one that it began with.
"""

import copy
import itertools
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from rich.console import Console
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from widefield.config.recipe import Recipe
from widefield.core.cpus import usable_cpus
from widefield.core.types import Batch
from widefield.data import Dataset, steps_per_epoch
from widefield.encoders import Encoder
from widefield.train.distributed import DistributedContext
from widefield.train.run import PretrainRun
from widefield.train.run_dir import RunFolder
from widefield.train.step import TrainStep

MIN_STEPS = 200
"""Runs of fewer steps are not worth a trial."""
_TRIAL_STEPS, _TRIAL_SECONDS = 5, 1.0
"""Most steps that are timed for each number of threads, and after how long no other one is."""
_TRIAL_EPOCHS = 100
"""Epochs of the run whose steps are timed, more than the trial takes."""


@contextmanager
def limited_threads(count: int) -> Iterator[None]:
    """Let torch and every BLAS and OpenMP library compute with at most `count` threads.

    Example:
        >>> with limited_threads(1):
        ...     torch.get_num_threads()
        1
    """
    before = torch.get_num_threads()
    with threadpool_limits(count):
        torch.set_num_threads(count)
        try:
            yield
        finally:
            torch.set_num_threads(before)


def check_threads(threads: int | None) -> None:
    """Check that there are as many cores.

    Raises:
        ValueError: there are fewer, or `threads` is below 1.
    """
    most = usable_cpus()
    if threads is not None and not 1 <= threads <= most:
        raise ValueError(f"threads is {threads}; expected 1 to {most}, the cores of this process")


def fastest(step: Callable[[], object], most: int) -> int:
    """Return with how many threads, 1 to `most`, `step` takes the least time.

    Numbers are doubled, so that few are tried. The first step with each is not timed.

    Example:
        >>> fastest(lambda: None, most=1)
        1
    """
    counts = [2**i for i in range(most.bit_length()) if 2**i < most] + [most]
    if len(counts) == 1:
        return most
    seconds = {}
    for count in counts:
        with limited_threads(count):
            step()
            seconds[count] = min(_timed(step))
    return min(seconds, key=seconds.__getitem__)


def fastest_for(encoder: nn.Module, x: Tensor) -> int:
    """Return with how many threads a training step of `encoder` on images x takes the least time.

    The encoder is not changed. On a GPU it is the number that torch has.

    Example:
        >>> count = fastest_for(nn.Linear(4, 2), torch.ones(8, 4))
        >>> 1 <= count <= usable_cpus()
        True
    """
    most = min(torch.get_num_threads(), usable_cpus())
    if most == 1 or x.device.type != "cpu":
        return most
    trial = copy.deepcopy(encoder).train()
    with torch.random.fork_rng():
        return fastest(lambda: trial(x).square().mean().backward(), most)


def _timed(step: Callable[[], object]) -> Iterator[float]:
    """Yield the seconds of some steps."""
    began = time.perf_counter()
    for _ in range(_TRIAL_STEPS):
        start = time.perf_counter()
        step()
        now = time.perf_counter()
        yield now - start
        if now - began > _TRIAL_SECONDS:
            return


def choose_threads(
    recipe: Recipe, dataset: Dataset, initial: Encoder | None, ranks: DistributedContext
) -> int:
    """Return the number of threads for a run on `dataset`, from trial steps of another one.

    It is that of torch on a GPU, with several processes, for a student of teachers, whose features
    are not there yet, and for short runs.
    """
    most = min(torch.get_num_threads(), usable_cpus())
    per_epoch = steps_per_epoch(len(dataset), recipe.batch_size, drop_last=recipe.drop_last)
    is_short = recipe.epochs * per_epoch < MIN_STEPS
    on_cpu = ranks.compute.device.type == "cpu" and ranks.shard.world == 1
    if most == 1 or is_short or not on_cpu or "teacher" in recipe.method.flat():
        return most
    few = dataset.subset(slice(0, 2 * recipe.batch_size))
    trial = replace(recipe, epochs=_TRIAL_EPOCHS, warmup_steps=None, compile="none")
    with tempfile.TemporaryDirectory(prefix="widefield-trial-") as folder, torch.random.fork_rng():
        console = Console(stderr=True, quiet=True)
        run = PretrainRun(trial, few, RunFolder(path=Path(folder)), console, ranks, initial)
        with closing(run):
            take, batches = TrainStep(run.state, compute=ranks.compute), _batches(run)
            return fastest(lambda: take(next(batches)), most)


def _batches(run: PretrainRun) -> Iterator[Batch]:
    """Yield batches of one epoch after the other, whose rows are read ahead."""
    for epoch in itertools.count():
        order = [torch.from_numpy(index) for index in run.loader.order(epoch)]
        for head in run.state.heads:
            head.storage.prefetch(order)
        yield from run.loader.epoch(epoch)
