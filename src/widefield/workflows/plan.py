"""Estimate of memory and time of a run, from a few trial steps."""

import math
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TypeVar, Unpack

import torch
from rich.console import Console

from widefield.config.arguments import RecipeArguments
from widefield.config.recipe import Recipe
from widefield.core.devices import eval_mode
from widefield.core.errors import input_errors, option
from widefield.core.hardware import limited_threads
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import Batch, OnNote, Part
from widefield.data import open_dataset, steps_per_epoch
from widefield.data.source import Data
from widefield.encoders import layer_names
from widefield.inference.features import send_notes
from widefield.train.compute import check_threads
from widefield.train.run import Prepared, PretrainRun
from widefield.train.run_dir import RunFolder
from widefield.train.step import TrainStep, set_learning_rate
from widefield.workflows.plan_examples import plan_examples
from widefield.workflows.planned import (
    Plan,
    Way,
    optimizer_state,
    parts_of_state,
    saved_bytes,
    total_bytes,
    weights_of,
)
from widefield.workflows.start import check_settings, join_ranks

T = TypeVar("T")

# The trial was made longer until estimates were within 15 % of the duration of runs in turn: a
# dozen steps of 0.1 s say little where the speed of a machine drifts.
STEPS_PER_ROUND = 6
"""Batches of a round; from the second round on every row was updated before."""
# Chosen by hand.
MAX_ROUNDS = 40
TRIAL_SECONDS = 2.5
"""Duration of timed steps: a few short ones vary too much."""
# Chosen by hand, above the 172 steps after which momentum is below rounding (head/lazy_adamw.py).
IDLE_STEPS = 200
"""Steps that a row misses between rounds, or those of an epoch if fewer: the longest catch-up."""


@input_errors
@describe_arguments
def plan(
    data: Data | None = None,
    *,
    examples: float | None = None,
    minutes: float | None = None,
    recipe: str | Recipe = "default",
    group: str | None = None,
    download: bool = False,
    threads: int | None = None,
    on_note: OnNote | None = None,
    **settings: Unpack[RecipeArguments],
) -> Plan:
    """Estimate memory and time of `pretrain` with the same options, from a few trial steps.

    With `examples` in place of data, no step is timed.

    Args:
        data: images or sounds, as for `pretrain`; left out with `examples`.
        examples: number of images, such as 1e8, to plan for without data. Times are lower bounds
            for the device a100, h100, h200 or l4, and not known for others.
        minutes: time to train. The result has the epochs that fit into it; of initial weights also
            those of their last layer alone, and the time that their features take untrained.
        recipe: name of a recipe: default, s-diet-paper, feature-dropout or solo-learn. In Python
            also a whole one.
        group: examples that belong together, as for `pretrain`.
        download: fetch the published weights of `init` and of teachers, and `hf:` data, if they are
            missing.
        threads: CPU threads, as for `pretrain`.
        **settings: settings of the run, its method and its views to change.

    Raises:
        ValueError: invalid input; the message names the remedy.

    Example:
        >>> ahead = plan("photos", max_examples=64, batch_size=16, projector_dim=32)
        >>> ahead.parts["head"], ahead.parts["moments"].bytes, ahead.steps_per_epoch
        (Part(bytes=8192, place='host'), 16384, 4)
    """
    check_threads(threads)
    if examples is not None:
        if data is not None:
            raise ValueError(
                f"{option('examples')} plans without data: give DATA, or {option('examples')}"
            )
        if minutes is not None:
            raise ValueError(f"{option('minutes')} is for data: give DATA, as no step is timed")
        return plan_examples(examples, recipe, settings)
    if minutes is not None and not 0 < minutes < math.inf:
        raise ValueError(f"{option('minutes')} must be above 0, not {minutes:g}")
    if data is None:
        raise ValueError(
            f"there is nothing to plan for: give DATA, or {option('examples')}, such as 1e8"
        )
    checked = check_settings(data, recipe, settings, download=download)
    ranks = join_ranks(checked.recipe)
    dataset = open_dataset(data, **checked.recipe.data_options(), group=group)
    prepared = checked.prepared(dataset, ranks, threads=threads)
    with (
        tempfile.TemporaryDirectory(prefix="widefield-plan-") as folder,
        torch.random.fork_rng(),
        limited_threads(prepared.threads),
    ):
        trial = _Trial(prepared, RunFolder(path=Path(folder) / "all"))
        with closing(trial.run):
            send_notes(prepared.notes, on_note)  # after what may refuse the settings
            found = trial.plan()
            if minutes is None:
                return found
            ways = [Way.of("all layers", found.epoch_seconds, found, minutes)]
            if prepared.initial is None:
                return replace(found, minutes=minutes, ways=tuple(ways))
            features = Way(name="none, features of the weights", seconds=trial.feature_seconds())
            layers = len(layer_names(trial.run.encoder))
        last = replace(prepared, recipe=replace(prepared.recipe, freeze_blocks=layers - 1))
        trial = _Trial(last, RunFolder(path=Path(folder) / "last"))
        with closing(trial.run):
            seconds = trial.epoch_seconds()
        prefix = option("freeze_blocks", layers - 1)
        ways = [features, Way.of("the last layer", seconds, found, minutes, prefix), *ways]
        return replace(found, minutes=minutes, ways=tuple(ways))


class _Trial:
    """A few steps of a run."""

    def __init__(self, prepared: Prepared, folder: RunFolder) -> None:
        self.prepared, self.recipe, self.dataset = prepared, prepared.recipe, prepared.dataset
        size = self.recipe.batch_size
        self.steps_per_epoch = steps_per_epoch(
            len(self.dataset), size, drop_last=self.recipe.drop_last
        )
        self.idle_steps = min(IDLE_STEPS, self.steps_per_epoch)
        # The duration of a step with rows does not depend on their number, so a few suffice.
        few = replace(prepared, dataset=self.dataset.subset(slice(0, STEPS_PER_ROUND * size)))
        self.run = self._run(few, folder)
        if not self.run.state.heads and len(few.dataset) < len(self.dataset):
            self.run = self._run(prepared, folder)
        self.run.monitor.dataset = self.dataset  # for its health check
        self.device, self.loader = prepared.ranks.compute.device, self.run.loader

    def _run(self, prepared: Prepared, folder: RunFolder) -> PretrainRun:
        """Build a run with enough epochs for the trial."""
        steps = MAX_ROUNDS * (STEPS_PER_ROUND + self.idle_steps)
        epochs = 1 + steps // max(1, len(prepared.dataset) // self.recipe.batch_size)
        prepared = replace(prepared, recipe=replace(self.recipe, epochs=epochs))
        return PretrainRun(prepared, folder, Console(stderr=True, quiet=True))

    def plan(self) -> Plan:
        """Take the steps, and return the estimate."""
        activations, seconds = self._steps()
        self.run.monitor.check_health()  # its batches may be larger than those of training
        state = self.run.state
        parts = {
            "data": Part(bytes=self.dataset.images.nbytes, place=self.loader.storage),
            **parts_of_state(state, len(self.dataset), state_examples=len(self.dataset)),
            "activations": Part(bytes=activations, place="device"),
        }
        on_device = sum(p.bytes for p in parts.values() if p.place == "device")
        # Linux counts kilobytes.
        host = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        process_memory = ("host",) if self.device.type == "cuda" else ("host", "device")
        if state.heads and parts["head"].place in process_memory:
            host += parts["head"].bytes + parts["moments"].bytes  # the trial had few rows
        return Plan(
            recipe=self.recipe,
            examples=len(self.dataset),
            steps_per_epoch=self.steps_per_epoch,
            parts=parts,
            host_bytes=host,
            device_bytes=on_device,
            epoch_seconds=seconds * self.steps_per_epoch,
            threads=self.prepared.threads,
            notes=self.prepared.notes,
        )

    def epoch_seconds(self) -> float:
        """Return the seconds of an epoch."""
        return self._steps()[1] * self.steps_per_epoch

    def feature_seconds(self) -> float:
        """Return the seconds that the features of all examples take, from a few batches."""
        encoder, times = self.run.encoder, list[float]()
        batches = (batch.x for batch in self._batches())
        with eval_mode(encoder), torch.no_grad():
            encoder(next(batches))
            while sum(times) < TRIAL_SECONDS / 2:
                x = next(batches)
                times.append(self._seconds(encoder, iter([x])))
        return statistics.mean(times) * len(self.dataset) / self.recipe.batch_size

    def _steps(self) -> tuple[int, float]:
        """Return the bytes of activations, and the seconds of a step whose rows catch up."""
        step = TrainStep(self.run.state, compute=self.run.ranks.compute)
        batches, times = self._batches(), list[float]()
        activations = self._activation_bytes(step, next(batches))
        for _ in range(1, STEPS_PER_ROUND):
            step(next(batches))
        for _ in range(1, MAX_ROUNDS):
            self._skip_steps()
            times += [self._seconds(step, batches) for _ in range(STEPS_PER_ROUND)]
            if sum(times) > TRIAL_SECONDS:
                break
        return activations, statistics.mean(times)

    def _skip_steps(self) -> None:
        """Advance the step of the rows by about an epoch, without updating them."""
        for optimizer in self.run.state.head_optimizers:
            set_learning_rate(optimizer, self.recipe.method.lr)
            for _ in range(self.idle_steps):
                optimizer.step()  # no row has a gradient

    def _seconds(self, step: Callable[[T], object], batches: Iterator[T]) -> float:
        start_time = time.perf_counter()
        step(next(batches))
        if self.device.type == "cuda":
            # A step has ended when the device is done, not when its work is queued.
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - start_time

    def _activation_bytes(self, step: TrainStep, batch: Batch) -> int:
        """Return the peak memory of a step on a GPU, else the bytes saved for backward."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            before = torch.cuda.memory_allocated(self.device)
            step(batch)
            state = total_bytes(optimizer_state(self.run.state))  # created by the first step
            return torch.cuda.max_memory_allocated(self.device) - before - state
        weights = weights_of(self.run.state)
        saved = saved_bytes(lambda: step(batch), weights)
        part = self.recipe.micro_batch
        if part is not None:  # its activations are created within backward, where hooks see none
            with self.run.ranks.compute.autocast():
                saved += saved_bytes(lambda: self.run.encoder(batch.x[:part]), weights)
        return saved

    def _batches(self) -> Iterator[Batch]:
        """Yield the batches of a round in every epoch."""
        epoch = 0
        while True:
            indices = self.loader.order(epoch)[:STEPS_PER_ROUND]
            order = [torch.from_numpy(index) for index in indices]
            for head in self.run.state.heads:
                head.storage.prefetch(order)
            for _, batch in zip(order, self.loader.epoch(epoch), strict=False):
                yield batch
            epoch += 1
