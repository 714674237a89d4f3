"""Estimate of a run without any data: sizes by formulas, times as lower bounds."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from widefield.config.recipe import Recipe
from widefield.config.resolve import RunContext, check, resolve
from widefield.core.errors import option
from widefield.core.form import InputSpec
from widefield.core.hardware import Memory, choose_device, choose_precision, host_memory
from widefield.core.names import check_name
from widefield.core.published import PUBLISHED_DEVICES, PublishedDevice
from widefield.core.types import Batch, Part, Size, as_size, parse_size
from widefield.data import steps_per_epoch
from widefield.train.build import DataInfo, build
from widefield.train.compute import Compute
from widefield.train.step import TrainStep
from widefield.workflows.planned import Plan, parts_of_state, saved_bytes, weights_of

OPEN_SECONDS, OPEN_BYTES, TABLE_BYTES, SHUFFLE_SECONDS = 5.47e-7, 126.6, 5.24, 1.956e-7
"""Costs of one example in seconds and bytes, measured with 10^7 of them (docs/scale.md)."""
CHANNELS = 3
# Images of the step whose operations are counted: a loss that contrasts examples needs two.
_TRIAL = 2
# Examples of the state that is built, no fewer than keys in a queue.
_FEW = 4096
_NEEDS_DATA = ("init", "teacher", "max_examples", "seconds", "sample_rate")


def plan_examples(examples: float, recipe: str | Recipe, settings: Mapping[str, Any]) -> Plan:
    """Return the plan of a run on so many images, which need not exist.

    Raises:
        ValueError: invalid settings, a setting that needs data, or no image size.
    """
    if not (math.isfinite(examples) and examples >= 1 and examples == int(examples)):
        raise ValueError(f"examples is {examples:g}; expected a whole number from 1 on, as 1e8")
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
    context = _context(int(examples), parse_size(size), device, published)
    resolved, notes = resolve(recipe, overrides, context)
    if context.examples < resolved.batch_size:
        raise ValueError(
            f"{option('batch_size')} is {resolved.batch_size} and there are {context.examples} "
            f"examples; choose 1 to {context.examples}"
        )
    with torch.random.fork_rng(enabled=True):
        parts, flops = _step(resolved, context)
    return _plan(resolved, context, parts, flops, published, notes)


def _device(name: str) -> tuple[torch.device, PublishedDevice | None]:
    """Return the device of a run, and its published values if it is not here."""
    if name in PUBLISHED_DEVICES:
        return torch.device("cuda"), PUBLISHED_DEVICES[name]
    check_name("device", name, ("auto", "cpu", "cuda", *PUBLISHED_DEVICES))
    return choose_device(name), None


def _context(
    examples: int, size: Size, device: torch.device, published: PublishedDevice | None
) -> RunContext:
    """Return the context of so many images of this size."""
    if published is None:
        bf16 = choose_precision("auto", device) == "bf16-mixed"
        memory = Memory.of(device)
    else:
        bf16, memory = True, Memory(host=host_memory(), device=published.memory)
    return RunContext(
        examples=examples,
        inputs=InputSpec(image_size=size, channels=CHANNELS),
        device=device,
        bf16=bf16,
        memory=memory,
    )


def _step(recipe: Recipe, context: RunContext) -> tuple[dict[str, Part], float]:
    """Return the memory of a run and the operations of a step, forward and backward.

    A step on a few random images, on the CPU, is scaled to the batch.
    """
    few = min(context.examples, max(_FEW, recipe.batch_size))
    data = DataInfo.of_form(context.inputs.form, examples=few, labels={})
    # Rows that stand for all are in memory, wherever all of them will be.
    storage = {"head_storage": "host"} if "head_storage" in recipe.flat() else {}
    cpu = torch.device("cpu")
    overrides = {**storage, "device": "cpu", "epochs": 1, "warmup_steps": None, "compile": "none"}
    state = build(recipe.changed(overrides), data, device=cpu)
    height, width = as_size(data.image_size)
    batch = Batch(
        x=torch.rand(_TRIAL, CHANNELS, height, width),
        index=torch.arange(_TRIAL),
        mask=torch.zeros(_TRIAL, 1, height, width, dtype=torch.bool),
    )
    step = TrainStep(state, compute=Compute(cpu, choose_precision(recipe.precision, cpu)))
    with FlopCounterMode(display=False) as counter:
        saved = saved_bytes(lambda: step(batch), weights_of(state))
    parts = parts_of_state(state, context.examples, state_examples=few)
    if storage:
        for name in ("head", "moments"):
            parts[name] = replace(parts[name], place=recipe.flat()["head_storage"])
    micro_batch = min(recipe.batch_size, recipe.micro_batch or recipe.batch_size)
    parts["activations"] = Part(bytes=saved * micro_batch // _TRIAL, place="device")
    return parts, counter.get_total_flops() * recipe.batch_size / _TRIAL


def _plan(
    recipe: Recipe,
    context: RunContext,
    parts: dict[str, Part],
    flops: float,
    published: PublishedDevice | None,
    notes: tuple[str, ...],
) -> Plan:
    """Return the plan of a run whose state and step have these sizes."""
    n, (height, width) = context.examples, as_size(context.inputs.image_size)
    steps = steps_per_epoch(n, recipe.batch_size, drop_last=recipe.drop_last)
    rows = [parts[name] for name in ("head", "moments")]
    seconds = None
    if published is not None:
        activations = 2 * parts["activations"].bytes  # written once and read once
        seconds = steps * max(flops / published.flops, activations / published.bandwidth)
    return Plan(
        recipe=recipe,
        examples=n,
        steps_per_epoch=steps,
        parts={"data": Part(bytes=n * height * width * CHANNELS, place="disk"), **parts},
        host_bytes=round(OPEN_BYTES * n) + sum(p.bytes for p in rows if p.place == "host"),
        device_bytes=_on_device(parts),
        epoch_seconds=None,
        least_epoch_seconds=seconds,
        scale={
            "open_seconds": OPEN_SECONDS * n,
            "shuffle_seconds": SHUFFLE_SECONDS * n,
            "table_bytes": TABLE_BYTES * n,
            "checkpoint_bytes": parts["weights"].bytes
            + parts["optimizer"].bytes
            + sum(part.bytes for part in rows if part.place != "disk"),
        },
        notes=(*notes, *_notes(recipe, parts, context.memory, published)),
    )


def _on_device(parts: Mapping[str, Part]) -> int:
    return sum(part.bytes for part in parts.values() if part.place == "device")


def _notes(
    recipe: Recipe, parts: Mapping[str, Part], memory: Memory, published: PublishedDevice | None
) -> Iterator[str]:
    """Yield what is assumed, and whether the device is too small."""
    if parts["head"].bytes and "head_storage" not in recipe.flat():
        yield f"activations and time leave out a dense head beyond its first {_FEW:,} rows"
    elif parts["head"].bytes:
        yield f"rows are placed for the {memory.host / 1e9:,.0f} GB of memory of this machine"
    needed = _on_device(parts)
    if published is not None and needed > published.memory:
        yield (
            f"{needed / 1e9:,.0f} GB do not fit into {published.memory / 1e9:,.0f} GB of the "
            "device: choose a smaller batch size or image size, or a method whose head is on disk"
        )
