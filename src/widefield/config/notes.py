"""What to say of a run before it begins: what was chosen by a rule, and what it lacks."""

import math
from collections.abc import Collection

from widefield.config.defaults import (
    DEFAULT_METHOD,
    FEW_STEPS,
    LONG_RUN_EPOCHS,
    LR_MEASURED_ON,
    LR_MULTIPLES,
    MAX_STEPS_BETWEEN_VISITS,
    MIN_EPOCHS,
    method_for,
    method_with_settings,
)
from widefield.config.recipe import Recipe
from widefield.encoders import family_of


def notes_on(
    recipe: Recipe, per_epoch: int, *, unset: Collection[str], given: Collection[str]
) -> tuple[str, ...]:
    """Return a line on each thing that the user may want to change; none where all is usual.

    Args:
        recipe: resolved settings of the run.
        per_epoch: steps per epoch.
        unset: settings that were chosen by measured rules.
        given: names of the settings that the user gave.
    """
    is_free = "method" in unset
    lines = (
        _on_method(recipe, given) if is_free else "",
        _on_rate(recipe) if "lr" in unset else "",
        _on_batch(recipe) if "batch_size" in unset else "",
        _on_steps(recipe, per_epoch, given if is_free else None) or _on_epochs(recipe),
    )
    return tuple(line for line in lines if line)


def _on_method(recipe: Recipe, given: Collection[str]) -> str:
    """Say which method was chosen, and why."""
    name = recipe.method.name
    if method_with_settings(given):
        why = "which has the settings that were given"
    elif recipe.init is not None:
        why = "the default with --init"
    elif recipe.epochs < LONG_RUN_EPOCHS:
        why = f"the default below {LONG_RUN_EPOCHS} epochs"
    elif name == DEFAULT_METHOD:
        why = f"the default above {MAX_STEPS_BETWEEN_VISITS} steps per epoch"
    else:
        why = f"the default from {LONG_RUN_EPOCHS} epochs on"
    return f"method {name}, {why}: --method sets another"


def _on_rate(recipe: Recipe) -> str:
    """Say where the learning rate comes from, unless it is the method's own."""
    family, name = family_of(recipe.encoder), recipe.encoder.name
    multiple, measured = LR_MULTIPLES[family], name in LR_MEASURED_ON
    if measured and multiple == 1:
        return ""
    lr, scale = recipe.method.lr, recipe.method.flat().get("head_lr_scale", 1.0)
    rows = f" and {lr * scale:g} for head rows" if scale == 1 / multiple != 1 else ""
    unknown = "" if measured else f"; {name} itself was not measured"
    return f"learning rate {lr:g}{rows}, the default for {family}{unknown}: --lr sets another"


def _on_batch(recipe: Recipe) -> str:
    """Say that batches are smaller than usual."""
    if recipe.batch_size == Recipe.batch_size:
        return ""
    return (
        f"batch size {recipe.batch_size}, because there are few examples: --batch-size sets another"
    )


def _on_steps(recipe: Recipe, per_epoch: int, given: Collection[str] | None) -> str:
    """Say that a run is short, how many epochs are enough, and which method these would take.

    `given` are the names of the user's settings, or None where the user named the method.
    """
    steps = recipe.epochs * per_epoch
    if steps >= FEW_STEPS or not per_epoch:
        return ""
    epochs, method = math.ceil(FEW_STEPS / per_epoch), recipe.method.name
    if given is not None:
        method = method_for(epochs=epochs, init=recipe.init, given=given, steps_per_epoch=per_epoch)
    return (
        f"{steps} steps in all are few, and features may be worse than raw pixels: "
        f"--epochs {epochs} gives {epochs * per_epoch}"
        + ("" if method == recipe.method.name else f" and takes {method}")
        + (", or choose a smaller --batch-size" if per_epoch < 10 else "")
    )


def _on_epochs(recipe: Recipe) -> str:
    """Say that the rows of a method are visited a few times only."""
    name, epochs = recipe.method.name, recipe.epochs
    needed = MIN_EPOCHS.get(name, 1)
    if epochs >= needed:
        return ""
    seen = "once" if epochs == 1 else f"{epochs} times"
    return (
        f"each example is seen {seen}, and {name} needs {needed} epochs: --epochs {needed}, or "
        f"--method {DEFAULT_METHOD}"
    )
