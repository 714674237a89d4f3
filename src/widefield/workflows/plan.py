"""What a run will take, before it begins: memory by part and place, and seconds an epoch."""

import dataclasses
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import torch
from rich.console import Console
from torch import Tensor

from widefield.data import Dataset
from widefield.methods.s_diet import SDiet, recipe_layout
from widefield.recipe import Recipe
from widefield.train.folder import RunFolder
from widefield.train.hardware import choose_device, choose_precision, machine
from widefield.train.loop import Stepper
from widefield.train.ranks import Ranks
from widefield.types import Batch
from widefield.workflows.pretrain import Data, Session, open_data, place_rows, resolve

_ROUND = 6  # steps; after the first round every row has been seen before
_ROUNDS = 40  # at most
_TRIAL_SECONDS = 2.5  # of timed rounds: a few short steps say little about an epoch
_GAP = 200  # steps that rows have missed in a round, or an epoch's: then a replay is longest

Place = Literal["device", "host", "disk"]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One kind of memory that a run takes."""

    bytes: int
    place: Place


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a run will take."""

    recipe: Recipe
    """With `auto` replaced by what this machine gets."""
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

    @property
    def device_words(self) -> str:
        """What `device_bytes` are, to a reader."""
        cuda = choose_device(self.recipe.device).type == "cuda"
        return "on the GPU" if cuda else "of it for model and step"

    def to_json(self) -> dict[str, Any]:
        """Plain values, under the names of the fields."""
        return {
            "host_bytes": self.host_bytes,
            "device_bytes": self.device_bytes,
            "head_bytes": self.parts["head"].bytes,
            "epoch_seconds": round(self.epoch_seconds, 4),
            "run_seconds": round(self.recipe.epochs * self.epoch_seconds, 1),
            "examples": self.examples,
            "steps_per_epoch": self.steps_per_epoch,
            "parts": {name: dataclasses.asdict(part) for name, part in self.parts.items()},
            "encoder": self.recipe.encoder,
            "machine": machine(choose_device(self.recipe.device)),
        }


def plan(data: Data, *, recipe: str | Recipe = "default", **settings: Any) -> Plan:
    """Say what `pretrain` with the same arguments will take; a few steps are tried and thrown away.

    Args:
        data: as for `pretrain`.
        recipe: as for `pretrain`.
        **settings: fields of `Recipe` to change.

    Raises:
        ValueError: an input that cannot work; one line says which and what to do.

    Example:
        >>> ahead = plan("photos", limit=64, batch_size=16, projector_dim=32)
        >>> ahead.parts["head"], ahead.parts["moments"].bytes, ahead.steps_per_epoch
        (Part(bytes=8192, place='host'), 16384, 4)
    """
    chosen = resolve(recipe, settings)
    dataset = open_data(data, chosen)
    chosen = place_rows(chosen, len(dataset))
    with (
        tempfile.TemporaryDirectory(prefix="widefield-plan-") as folder,
        torch.random.fork_rng(enabled=True),
    ):
        trial = _Trial(chosen, dataset, RunFolder(path=Path(folder)))
        with closing(trial.session):
            return trial.plan()


class _Trial:
    """A run's players, which take a few of its steps."""

    def __init__(self, recipe: Recipe, dataset: Dataset, folder: RunFolder) -> None:
        self.recipe, self.dataset = recipe, dataset
        self.steps_per_epoch = len(dataset) // recipe.batch_size
        self.gap = min(_GAP, self.steps_per_epoch)
        device = choose_device(recipe.device)
        ranks = Ranks(device, choose_precision(recipe.precision, device))
        # Few rows: a step does not depend on how many there are, and they need not be made.
        few = _first(dataset, _ROUND * recipe.batch_size) if _rows(recipe) else dataset
        epochs = 1 + _ROUNDS * (_ROUND + self.gap) // max(1, len(few) // recipe.batch_size)
        self.session = Session(replace(recipe, epochs=epochs), few, folder, _silent(), ranks)
        self.session.dataset = dataset  # for its health check
        self.device, self.loader = self.session.device, self.session.loader

    def plan(self) -> Plan:
        """Take the steps, and add up."""
        activations, seconds = self._steps()
        self.session.check_health()  # its batches are larger than those of most runs
        parts = self._parts(activations)
        on_device = sum(p.bytes for p in parts.values() if p.place == "device")
        host = _peak_host_bytes()
        own_memory = ("host",) if self.device.type == "cuda" else ("host", "device")
        if parts["head"].place in own_memory and _rows(self.recipe):
            host += parts["head"].bytes + parts["moments"].bytes
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
        """Bytes that a step takes for a while, and its seconds, rows having missed some steps."""
        session, training = self.session, self.session.training
        stepper = Stepper(training, fabric=session.ranks.fabric, rates=session.rates)
        batches, times = self._batches(stepper.losses_per_step), list[float]()
        taken = self._bytes_taken(stepper, next(batches))
        for _ in range(1, _ROUND):
            stepper.step(next(batches))
        for _ in range(1, _ROUNDS):
            self._miss_steps()
            times += [self._seconds(stepper, batches) for _ in range(_ROUND)]
            if sum(times) > _TRIAL_SECONDS:
                break
        return taken, statistics.mean(times)

    def _miss_steps(self) -> None:
        """Let the rows' last visit be as long ago as an epoch of the run would."""
        training = self.session.training
        training.step += self.gap
        if isinstance(training.objective.method, SDiet):
            training.objective.method.steps += self.gap

    def _seconds(self, stepper: Stepper, batches: Iterator[Batch]) -> float:
        began = time.perf_counter()
        stepper.step(next(batches))
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter() - began

    def _bytes_taken(self, stepper: Stepper, batch: Batch) -> int:
        """What one step takes for a while: on a GPU all of it, else what backward needs."""
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
            before = torch.cuda.memory_allocated(self.device)
            stepper.step(batch)
            held = _bytes(self._optimizer_state())  # the first step makes it
            return torch.cuda.max_memory_allocated(self.device) - before - held
        kept = dict[int, int]()
        own = {x.untyped_storage().data_ptr() for x in self._weights()}

        def note(x: Tensor) -> Tensor:
            storage = x.untyped_storage()
            kept[storage.data_ptr()] = storage.nbytes()
            return x

        with torch.autograd.graph.saved_tensors_hooks(note, lambda x: x):
            stepper.step(batch)
        return sum(size for at, size in kept.items() if at not in own)

    def _batches(self, losses_per_step: int) -> Iterator[Batch]:
        epoch = 0
        while True:
            order = torch.from_numpy(self.loader.order(epoch)[:_ROUND])
            self.session.training.objective.method.expect(
                index for index in order for _ in range(losses_per_step)
            )
            for _, batch in zip(order, self.loader.epoch(epoch), strict=False):
                yield batch
            epoch += 1

    def _parts(self, activations: int) -> dict[str, Part]:
        objective, optimizer = self.session.training.objective, self.session.training.optimizer
        dense = objective.method.head_parameters()
        head, moments, place = self._head(dense, optimizer)
        weights = _bytes(self._weights()) - _bytes(dense)
        return {
            "data": Part(bytes=self.dataset.images.nbytes, place=self.loader.place),
            "head": Part(bytes=head, place=place),
            "moments": Part(bytes=moments, place=place),
            "weights": Part(bytes=weights, place="device"),
            "optimizer": Part(
                bytes=_bytes(self._optimizer_state()) - (moments if dense else 0), place="device"
            ),
            "activations": Part(bytes=activations, place="device"),
        }

    def _weights(self) -> list[Tensor]:
        """Parameters and buffers of all players."""
        training = self.session.training
        players = (training.objective, training.views)
        return [x for player in players for x in (*player.parameters(), *player.buffers())]

    def _optimizer_state(self) -> list[Tensor]:
        training = self.session.training
        both = [x for x in (training.optimizer, training.opponent) if x is not None]
        states = [state for optimizer in both for state in optimizer.state.values()]
        return [x for state in states for x in state.values() if x.ndim]

    def _head(
        self, dense: list[torch.nn.Parameter], optimizer: torch.optim.Optimizer
    ) -> tuple[int, int, Place]:
        """Bytes of the rows and of their moments, and where both are."""
        if dense:
            moments = [x for p in dense for x in optimizer.state[p].values() if x.ndim]
            return _bytes(list(dense)), _bytes(moments), "device"
        if not _rows(self.recipe):
            return 0, 0, "device"
        n, dim = len(self.dataset), self.recipe.projector_dim
        place = self.recipe.row_store
        assert place != "auto"
        return 4 * n * dim, n * (recipe_layout(self.recipe).row_bytes(dim) - 4 * dim), place


def _peak_host_bytes() -> int:
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def _rows(recipe: Recipe) -> bool:
    """Whether the method keeps a row for each example outside the optimiser."""
    return recipe.method == "s-diet"


def _first(dataset: Dataset, count: int) -> Dataset:
    """The first examples; their pixels are not copied."""
    count = min(count, len(dataset))
    return replace(
        dataset,
        images=dataset.images[:count],
        labels={task: y[:count] for task, y in dataset.labels.items()},
        paths=dataset.paths[:count],
    )


def _silent() -> Console:
    return Console(stderr=True, quiet=True)


def _bytes(tensors: list[Tensor] | list[torch.nn.Parameter]) -> int:
    return sum(x.nbytes for x in tensors)
