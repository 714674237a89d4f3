"""What a run will need: the result of `plan`, and sizes of a state."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from widefield.config.recipe import Recipe
from widefield.core.errors import option
from widefield.core.hardware import choose_device, machine
from widefield.core.names import count_text, format_duration
from widefield.core.types import Part
from widefield.report.tables import ResultTable, TabularResult
from widefield.train.state import TrainState


@dataclass(frozen=True, kw_only=True)
class Way:
    """Layers to train within a given time."""

    name: str
    seconds: float
    """Duration of an epoch, or of the features of all examples."""
    options: str = ""
    """Options of `pretrain`; empty without training."""

    @classmethod
    def of(
        cls, name: str, seconds: float | None, found: "Plan", minutes: float, prefix: str = ""
    ) -> "Way":
        """Return the way with as many epochs as fit, or with fewer examples where none does."""
        assert seconds is not None
        epochs = int(60 * minutes / seconds)
        text = option("epochs", max(1, epochs))
        if epochs == 0:
            most = int(found.examples * 60 * minutes / seconds)
            most = max(most, found.recipe.batch_size)
            text += f" {option('max_examples', most)}"
        return cls(name=name, seconds=seconds, options=f"{prefix} {text}".strip())


@dataclass(frozen=True, kw_only=True, repr=False)
class Plan(TabularResult):
    """Estimated memory and time of a run."""

    recipe: Recipe
    """The resolved recipe."""
    examples: int
    steps_per_epoch: int
    parts: dict[str, Part]
    """`data`, `head` (rows), `moments` (of the rows), `weights`, `optimizer` and `activations`:
    on a GPU the measured peak of a step, else the tensors saved for its backward pass."""
    host_bytes: int
    """Expected peak memory of the process, including libraries if steps were taken."""
    device_bytes: int
    """Expected peak memory on the device; without a GPU the part of `host_bytes` for the model."""
    epoch_seconds: float | None
    """Expected duration, without health checks, checkpoints, and the comparison and the readout
    after the last one; None if no step was taken."""
    least_epoch_seconds: float | None = None
    """Duration at the published peak of a device that is not here, a lower bound."""
    scale: Mapping[str, float] = field(default_factory=dict)
    """What examples that were not opened cost beside steps, in seconds and bytes."""
    threads: int = 1
    """CPU threads of the run."""
    notes: tuple[str, ...] = ()
    """Advice on settings, one line each."""
    minutes: float | None = None
    """Time to train, if it was given."""
    ways: tuple["Way", ...] = ()
    """What fits into `minutes`, in the order to try."""

    @property
    def device_words(self) -> str:
        """`device_bytes` in words."""
        is_local = self.epoch_seconds is not None  # else the recipe has the kind of the device
        kind = choose_device(self.recipe.device).type if is_local else self.recipe.device
        return "on the GPU" if kind == "cuda" else "of it for model and step"

    def time_line(self) -> str:
        """Return the time of an epoch in words."""
        steps = f"an epoch of {self.steps_per_epoch:,} steps"
        if self.epoch_seconds is not None:
            return (
                f"{self.epoch_seconds:,.1f} s {steps}, "
                f"{format_duration(self.recipe.epochs * self.epoch_seconds)} in all, with "
                f"{count_text(self.threads, 'thread')}"
            )
        if self.least_epoch_seconds is None:
            return f"time of {steps}: not known without data, as no step is measured"
        return (
            f"at least {format_duration(self.least_epoch_seconds)} {steps}, at the published peak "
            "of the device: an estimate, nothing was measured"
        )

    def scale_line(self) -> str:
        """Return what the number of examples costs beside steps, in words."""
        words = []
        for name, value in self.scale.items():
            what, unit = name.rsplit("_", 1)
            size = f"{value:,.1f} s" if unit == "seconds" else f"{value / 1e9:,.2f} GB"
            words.append(f"{what} {size}")
        return ", ".join(words)

    def to_json(self) -> dict[str, Any]:
        """Return plain values, under the names of the fields."""
        return {
            "host_bytes": self.host_bytes,
            "device_bytes": self.device_bytes,
            "head_bytes": self.parts["head"].bytes,
            **self._times(),
            "examples": self.examples,
            "steps_per_epoch": self.steps_per_epoch,
            "threads": self.threads,
            "notes": list(self.notes),
            "parts": {name: dataclasses.asdict(part) for name, part in self.parts.items()},
            "encoder": self.recipe.encoder.name,
            **({"scale": dict(self.scale)} if self.scale else {}),
            **({"ways": [dataclasses.asdict(way) for way in self.ways]} if self.ways else {}),
            "machine": machine(choose_device("auto" if self.scale else self.recipe.device)),
        }

    def _times(self) -> dict[str, float | None]:
        if self.epoch_seconds is None:
            return {"epoch_seconds": None, "least_epoch_seconds": self.least_epoch_seconds}
        return {
            "epoch_seconds": round(self.epoch_seconds, 4),
            "run_seconds": round(self.recipe.epochs * self.epoch_seconds, 1),
        }

    def tables(self) -> list[ResultTable]:
        """Return the memory of each part and the time, and what fits into a given time."""
        peak = (
            f"peak: {self.host_bytes / 1e9:.2f} GB of host memory, "
            f"{self.device_bytes / 1e9:.2f} GB {self.device_words}"
        )
        memory = ResultTable(
            title=f"{self.examples:,} examples",
            columns=["", "MB", "where"],
            rows=[[name, f"{p.bytes / 1e6:,.1f}", p.place] for name, p in self.parts.items()],
            lines=[peak, self.time_line(), *([self.scale_line()] if self.scale else [])],
        )
        if not self.ways:
            return [memory]
        rows = [[way.name, format_duration(way.seconds), way.options] for way in self.ways]
        title = f"within {self.minutes:g} minutes on this machine"
        columns = ["trained", "a pass", "options of pretrain"]
        lines = ["for training; the measurements at the end of a run take time of their own"]
        return [memory, ResultTable(title=title, columns=columns, rows=rows, lines=lines)]


def saved_bytes(forward: Callable[[], Any], weights: list[Tensor]) -> int:
    """Return the bytes that `forward` saves for a backward pass, without `weights`."""
    saved = dict[int, int]()
    kept = {x.untyped_storage().data_ptr() for x in weights}

    def pack(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        forward()
    return sum(size for ptr, size in saved.items() if ptr not in kept)


def parts_of_state(state: TrainState, examples: int, *, state_examples: int) -> dict[str, Part]:
    """Return the memory of a state after a step, as it is for `examples`.

    Rows of a dense head and their moments are counted from the `state_examples` that it has.
    """
    rows, dense = state.method.memory(examples), state.method.head_parameters()
    moments = total_bytes([x for p in dense for x in _per_element(state.optimizer.state[p])])
    weights = total_bytes(weights_of(state)) - total_bytes(dense)
    sizes = {
        "head": 0,
        "moments": moments * examples // state_examples,
        "weights": weights,
        "optimizer": total_bytes(optimizer_state(state)) - moments,
    }
    return {name: Part(bytes=size, place="device") for name, size in sizes.items()} | rows


def weights_of(state: TrainState) -> list[Tensor]:
    """Return parameters and buffers of encoder, method and views."""
    modules = (state.model, state.views)
    return [x for module in modules for x in (*module.parameters(), *module.buffers())]


def optimizer_state(state: TrainState) -> list[Tensor]:
    """Return the state of the optimizers of encoder and views, without step counts."""
    optimizers = [x for x in (state.optimizer, state.adversary) if x is not None]
    entries = [entry for optimizer in optimizers for entry in optimizer.state.values()]
    return [x for entry in entries for x in _per_element(entry)]


def _per_element(entry: dict[str, Tensor]) -> list[Tensor]:
    """Return the state of an optimizer for each element of a parameter, without its step count."""
    return [x for x in entry.values() if x.ndim]


def total_bytes(tensors: Iterable[Tensor]) -> int:
    """Return the bytes of all tensors."""
    return sum(x.nbytes for x in tensors)
