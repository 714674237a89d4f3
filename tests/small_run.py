"""One step of a run, as the loop takes it, small enough for every test."""

from typing import Any

import torch
from lightning.fabric import Fabric

from widefield.encoders import build_encoder
from widefield.methods import RunFacts, build_method
from widefield.recipe import Recipe
from widefield.train.loop import Objective, Stepper, Training
from widefield.train.opponent import build_opponent
from widefield.train.optim import build_optimizer
from widefield.types import WHOLE, Batch, Shard
from widefield.views import build_views

EXAMPLES, STEPS = 12, 24


def stepper(method: str, views: str, *, shard: Shard = WHOLE, **settings: Any) -> Stepper:
    """A run's step on the CPU, on images of 16 pixels a side."""
    recipe = Recipe.named(
        method=method,
        views=views,
        projector_width=16,
        projector_dim=8,
        predictor_width=16,
        queue_size=8,
        **settings,
    )
    rates = torch.full((STEPS,), recipe.lr, dtype=torch.float64)
    encoder = build_encoder("resnet-tiny", channels=3, image_size=16, seed=0)
    facts = RunFacts(
        encoder=encoder,
        feature_dim=encoder.dim,
        examples=EXAMPLES,
        labels={"class": torch.arange(EXAMPLES) % 3},
        learning_rates=rates,
        device=torch.device("cpu"),
        shard=shard,
    )
    with torch.random.fork_rng():
        torch.manual_seed(0)
        objective = Objective(encoder, build_method(recipe, facts))
    drawn_by = build_views(views, recipe=recipe)
    training = Training(
        objective=objective,
        optimizer=build_optimizer(encoder, objective.method, recipe),
        views=drawn_by,
        opponent=build_opponent(drawn_by, recipe),
        generator=torch.Generator().manual_seed(shard.rank),
    )
    precision = "bf16-mixed" if recipe.precision == "bf16" else "32-true"
    fabric = Fabric(
        accelerator="cpu",
        devices=shard.world,
        strategy="ddp" if shard.world > 1 else "auto",
        precision=precision,  # type: ignore[arg-type]
    )
    if shard.world > 1:
        fabric.launch()
    return Stepper(training, fabric=fabric, rates=rates)


def batch(first: int = 0, count: int = 6, skip: int = 1) -> Batch:
    index = torch.arange(first, first + count * skip, skip)
    x = torch.rand(EXAMPLES, 3, 16, 16, generator=torch.Generator().manual_seed(1))
    mask = torch.zeros(count, 1, 16, 16, dtype=torch.bool)
    mask[..., 3:9, 4:12] = True
    return Batch(x=x[index], index=index, mask=mask)
