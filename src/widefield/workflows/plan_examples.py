"""Plan for a number of images without any data: sizes by formulas, times as lower bounds."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from widefield.config.recipe import Recipe
from widefield.config.resolve import RunContext, check, resolve
from widefield.core.errors import option
from widefield.core.form import InputSpec
from widefield.core.hardware import choose_device, choose_precision
from widefield.core.memory import Memory, host_memory
from widefield.core.names import check_name
from widefield.core.published import PUBLISHED_DEVICES, PublishedDevice
from widefield.core.types import Batch, Part, as_size, parse_size
from widefield.data import steps_per_epoch
from widefield.train.build import DataInfo, build
from widefield.train.compute import Compute
from widefield.train.state import TrainState
from widefield.train.step import TrainStep
from widefield.workflows.planned import (
    Plan,
    optimizer_state,
    per_element,
    saved_bytes,
    total_bytes,
    weights_of,
)

OPEN_SECONDS, OPEN_BYTES, TABLE_BYTES, SHUFFLE_SECONDS = 5.47e-7, 126.6, 5.24, 1.956e-7
"""Costs of one example in seconds and bytes, measured with 10^7 of them (docs/scale.md)."""
CHANNELS = 3
_TRIAL = 2  # images of the step whose operations are counted
_FEW = 4096  # examples of the state that is built, no fewer than keys in a queue
_NEEDS_DATA = ("init", "teacher", "max_examples", "seconds", "sample_rate")


def plan_examples(examples: float, recipe: str | Recipe, settings: Mapping[str, Any]) -> Plan:
    """Return the plan of a run on so many images, which need not exist.

    Raises:
        ValueError: invalid settings, a setting that needs data, or no image size.
    """
    if not (math.isfinite(examples) and examples >= 1 and examples == int(examples)):
        raise ValueError(f"examples is {examples:g}; expected a whole number from 1 on, as 1e8")
    count = int(examples)
    for name in _NEEDS_DATA:
        if settings.get(name) is not None:
            raise ValueError(f"{name} needs data: give DATA, or leave {option(name)} out")
    device, published = _device(settings.get("device") or "auto")
    overrides = {**settings, "device": device.type}
    size = check(recipe, overrides).image_size
    if size is None:
        raise ValueError(
            f"nothing says how large the images are: give {option('image_size')}, such as 224"
        )
    context = RunContext(
        examples=count,
        inputs=InputSpec(image_size=parse_size(size), channels=CHANNELS),
        device=device,
        bf16=published is not None or choose_precision("auto", device) == "bf16-mixed",
        memory=Memory.of(device)
        if published is None
        else Memory(host=host_memory(), device=published.memory),
    )
    resolved, notes = resolve(recipe, overrides, context)
    if count < resolved.batch_size:
        raise ValueError(
            f"{option('batch_size')} is {resolved.batch_size} and there are {count} examples; "
            f"choose 1 to {count}"
        )
    with torch.random.fork_rng(enabled=True):
        step = _Step.of(resolved, context)
    return _plan(resolved, context, step, published, notes)


def _device(name: str) -> tuple[torch.device, PublishedDevice | None]:
    """Return the device of a run, and its published values if it is not here."""
    if name in PUBLISHED_DEVICES:
        return torch.device("cuda"), PUBLISHED_DEVICES[name]
    check_name("device", name, ("auto", "cpu", "cuda", *PUBLISHED_DEVICES))
    return choose_device(name), None


@dataclass(frozen=True, kw_only=True)
class _Step:
    """Sizes of a run's state and of a step."""

    parts: dict[str, Part]
    flops: float
    """Operations of a step, forward and backward."""

    @classmethod
    def of(cls, recipe: Recipe, context: RunContext) -> "_Step":
        """Take a step on a few random images, on the CPU, and scale it to the batch."""
        few = min(context.examples, max(_FEW, recipe.batch_size))
        data = DataInfo.of_form(context.inputs.form, examples=few, labels={})
        # Rows that stand for all are in memory, wherever all of them will be.
        place = {"head_storage": "host"} if "head_storage" in recipe.flat() else {}
        cpu = torch.device("cpu")
        here = {**place, "device": "cpu", "epochs": 1, "warmup_steps": None, "compile": "none"}
        small = recipe.changed(here)
        state = build(small, data, device=cpu)
        height, width = as_size(data.image_size)
        batch = Batch(
            x=torch.rand(_TRIAL, CHANNELS, height, width),
            index=torch.arange(_TRIAL),
            mask=torch.zeros(_TRIAL, 1, height, width, dtype=torch.bool),
        )
        step = TrainStep(state, compute=Compute(cpu, choose_precision(recipe.precision, cpu)))
        with FlopCounterMode(display=False) as counter:
            saved = saved_bytes(lambda: step(batch), weights_of(state))
        together = min(recipe.batch_size, recipe.micro_batch or recipe.batch_size)
        parts = _parts(state, recipe, context.examples, few)
        parts["activations"] = Part(bytes=saved * together // _TRIAL, place="device")
        return cls(parts=parts, flops=counter.get_total_flops() * recipe.batch_size / _TRIAL)


def _parts(state: TrainState, recipe: Recipe, examples: int, few: int) -> dict[str, Part]:
    """Return the memory of a run on `examples`, from a state of a `few` of them."""
    place = recipe.flat().get("head_storage", "device")
    rows = {name: replace(p, place=place) for name, p in state.method.memory(examples).items()}
    dense = state.method.head_parameters()
    dense_state = total_bytes([x for p in dense for x in per_element(state.optimizer.state[p])])
    moments = Part(bytes=dense_state * examples // few, place="device")
    return {
        "head": rows.get("head", Part(bytes=0, place="device")),
        "moments": rows.get("moments", moments),
        "weights": Part(bytes=total_bytes(weights_of(state)) - total_bytes(dense), place="device"),
        "optimizer": Part(bytes=total_bytes(optimizer_state(state)) - dense_state, place="device"),
    }


def _plan(
    recipe: Recipe,
    context: RunContext,
    step: _Step,
    published: PublishedDevice | None,
    notes: tuple[str, ...],
) -> Plan:
    """Return the plan of a run whose steps have these sizes."""
    n, (height, width) = context.examples, as_size(context.inputs.image_size)
    decoded, parts = n * height * width * CHANNELS, step.parts
    steps = steps_per_epoch(n, recipe.batch_size, drop_last=recipe.drop_last)
    held = [parts[name] for name in ("head", "moments")]
    on_host = sum(part.bytes for part in held if part.place == "host")
    model = parts["weights"].bytes + parts["optimizer"].bytes
    seconds = None
    if published is not None:
        activations = 2 * parts["activations"].bytes  # written once and read once
        seconds = steps * max(step.flops / published.flops, activations / published.bandwidth)
    return Plan(
        recipe=recipe,
        examples=n,
        steps_per_epoch=steps,
        parts={"data": Part(bytes=decoded, place="disk"), **parts},
        host_bytes=round(OPEN_BYTES * n) + on_host,
        device_bytes=sum(part.bytes for part in parts.values() if part.place == "device"),
        epoch_seconds=None,
        least_epoch_seconds=seconds,
        scale={
            "open_seconds": OPEN_SECONDS * n,
            "shuffle_seconds": SHUFFLE_SECONDS * n,
            "table_bytes": TABLE_BYTES * n,
            "checkpoint_bytes": model + sum(part.bytes for part in held if part.place != "disk"),
        },
        notes=(*notes, *_notes(recipe, parts, context.memory, published)),
    )


def _notes(
    recipe: Recipe, parts: Mapping[str, Part], memory: Memory, published: PublishedDevice | None
) -> Iterator[str]:
    """Yield what is assumed, and whether the device is too small."""
    if parts["head"].bytes and "head_storage" not in recipe.flat():
        yield f"activations and time leave out a dense head beyond its first {_FEW:,} rows"
    elif parts["head"].bytes:
        yield f"rows are placed for the {memory.host / 1e9:,.0f} GB of memory of this machine"
    needed = sum(part.bytes for part in parts.values() if part.place == "device")
    if published is not None and needed > published.memory:
        yield (
            f"{needed / 1e9:,.0f} GB do not fit into {published.memory / 1e9:,.0f} GB of the "
            "device: choose a smaller batch size or image size, or a method whose head is on disk"
        )
