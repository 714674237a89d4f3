"""Notes on a run before it starts: settings by default rules, and possible problems."""

import math
from collections.abc import Collection, Iterator

from widefield.config.defaults import (
    DEFAULT_METHOD,
    FEW_STEPS,
    LONG_RUN_EPOCHS,
    LR_MEASURED_ON,
    LR_SCALES,
    MAX_STEPS_BETWEEN_VISITS,
    MIN_EPOCHS,
    method_for,
    method_with_settings,
)
from widefield.config.recipe import Recipe, listed
from widefield.core.errors import option
from widefield.encoders import family_of
from widefield.views import ViewSettings

_OF_INIT = ("init_lr_scale", "layer_decay", "freeze_blocks", "freeze_norm_layers", "init_average")
"""Settings of runs from initial weights."""


def notes_on(
    recipe: Recipe, per_epoch: int, *, unset: Collection[str], overrides: Collection[str]
) -> tuple[str, ...]:
    """Return a line on each setting that the user may want to change.

    `per_epoch` are steps, `unset` the settings selected by measured rules, `overrides` those of the
    user.
    """
    is_auto = "method" in unset
    lines = (
        _on_method(recipe, overrides) if is_auto else "",
        _on_views(recipe) if "views" in unset else "",
        _on_rate(recipe) if "lr" in unset else "",
        _on_start(recipe, overrides),
        _on_batch(recipe) if "batch_size" in unset else "",
        _on_steps(recipe, per_epoch, overrides if is_auto else None) or _on_epochs(recipe),
        *_without_effect(recipe, overrides),
    )
    return tuple(line for line in lines if line)


def _without_effect(recipe: Recipe, overrides: Collection[str]) -> Iterator[str]:
    if recipe.init is None:
        for name in _OF_INIT:
            if name in overrides:
                yield (
                    f"{option(name)} has no effect on random weights: give {option('init')}, or "
                    "leave it out"
                )
    elif recipe.method.method_class.needs_labels and "init_average" in overrides:
        yield (
            f"{option('init_average')} has no effect on training with labels, whose result is what "
            "was trained: leave it out"
        )
    size = recipe.micro_batch
    if size is not None and size >= recipe.batch_size:
        yield (
            f"{option('micro_batch')} {size} has no effect on batches of {recipe.batch_size}: give "
            "less, or leave it out"
        )
    if recipe.views.names == "none" and recipe.method.method_class.view_count == 2:
        yield (
            f"{option('views', 'none')} makes the two views of {recipe.method.name} equal, so that "
            f"their agreement teaches nothing: {option('views')} sets others"
        )


def _on_method(recipe: Recipe, overrides: Collection[str]) -> str:
    name = recipe.method.name
    if "teacher" in overrides:
        reason = f"the default with {option('teacher')}"
    elif method_with_settings(overrides):
        reason = "which has the settings that were given"
    elif recipe.init is not None:
        reason = f"the default with {option('init')}"
    elif recipe.epochs < LONG_RUN_EPOCHS:
        reason = f"the default below {LONG_RUN_EPOCHS} epochs"
    elif name == DEFAULT_METHOD:
        reason = f"the default above {MAX_STEPS_BETWEEN_VISITS} steps per epoch"
    else:
        reason = f"the default from {LONG_RUN_EPOCHS} epochs on"
    return f"method {name}, {reason}: {option('method')} sets another"


def _on_views(recipe: Recipe) -> str:
    """Return the note on the views, unless they are those of most methods."""
    name = recipe.views.names
    if name == ViewSettings().names:
        return ""
    of = f"of {recipe.method.name} in short runs" if recipe.init is None else "with initial weights"
    return f"views {name}, the default {of}: {option('views')} sets others"


def _on_rate(recipe: Recipe) -> str:
    """Return the note on the learning rate, unless it is the method's default."""
    family, name = family_of(recipe.encoder), recipe.encoder.name
    multiple, is_tested = LR_SCALES[family], name in LR_MEASURED_ON
    if is_tested and multiple == 1:
        return ""
    lr, scale = recipe.method.lr, recipe.method.flat().get("head_lr_scale", 1.0)
    rows = f" and {lr * scale:g} for head rows" if scale == 1 / multiple != 1 else ""
    unknown = "" if is_tested else f"; {name} itself was not measured"
    return (
        f"learning rate {lr:g}{rows}, the default for {family}{unknown}: {option('lr')} sets "
        "another"
    )


def _on_start(recipe: Recipe, overrides: Collection[str]) -> str:
    """Return the note on how initial weights are kept, unless the user decided all of it."""
    names, scale = ["init_lr_scale", "freeze_norm_layers"], recipe.init_lr_scale
    result = ""
    if not recipe.method.method_class.needs_labels:
        names.append("init_average")
        result = ", and are averaged with the trained ones at the end"
    unset = [name for name in names if name not in overrides]
    if recipe.init is None or scale is None or not unset:
        return ""
    norms = "fixed" if recipe.freeze_norm_layers else "trained"
    return (
        f"initial weights learn at {recipe.method.lr * scale:g}, norms {norms}{result}: "
        f"{listed([option(name) for name in unset])} "
        f"{'sets another' if len(unset) == 1 else 'set others'}"
    )


def _on_batch(recipe: Recipe) -> str:
    if recipe.batch_size == Recipe.batch_size:
        return ""
    return (
        f"batch size {recipe.batch_size}, because there are few examples: {option('batch_size')} "
        "sets another"
    )


def _on_steps(recipe: Recipe, per_epoch: int, overrides: Collection[str] | None) -> str:
    """Return the note on a run of few steps.

    `overrides` are the names of the user's settings, None if they include the method.
    """
    steps = recipe.epochs * per_epoch
    if steps >= FEW_STEPS or not per_epoch or recipe.init is not None:
        return ""
    epochs, method = math.ceil(FEW_STEPS / per_epoch), recipe.method.name
    if overrides is not None:
        method = method_for(epochs=epochs, overrides=overrides, steps_per_epoch=per_epoch)
    return (
        f"{steps} steps in all are few, and features may be worse than raw pixels: "
        f"{option('epochs', epochs)} gives {epochs * per_epoch}"
        + ("" if method == recipe.method.name else f" and takes {method}")
        + (f", or choose a smaller {option('batch_size')}" if per_epoch < 10 else "")
    )


def _on_epochs(recipe: Recipe) -> str:
    """Return the note on a method whose rows are visited too few times."""
    name, epochs = recipe.method.name, recipe.epochs
    needed = MIN_EPOCHS.get(name, 1)
    if epochs >= needed:
        return ""
    seen = "once" if epochs == 1 else f"{epochs} times"
    return (
        f"each example is seen {seen}, and {name} needs {needed} epochs: "
        f"{option('epochs', needed)}, or {option('method', DEFAULT_METHOD)}"
    )
