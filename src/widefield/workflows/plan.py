"""What a run will take, before it begins: memory by part and place, and seconds an epoch."""

import dataclasses
import resource
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Unpack

import torch
from rich.console import Console
from torch import Tensor

from widefield.config.arguments import RecipeArguments
from widefield.config.recipe import Recipe
from widefield.core.hardware import choose_device, choose_precision, machine
from widefield.core.input_errors import input_errors
from widefield.core.types import Batch, Part
from widefield.data import Dataset, open_dataset, steps_per_epoch
from widefield.data.open import Data
from widefield.encoders import Encoder
from widefield.train.distributed import DistributedContext
from widefield.train.run import PretrainRun
from widefield.train.run_dir import RunFolder
from widefield.train.step import TrainStep, set_learning_rate
from widefield.workflows.setup import Setup

STEPS_PER_ROUND = 6  # after the first round every row has been seen before
MAX_ROUNDS = 40
TRIAL_SECONDS = 2.5  # of timed rounds: a few short steps say little about an epoch
MISSED_STEPS = 200  # that rows have missed in a round, or an epoch's: then a replay is longest


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run will take."""

    recipe: Recipe
    """The recipe, `auto` replaced by what this machine gets."""
    examples: int
    steps_per_epoch: int
    parts: dict[str, Part]
    """`data`, `head` (rows), `moments` (theirs), `weights`, `optimizer` and `activations`, the
    last as measured: on a GPU all that a step takes for a while, else what its backward needs."""
    host_bytes: int
    """Expected peak of the process's memory, its libraries included."""
    device_bytes: int
    """Expected peak on the device; without a GPU, the share of `host_bytes` that would be there."""
    epoch_seconds: float
    """Expected, without health checks and checkpoints."""
    notes: tuple[str, ...] = ()
    """What the user may want to change, a line each."""

    @property
    def device_words(self) -> str:
        """What `device_bytes` are, to a reader."""
        cuda = choose_device(self.recipe.device).type == "cuda"
        return "on the GPU" if cuda else "of it for model and step"

    def to_json(self) -> dict[str, Any]:
        """Return plain values, under the names of the fields."""
        return {
            "host_bytes": self.host_bytes,
            "device_bytes": self.device_bytes,
            "head_bytes": self.parts["head"].bytes,
            "epoch_seconds": round(self.epoch_seconds, 4),
            "run_seconds": round(self.recipe.epochs * self.epoch_seconds, 1),
            "examples": self.examples,
            "steps_per_epoch": self.steps_per_epoch,
            "notes": list(self.notes),
            "parts": {name: dataclasses.asdict(part) for name, part in self.parts.items()},
            "encoder": self.recipe.encoder.name,
            "machine": machine(choose_device(self.recipe.device)),
        }


@input_errors
def plan(
    data: Data,
    *,
    recipe: str | Recipe = "default",
    download: bool = False,
    **settings: Unpack[RecipeArguments],
) -> Plan:
    """Estimate memory and time of `pretrain` with the same options, from a few trial steps.

    Args:
        data: images or sounds, as `pretrain` takes them.
        recipe: name of a recipe: default, s-diet-paper, feature-dropout or solo-learn. In Python
            also a whole one.
        download: fetch the published weights of an `init` that this machine lacks.
        **settings: settings of the run, its method and its views to change.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.

    Example:
        >>> ahead = plan("photos", max_examples=64, batch_size=16, projector_dim=32)
        >>> ahead.parts["head"], ahead.parts["moments"].bytes, ahead.steps_per_epoch
        (Part(bytes=8192, place='host'), 16384, 4)
    """
    setup = Setup(data, recipe, settings, download=download)
    dataset = open_dataset(data, **setup.recipe.opening())
    chosen, notes, start = setup.finish(dataset)
    init = None if start is None else start.encoder
    with (
        tempfile.TemporaryDirectory(prefix="widefield-plan-") as folder,
        torch.random.fork_rng(enabled=True),
        closing(_Trial(chosen, dataset, RunFolder(path=Path(folder)), init)) as trial,
    ):
        return replace(trial.plan(), notes=notes)


class _Trial:
    """A run that takes a few of its steps."""

    def __init__(
        self, recipe: Recipe, dataset: Dataset, folder: RunFolder, start: Encoder | None
    ) -> None:
        self.recipe, self.dataset, self.folder, self.start = recipe, dataset, folder, start
        self.steps_per_epoch = steps_per_epoch(
            len(dataset), recipe.batch_size, drop_last=recipe.drop_last
        )
        self.missed = min(MISSED_STEPS, self.steps_per_epoch)
        # Few rows first: a step does not depend on how many there are, and they need not be made.
        few = dataset.subset(slice(0, STEPS_PER_ROUND * recipe.batch_size))
        self.run = self._run(few)
        if not self.run.state.heads and len(few) < len(dataset):
            self.run = self._run(dataset)
        self.run.monitor.dataset = dataset  # for its health check
        self.device, self.loader = self.run.ranks.fabric.device, self.run.loader

    def _run(self, dataset: Dataset) -> PretrainRun:
        """Build a run that is long enough for the trial."""
        recipe = self.recipe
        steps = MAX_ROUNDS * (STEPS_PER_ROUND + self.missed)
        epochs = 1 + steps // max(1, len(dataset) // recipe.batch_size)
        device = choose_device(recipe.device)
        ranks = DistributedContext(device, choose_precision(recipe.precision, device))
        silent = Console(stderr=True, quiet=True)
        longer = replace(recipe, epochs=epochs)
        return PretrainRun(longer, dataset, self.folder, silent, ranks, self.start)

    def plan(self) -> Plan:
        """Take the steps, and add up."""
        activations, seconds = self._steps()
        self.run.monitor.check_health()  # its batches are larger than those of most runs
        parts = self._parts(activations)
        on_device = sum(p.bytes for p in parts.values() if p.place == "device")
        host = _peak_host_bytes()
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
        """Return the bytes that a step takes for a while, and its seconds, rows having aged."""
        step = TrainStep(self.run.state, fabric=self.run.ranks.fabric)
        batches, times = self._batches(), list[float]()
        taken = self._bytes_taken(step, next(batches))
        for _ in range(1, STEPS_PER_ROUND):
            step(next(batches))
        for _ in range(1, MAX_ROUNDS):
            self._miss_steps()
            times += [self._seconds(step, batches) for _ in range(STEPS_PER_ROUND)]
            if sum(times) > TRIAL_SECONDS:
                break
        return taken, statistics.mean(times)

    def _miss_steps(self) -> None:
        """Let the rows' last visit be as long ago as an epoch of the run would."""
        for optimizer in self.run.state.head_optimizers:
            set_learning_rate(optimizer, self.recipe.method.lr)
            for _ in range(self.missed):
                optimizer.step()  # without a gradient, which is a step of other rows

    def _seconds(self, step: TrainStep, batches: Iterator[Batch]) -> float:
        began = time.perf_counter()
        step(next(batches))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - began

    def _bytes_taken(self, step: TrainStep, batch: Batch) -> int:
        """Return what one step takes for a while: on a GPU all of it, else backward's needs."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            before = torch.cuda.memory_allocated(self.device)
            step(batch)
            held = _bytes(self._optimizer_state())  # the first step makes it
            return torch.cuda.max_memory_allocated(self.device) - before - held
        taken = self._saved(lambda: step(batch))
        part = self.recipe.micro_batch
        if part is not None:  # a part's activations are made within backward, unseen from here
            with self.run.ranks.fabric.autocast():
                taken += self._saved(lambda: self.run.encoder(batch.x[:part]))
        return taken

    def _saved(self, act: Callable[[], Any]) -> int:
        """Return the bytes that `act` saves for a backward pass, weights left out."""
        saved = dict[int, int]()
        weights = {x.untyped_storage().data_ptr() for x in self._weights()}

        def note(x: Tensor) -> Tensor:
            storage = x.untyped_storage()
            saved[storage.data_ptr()] = storage.nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            act()
        return sum(size for pointer, size in saved.items() if pointer not in weights)

    def _batches(self) -> Iterator[Batch]:
        """Yield a round's batches of every epoch."""
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
        nothing = Part(bytes=0, place="device")
        grows = state.method.memory(len(self.dataset))
        dense = state.method.head_parameters()
        held = _bytes([x for p in dense for x in _per_element(state.optimizer.state[p])])
        head = grows.get("head", nothing)
        moments = grows.get("moments", Part(bytes=held, place="device"))
        optimizer = _bytes(self._optimizer_state()) - held
        return {
            "data": Part(bytes=self.dataset.images.nbytes, place=self.loader.storage),
            "head": head,
            "moments": moments,
            "weights": Part(bytes=_bytes(self._weights()) - _bytes(dense), place="device"),
            "optimizer": Part(bytes=optimizer, place="device"),
            "activations": Part(bytes=activations, place="device"),
        }

    def _weights(self) -> list[Tensor]:
        """Return parameters and buffers of encoder, method and views."""
        state = self.run.state
        modules = (state.model, state.views)
        return [x for module in modules for x in (*module.parameters(), *module.buffers())]

    def _optimizer_state(self) -> list[Tensor]:
        state = self.run.state
        optimizers = [x for x in (state.optimizer, state.adversary) if x is not None]
        entries = [entry for optimizer in optimizers for entry in optimizer.state.values()]
        return [x for entry in entries for x in _per_element(entry)]

    def close(self) -> None:
        """Let go of the run's files."""
        self.run.close()


def _per_element(entry: dict[str, Tensor]) -> list[Tensor]:
    """Return what an optimizer holds for each element of a parameter; its count of steps is not."""
    return [x for x in entry.values() if x.ndim]


def _peak_host_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _bytes(tensors: list[Tensor] | list[torch.nn.Parameter]) -> int:
    return sum(x.nbytes for x in tensors)
