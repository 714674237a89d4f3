"""What a training step costs beside the bare encoder: views, head and loss included."""

import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from widefield.data import Loader, open_dataset
from widefield.encoders import Encoder, build_encoder
from widefield.methods import METHODS, RunFacts, build_method
from widefield.methods.s_diet import SDiet
from widefield.recipe import Recipe, check_name
from widefield.rows import RowState
from widefield.train.hardware import choose_device, keep_freed_memory
from widefield.train.loop import Objective, Stepper, Training
from widefield.train.opponent import build_opponent, refuse_misfit
from widefield.train.optim import build_optimizer
from widefield.train.ranks import lone_fabric
from widefield.types import Batch
from widefield.views import Views, build_views

VARIANTS: dict[str, dict[str, Any]] = {
    "byol-both-directions": {"method": "byol", "byol_directions": "both"},
}
"""Settings that change the work of a method's step; timed, and named, beside the methods."""


def bench(
    *,
    encoder: str = "auto",
    batch_size: int = 256,
    image_size: int = 32,
    rows: int = 10_000,
    rounds: int = 15,
    methods: list[str] | None = None,
    views: str = "expert",
) -> dict[str, Any]:
    """Seconds per step of the bare encoder and of each method, turn by turn in one process.

    On a CPU they are seconds of the processor, summed over threads.
    Bare is forward, backward and AdamW on a ready tensor. The methods draw their views from
    uint8 images and use their heads, as in training, at the sizes of their default recipes; every
    row of s-diet has been visited, so that its missed steps have to be replayed. Views that learn
    take their own step too. `methods` are all, and `VARIANTS`, unless said otherwise.

    Returns:
        `ratios`: median of the rounds' own ratios to the bare step; `values`: median seconds.

    Raises:
        ValueError: an unknown name, or views that do not fit a method.
    """
    device = choose_device("auto")
    keep_freed_memory()
    if encoder == "auto":
        encoder = "resnet18" if device.type == "cuda" else "resnet-tiny"
    pixels = np.random.default_rng(0).integers(
        0, 256, (rows, image_size, image_size, 3), dtype=np.uint8
    )
    dataset = open_dataset(pixels)
    loader = Loader(dataset, batch_size=batch_size, device=device)
    steps = {"bare": _bare_step(encoder, loader, device)}
    known = (*METHODS, *VARIANTS)
    methods = methods or list(known)
    for name in methods:
        check_name("method", name, known)
        settings = VARIANTS.get(name, {"method": name})
        recipe = Recipe.named(**settings, views=views, encoder=encoder, batch_size=batch_size)
        policy = build_views(views, recipe=recipe).to(device)
        refuse_misfit(recipe, policy, METHODS[recipe.method], dataset)
        steps[name] = _method_step(recipe, policy, loader, rows, device)
    for _ in range(3):  # warm up caches and allocators
        for step in steps.values():
            step()
    seconds: dict[str, list[float]] = {name: [] for name in steps}
    for _ in range(rounds):
        for name, step in steps.items():
            seconds[name].append(_timed(step, device))
    return {
        "ratios": {
            f"{name}/bare": statistics.median(
                a / b for a, b in zip(seconds[name], seconds["bare"], strict=True)
            )
            for name in methods
        },
        "values": {f"{name}_seconds": statistics.median(times) for name, times in seconds.items()}
        | {"encoder": encoder, "batch_size": batch_size, "image_size": image_size, "rows": rows}
        | {"views": views},
    }


def _timed(step: Callable[[], None], device: torch.device) -> float:
    """Seconds; on a CPU those of the processor, which other work on the machine hardly changes."""
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    began = clock()
    step()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - began


def _fresh_encoder(name: str, loader: Loader, device: torch.device) -> Encoder:
    image_size = next(iter(loader.epoch(0))).x.shape[-1]
    encoder = build_encoder(name, image_size=image_size, seed=0).to(device)
    return encoder.to(memory_format=torch.channels_last)


def _bare_step(name: str, loader: Loader, device: torch.device) -> Callable[[], None]:
    fabric = lone_fabric(device)
    encoder = _fresh_encoder(name, loader, device)
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=1e-3, fused=True)
    encoder, optimizer = fabric.setup(encoder, optimizer)
    x = next(iter(loader.epoch(0))).x

    def step() -> None:
        fabric.backward(encoder(x).square().mean())
        optimizer.step()
        optimizer.zero_grad()

    return step


def _method_step(
    recipe: Recipe, views: Views, loader: Loader, rows: int, device: torch.device
) -> Callable[[], None]:
    encoder = _fresh_encoder(recipe.encoder, loader, device)
    rates = torch.full((1_000_000,), recipe.lr, dtype=torch.float64)
    facts = RunFacts(
        encoder=encoder,
        feature_dim=encoder.dim,
        examples=rows,
        labels={"class": torch.arange(rows) % 10},
        learning_rates=rates,
        device=device,
    )
    method = build_method(recipe, facts).to(device)
    training = Training(
        objective=Objective(encoder, method),
        optimizer=build_optimizer(encoder, method, recipe),
        views=views,
        opponent=build_opponent(views, recipe),
        generator=torch.Generator(device).manual_seed(0),
    )
    if isinstance(method, SDiet):
        method.steps = training.step = loader.steps_per_epoch
        _visit_every_row(method, loader.steps_per_epoch)
    stepper = Stepper(training, fabric=lone_fabric(device), rates=rates)
    batches = _endless(loader)

    def step() -> None:
        stepper.step(next(batches))

    return step


def _visit_every_row(method: SDiet, steps: int) -> None:
    """As after a first epoch of `steps` steps: every row has momentum and a gap to catch up on."""
    store = method.head.store
    everyone = torch.arange(store.n)
    state = store.read(everyone)
    m, v = torch.full_like(state.m, 1e-3), torch.full_like(state.v, 1e-6)
    store.write(everyone, RowState(state.row, m, v, 1 + everyone % steps))


def _endless(loader: Loader) -> Iterator[Batch]:
    epoch = 0
    while True:
        yield from loader.epoch(epoch)
        epoch += 1
