"""Estimate of memory and time of a run, from a few trial steps."""

import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Unpack

import torch
from rich.console import Console
from torch import Tensor

from widefield.config.arguments import RecipeArguments
from widefield.config.recipe import Recipe
from widefield.core.errors import input_errors, option
from widefield.core.hardware import choose_device, choose_precision
from widefield.core.types import Batch, OnNote, Part
from widefield.data import Dataset, open_dataset, steps_per_epoch
from widefield.data.source import Data
from widefield.encoders import Encoder
from widefield.inference.features import send_notes
from widefield.train.compiled import check_compile
from widefield.train.distributed import DistributedContext
from widefield.train.run import PretrainRun
from widefield.train.run_dir import RunFolder
from widefield.train.step import TrainStep, set_learning_rate
from widefield.train.threads import check_threads, choose_threads, limited_threads
from widefield.workflows.plan_examples import plan_examples
from widefield.workflows.planned import (
    Plan,
    optimizer_state,
    per_element,
    saved_bytes,
    total_bytes,
    weights_of,
)
from widefield.workflows.setup import Setup

STEPS_PER_ROUND = 6
"""Batches of a round; from the second round on every row was updated before."""
MAX_ROUNDS = 40
TRIAL_SECONDS = 2.5
"""Duration of timed steps: a few short ones vary too much."""
IDLE_STEPS = 200
"""Steps that a row misses between rounds, or those of an epoch if fewer: the longest catch-up."""


@input_errors
def plan(
    data: Data | None = None,
    *,
    examples: float | None = None,
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
        recipe: name of a recipe: default, s-diet-paper, feature-dropout or solo-learn. In Python
            also a whole one.
        group: examples that belong together, as for `pretrain`.
        download: fetch the published weights of `init` and of teachers, and `hf:` data, if they are
            missing.
        threads: CPU threads, as for `pretrain`.
        on_note: called before the work with each note on the data and the encoder, such as `print`.
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
        return plan_examples(examples, recipe, settings)
    if data is None:
        raise ValueError(
            f"there is nothing to plan for: give DATA, or {option('examples')}, such as 1e8"
        )
    setup = Setup(data, recipe, settings, download=download)
    check_compile(setup.recipe, choose_device(setup.recipe.device))
    dataset = open_dataset(data, **setup.recipe.data_options(), group=group)
    resolved, notes, init = setup.finish(dataset)
    encoder = None if init is None else init.encoder
    with (
        tempfile.TemporaryDirectory(prefix="widefield-plan-") as folder,
        torch.random.fork_rng(enabled=True),
        ExitStack() as stack,
    ):
        device = choose_device(resolved.device)
        ranks = DistributedContext(device, choose_precision(resolved.precision, device))
        threads = threads or choose_threads(resolved, dataset, encoder, ranks)
        stack.enter_context(limited_threads(threads))
        trial = _Trial(resolved, dataset, RunFolder(path=Path(folder)), encoder)
        with closing(trial.run):
            init_notes = () if init is None else init.notes
            notes = (*dataset.notes, dataset.storage, *init_notes, *notes)
            send_notes(notes, on_note)
            return replace(trial.plan(), notes=notes, threads=threads)


class _Trial:
    """A few steps of a run."""

    def __init__(
        self, recipe: Recipe, dataset: Dataset, folder: RunFolder, initial: Encoder | None
    ) -> None:
        self.recipe, self.dataset, self.folder, self.initial = recipe, dataset, folder, initial
        self.steps_per_epoch = steps_per_epoch(
            len(dataset), recipe.batch_size, drop_last=recipe.drop_last
        )
        self.idle_steps = min(IDLE_STEPS, self.steps_per_epoch)
        # The duration of a step with rows does not depend on their number, so a few suffice.
        few = dataset.subset(slice(0, STEPS_PER_ROUND * recipe.batch_size))
        self.run = self._run(few)
        if not self.run.state.heads and len(few) < len(dataset):
            self.run = self._run(dataset)
        self.run.monitor.dataset = dataset  # for its health check
        self.device, self.loader = self.run.ranks.compute.device, self.run.loader

    def _run(self, dataset: Dataset) -> PretrainRun:
        """Build a run with enough epochs for the trial."""
        recipe = self.recipe
        steps = MAX_ROUNDS * (STEPS_PER_ROUND + self.idle_steps)
        epochs = 1 + steps // max(1, len(dataset) // recipe.batch_size)
        device = choose_device(recipe.device)
        ranks = DistributedContext(device, choose_precision(recipe.precision, device))
        recipe, console = replace(recipe, epochs=epochs), Console(stderr=True, quiet=True)
        return PretrainRun(recipe, dataset, self.folder, console, ranks, self.initial)

    def plan(self) -> Plan:
        """Take the steps, and return the estimate."""
        activations, seconds = self._steps()
        self.run.monitor.check_health()  # its batches may be larger than those of training
        parts = self._parts(activations)
        on_device = sum(p.bytes for p in parts.values() if p.place == "device")
        host = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        process_memory = ("host",) if self.device.type == "cuda" else ("host", "device")
        if self.run.state.heads and parts["head"].place in process_memory:
            host += parts["head"].bytes + parts["moments"].bytes  # the trial had few rows
        return Plan(
            recipe=self.recipe,
            examples=len(self.dataset),
            steps_per_epoch=self.steps_per_epoch,
            parts=parts,
            host_bytes=host,
            device_bytes=on_device,
            epoch_seconds=seconds * self.steps_per_epoch,
        )

    def _steps(self) -> tuple[int, float]:
        """Return the bytes of activations, and the seconds of a step whose rows catch up."""
        step = TrainStep(self.run.state, compute=self.run.ranks.compute)
        batches, times = self._batches(), list[float]()
        activations = self._activationtotal_bytes(step, next(batches))
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

    def _seconds(self, step: TrainStep, batches: Iterator[Batch]) -> float:
        start_time = time.perf_counter()
        step(next(batches))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - start_time

    def _activationtotal_bytes(self, step: TrainStep, batch: Batch) -> int:
        """Return the peak memory of a step on a GPU, else the bytes saved for backward."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            before = torch.cuda.memory_allocated(self.device)
            step(batch)
            state = total_bytes(self._optimizer_state())  # created by the first step
            return torch.cuda.max_memory_allocated(self.device) - before - state
        saved = saved_bytes(lambda: step(batch), self._weights())
        part = self.recipe.micro_batch
        if part is not None:  # its activations are created within backward, where hooks see none
            with self.run.ranks.compute.autocast():
                saved += saved_bytes(lambda: self.run.encoder(batch.x[:part]), self._weights())
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

    def _parts(self, activations: int) -> dict[str, Part]:
        state = self.run.state
        by_rows = state.method.memory(len(self.dataset))
        dense = state.method.head_parameters()
        dense_state = total_bytes([x for p in dense for x in per_element(state.optimizer.state[p])])
        head = by_rows.get("head", Part(bytes=0, place="device"))
        moments = by_rows.get("moments", Part(bytes=dense_state, place="device"))
        optimizer = total_bytes(self._optimizer_state()) - dense_state
        return {
            "data": Part(bytes=self.dataset.images.nbytes, place=self.loader.storage),
            "head": head,
            "moments": moments,
            "weights": Part(
                bytes=total_bytes(self._weights()) - total_bytes(dense), place="device"
            ),
            "optimizer": Part(bytes=optimizer, place="device"),
            "activations": Part(bytes=activations, place="device"),
        }

    def _weights(self) -> list[Tensor]:
        return weights_of(self.run.state)

    def _optimizer_state(self) -> list[Tensor]:
        return optimizer_state(self.run.state)
