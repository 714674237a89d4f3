"""One step of a run, as the loop takes it, small enough for every test."""

from typing import Any

import torch
from torch import distributed

from widefield.config.recipe import Recipe
from widefield.config.recipes import make_recipe
from widefield.core.hardware import choose_precision
from widefield.core.types import WHOLE, Batch, Shard
from widefield.train.build import DataInfo, build
from widefield.train.compute import Compute
from widefield.train.step import TrainStep

EXAMPLES, STEPS = 12, 24

SMALL: dict[str, Any] = {
    "encoder": "resnet-tiny",
    "projector_width": 16,
    "projector_dim": 8,
    "predictor_width": 16,
    "queue_size": 8,
}
"""Small sizes of every method; `small_recipe` takes those that its method has."""


def small_recipe(method: str, views: str = "expert", **settings: Any) -> Recipe:
    """Return a recipe of small sizes, with those of `settings` that method and views have."""
    recipe = make_recipe(method=method, views=views)
    return recipe.changed({k: v for k, v in (SMALL | settings).items() if k in recipe.flat()})


def small_facts(examples: int = EXAMPLES, image_size: int = 16, channels: int = 3) -> DataInfo:
    """Return facts of data with a task of three classes."""
    labels = {"class": torch.arange(examples) % 3}
    return DataInfo(examples=examples, image_size=image_size, channels=channels, labels=labels)


def train_step(method: str, views: str, *, shard: Shard = WHOLE, **settings: Any) -> TrainStep:
    """A run's step on the CPU, on images of 16 pixels a side, at a constant learning rate."""
    sizes = {"batch_size": EXAMPLES, "epochs": STEPS, "schedule": "constant", "warmup_epochs": 0}
    recipe = small_recipe(method, views, **sizes, **settings)
    device = torch.device("cpu")
    state = build(recipe, small_facts(), device=device, shard=shard)
    assert shard.world == 1 or distributed.is_initialized()
    wanted = "bf16" if recipe.precision == "bf16" else "32"
    compute = Compute(device, choose_precision(wanted, device), shard.world)
    return TrainStep(state, compute=compute)


def batch(first: int = 0, count: int = 6, skip: int = 1) -> Batch:
    index = torch.arange(first, first + count * skip, skip)
    x = torch.rand(EXAMPLES, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    mask = torch.zeros(count, 1, 16, 16, dtype=torch.bool)
    mask[..., 3:9, 4:12] = True
    return Batch(x=x[index], index=index, mask=mask)
