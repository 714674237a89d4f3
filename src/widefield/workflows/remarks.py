"""What to say of a run before it begins: its learning rate, and whether it is long enough."""

import math
from collections.abc import Mapping
from typing import Any

from widefield.data import steps_per_epoch
from widefield.encoders import RATES_MEASURED_ON, rate_of
from widefield.recipe import Recipe

FEW_STEPS = 200
"""Steps below which features may say less than raw pixels; docs/recipe.md has the measurements."""


def goes_by_family(recipe: str | Recipe, given: Mapping[str, Any]) -> bool:
    """Return whether the learning rate is to be that of the encoder's family.

    It is in the default recipe, unless the user gave one or a method with one.
    """
    return recipe == "default" and "lr" not in given and isinstance(given.get("method", ""), str)


def remarks(recipe: Recipe, examples: int, *, by_family: bool) -> tuple[str, ...]:
    """Return a line on each thing that the user may want to change; none where all is usual.

    Args:
        recipe: resolved settings of the run.
        examples: n.
        by_family: whether the learning rate is that of the encoder's family.
    """
    lines = (_on_rate(recipe) if by_family else "", _on_steps(recipe, examples))
    return tuple(line for line in lines if line)


def _on_rate(recipe: Recipe) -> str:
    """Say where the learning rate comes from, unless it is the method's own."""
    factor, family = rate_of(recipe.encoder)
    measured = recipe.encoder.name in RATES_MEASURED_ON
    if measured and factor == 1:
        return ""
    unknown = "" if measured else f"; {recipe.encoder.name} itself was not measured"
    return f"learning rate {recipe.method.lr:g}, as {family} take{unknown}: --lr sets another"


def _on_steps(recipe: Recipe, examples: int) -> str:
    """Say that a run is short, and how many epochs would do."""
    per_epoch = steps_per_epoch(examples, recipe.batch_size, drop_last=recipe.drop_last)
    steps = recipe.epochs * per_epoch
    if steps >= FEW_STEPS or not per_epoch:
        return ""
    enough = math.ceil(FEW_STEPS / per_epoch)
    return (
        f"{steps} steps in all are few, and the features may say less than raw pixels: "
        f"--epochs {enough} gives {enough * per_epoch}"
        + (", or choose a smaller --batch-size" if per_epoch < 10 else "")
    )
