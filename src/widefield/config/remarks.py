"""What the default recipe leaves to the run at hand, and what to say of a run before it begins."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from widefield.config.recipe import Recipe
from widefield.config.recipes import AUTO
from widefield.config.recipes.default import LONG, OLD_ROWS, chosen_by, method_for
from widefield.data import steps_per_epoch
from widefield.encoders import RATES_MEASURED_ON, rate_of
from widefield.methods import DEFAULT_METHOD

FEW_STEPS = 200
"""Steps below which features may say less than raw pixels; benchmarks/NOTEBOOK.md."""
STEPS_AN_EPOCH = 16
"""Steps that an epoch of few examples should have; benchmarks/NOTEBOOK.md."""
SMALLEST_BATCH = 64


def unset(recipe: str | Recipe, given: Mapping[str, Any]) -> frozenset[str]:
    """Return which of `method`, the rates and `batch_size` go by epochs, encoder and examples.

    They do in the default recipe, unless the user gave them, or a method with its rates. Rows go
    by the user's `lr`, if there is one. A whole recipe leaves nothing open, but the rates of
    another method.
    """
    method = given.get("method", AUTO)
    if isinstance(recipe, Recipe) and method not in (AUTO, recipe.method.name):
        return _rates(given)  # those of a file are those of its method
    if recipe != "default":
        return frozenset()
    chosen_later = {"batch_size"} - given.keys() | ({"method"} if method == AUTO else set())
    return _rates(given) | chosen_later


def _rates(given: Mapping[str, Any]) -> frozenset[str]:
    """Return the rates that go by the encoder's family."""
    if "lr" in given or not isinstance(given.get("method", AUTO), str):
        return frozenset()
    return frozenset({"lr", "head_lr_scale"} - given.keys())


def batch_of(most: int, examples: int) -> int:
    """Return the batch size: `most`, or the power of two that gives few examples 16 steps an epoch.

    Batches are not made smaller than 64 by that, nor larger than the data.

    Example:
        >>> [batch_of(256, n) for n in (20, 500, 2000, 5000)]
        [20, 64, 64, 256]
    """
    fewer = 2 ** int(math.log2(max(1, examples // STEPS_AN_EPOCH)))
    return min(most, max(SMALLEST_BATCH, fewer), examples)


def remarks(
    recipe: Recipe, examples: int, *, unset: Collection[str], given: Collection[str]
) -> tuple[str, ...]:
    """Return a line on each thing that the user may want to change; none where all is usual.

    Args:
        recipe: resolved settings of the run.
        examples: n.
        unset: what the recipe left to epochs, encoder and data.
        given: names of the settings that the user gave.
    """
    free = "method" in unset
    lines = (
        _on_method(recipe, given) if free else "",
        _on_rate(recipe) if "lr" in unset else "",
        _on_batch(recipe) if "batch_size" in unset else "",
        _on_steps(recipe, examples, given if free else None) or _on_visits(recipe),
    )
    return tuple(line for line in lines if line)


def _on_method(recipe: Recipe, given: Collection[str]) -> str:
    """Say which method was chosen, and by what."""
    name = recipe.method.name
    if chosen_by(given):
        return f"method {name}, whose own settings were given: --method sets another"
    if recipe.init is not None:
        runs = "from a start"
    elif recipe.epochs < LONG:
        runs = f"of fewer than {LONG} epochs"
    elif name == DEFAULT_METHOD:
        runs = f"of more than {OLD_ROWS} steps an epoch"
    else:
        runs = f"of {LONG} epochs and more"
    return f"method {name}, as runs {runs} take: --method sets another"


def _on_batch(recipe: Recipe) -> str:
    """Say that batches are smaller than usual."""
    if recipe.batch_size == Recipe.batch_size:
        return ""
    return f"batches of {recipe.batch_size}, as the examples are few: --batch-size sets another"


def _on_rate(recipe: Recipe) -> str:
    """Say where the learning rate comes from, unless it is the method's own."""
    factor, family = rate_of(recipe.encoder)
    measured = recipe.encoder.name in RATES_MEASURED_ON
    if measured and factor == 1:
        return ""
    unknown = "" if measured else f"; {recipe.encoder.name} itself was not measured"
    lr, scale = recipe.method.lr, getattr(recipe.method, "head_lr_scale", 1.0)
    rows = f" and {lr * scale:g} for rows" if scale == 1 / factor != 1 else ""
    return f"learning rate {lr:g}{rows}, as {family} take{unknown}: --lr sets another"


def _on_steps(recipe: Recipe, examples: int, given: Collection[str] | None) -> str:
    """Say that a run is short, how many epochs would do, and which method these would take.

    `given` are the names of the user's settings, or None where the user named the method.
    """
    per_epoch = steps_per_epoch(examples, recipe.batch_size, drop_last=recipe.drop_last)
    steps = recipe.epochs * per_epoch
    if steps >= FEW_STEPS or not per_epoch:
        return ""
    enough = math.ceil(FEW_STEPS / per_epoch)
    return (
        f"{steps} steps in all are few, and the features may say less than raw pixels: "
        f"--epochs {enough} gives {enough * per_epoch}"
        + _on_method_then(recipe, enough, per_epoch, given)
        + (", or choose a smaller --batch-size" if per_epoch < 10 else "")
    )


def _on_method_then(
    recipe: Recipe, epochs: int, per_epoch: int, given: Collection[str] | None
) -> str:
    """Say that a run of more epochs would take another method, if it would."""
    if given is None:
        return ""
    then = method_for(epochs=epochs, init=recipe.init, given=given, steps_an_epoch=per_epoch)
    return "" if then == recipe.method.name else f" and takes {then}"


def _on_visits(recipe: Recipe) -> str:
    """Say that a method which learns from old rows sees each example a few times alone."""
    method, epochs = recipe.method, recipe.epochs
    if epochs >= method.min_epochs:
        return ""
    seen = "once" if epochs == 1 else f"{epochs} times"
    return (
        f"each example is seen {seen}, and {method.name} learns less before it has seen them "
        f"{method.min_epochs} times: --epochs {method.min_epochs}, or --method "
        f"{DEFAULT_METHOD}"
    )
