"""Resolution of the settings of a run from those of the user, the data and the machine."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from widefield.config.defaults import (
    LR_SCALES,
    batch_size_for,
    init_lr_scale_for,
    method_for,
    views_for,
    with_balance,
)
from widefield.config.notes import notes_on
from widefield.config.recipe import Recipe
from widefield.config.recipes import AUTO, named_recipe
from widefield.core.errors import option
from widefield.core.form import InputSpec
from widefield.core.hardware import Memory, choose_precision
from widefield.core.types import PixelStorage, size_text
from widefield.data import Dataset, steps_per_epoch
from widefield.encoders import Encoder, EncoderSettings, family_of
from widefield.methods import HeadMethodConfig


@dataclass(frozen=True, kw_only=True)
class RunContext:
    """Properties of data, initial weights and machine on which settings depend."""

    examples: int
    """n."""
    inputs: InputSpec
    """The form of the examples."""
    pixels: PixelStorage = "decoded"
    """How the images are kept."""
    planted: Collection[str] = ()
    """Names of the planted features."""
    init: Encoder | None = None
    """The initial encoder; None for random weights."""
    feature_dim: int | None = None
    """D of an existing encoder to train; None for the one of the recipe."""
    device: torch.device
    """Device to train on."""
    bf16: bool = False
    """Whether the device supports bf16."""
    memory: Memory
    """Memory for the rows of a per-example head."""

    @classmethod
    def of(cls, dataset: Dataset, *, device: torch.device, **others: Any) -> Self:
        return cls(
            examples=len(dataset),
            inputs=InputSpec.of_form(dataset.form),
            pixels="decoded" if dataset.encoded is None else "encoded",
            device=device,
            bf16=choose_precision("auto", device) == "bf16-mixed",
            memory=Memory.of(device),
            **others,
        )


def resolve(
    recipe: str | Recipe, overrides: Mapping[str, Any], context: RunContext
) -> tuple[Recipe, tuple[str, ...]]:
    """Return the settings of a run without `auto`, and notes on the selected values.

    The recipe `default` takes unset values from the rules of `widefield.config.defaults`. Other
    recipes keep their values; a method that is not theirs gets its learning rate by these rules.

    Raises:
        ValueError: as `check`, the encoder or the views do not take such examples, or the warm-up
            is longer than the run.
    """
    unset = _unset(recipe, overrides)
    result = check(recipe, overrides, planted=context.planted, init=context.init)
    # The order is important: each rule reads what those before it chose.
    # 1. Precision and encoder: by the device and the kind of the examples alone.
    # 2. Batch size: by the number of examples. It gives the number of steps.
    # 3. Method: by epochs and steps. It says which settings there are.
    # 4. Views, balance of the loss and place of the rows: by the method and the steps.
    # 5. Learning rates: a multiple of the method's, by the family of the encoder.
    bf16 = result.precision == "bf16" or (result.precision == "auto" and context.bf16)
    kind = context.inputs.kind
    encoder = result.encoder.resolved(context.device, kind)
    result = replace(
        result, precision="bf16" if bf16 else "32", encoder=encoder, pixels=context.pixels
    )
    if "batch_size" in unset:
        batch_size = batch_size_for(context.examples, max_batch_size=result.batch_size)
        result = replace(result, batch_size=batch_size)
    per_epoch = steps_per_epoch(context.examples, result.batch_size, drop_last=result.drop_last)
    steps = result.epochs * per_epoch
    if "method" in unset:
        result = _with_default_method(result, overrides, per_epoch)
    if "views" in unset:
        views = views_for(result.method.name, steps=steps, init=result.init, kind=kind)
        result = result.changed({"views": views})
    result.views.check_kind(kind)
    feature_dim = context.feature_dim or encoder.width(context.inputs)
    method = with_balance(result.method, steps=steps)
    method = method.placed(context.examples, feature_dim, context.memory)
    result = _with_rates(replace(result, method=method), unset)
    if result.warmup_steps is not None and result.warmup_steps >= steps > 0:
        raise ValueError(
            f"{option('warmup_steps')} is {result.warmup_steps} and the run has {steps} steps: "
            "give more epochs or a shorter warm-up"
        )
    return result, notes_on(result, per_epoch, unset=unset, overrides=overrides)


def check(
    recipe: str | Recipe,
    overrides: Mapping[str, Any],
    *,
    planted: Collection[str] = (),
    init: Encoder | None = None,
) -> Recipe:
    """Return the settings before data are opened; the first part of `resolve`."""
    overrides = without_auto(overrides)
    if isinstance(recipe, Recipe):
        result = recipe.changed(overrides)
    else:
        result = named_recipe(recipe, overrides, planted=planted)
    _check_combination(result, overrides)
    if init is None:
        return result
    named = set(overrides)
    if isinstance(recipe, Recipe):  # which always has zero_init_last, a setting of random weights
        named |= recipe.encoder.flat().keys() - {"zero_init_last"}
    return _with_init(result, named, init)


def without_auto(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in overrides.items() if (name, value) != ("method", AUTO)}


def _unset(recipe: str | Recipe, overrides: Mapping[str, Any]) -> frozenset[str]:
    """Return which of `method`, `views`, `batch_size`, `lr`, `head_lr_scale` have default rules.

    A `MethodConfig` has its own rates, and `lr` sets the rate of the rows too.
    """
    method = overrides.get("method", AUTO)
    has_rates = not isinstance(method, str) or "lr" in overrides
    rates = set[str]() if has_rates else {"lr", "head_lr_scale"}
    unset = set[str]()
    if isinstance(recipe, Recipe) and method not in (AUTO, recipe.method.name):
        unset = rates  # those of the recipe are for its own method
    elif recipe == "default":
        unset = rates | {"batch_size", "views"}
    unset -= overrides.keys()
    if recipe == "default" and method == AUTO:
        unset.add("method")  # which may be given by its name `auto`
    return frozenset(unset)


def _check_combination(recipe: Recipe, overrides: Mapping[str, Any]) -> None:
    if "warmup_epochs" in overrides and recipe.warmup_epochs >= recipe.epochs:
        raise ValueError(
            f"{option('warmup_epochs')} is {recipe.warmup_epochs:g} and the run has "
            f"{recipe.epochs} epochs: give more epochs or a shorter warm-up"
        )
    if overrides.keys() >= {"warmup_epochs", "warmup_steps"}:
        raise ValueError(
            f"{option('warmup_epochs')} and {option('warmup_steps')} set the same warm-up: give "
            "one of them"
        )
    if recipe.optimizer == "lars" and recipe.decay_bias_and_norm:
        raise ValueError(
            "lars never decays biases and the gains of norms: give decay_bias_and_norm=False, "
            "or choose another optimizer"
        )


def _with_init(recipe: Recipe, named: Collection[str], init: Encoder) -> Recipe:
    """Return `recipe` with the architecture of the initial weights, and the size that they need."""
    config, settings = init.config, EncoderSettings.of(init.config)
    wanted = recipe.encoder.flat()
    for name, value in settings.flat().items():
        if name in named and wanted[name] not in ("auto", value):
            raise ValueError(
                f"{recipe.init} has {name} {value!r}, not {wanted[name]!r}: leave {name} out, "
                "or leave out init"
            )
    size, rate = recipe.image_size, recipe.sample_rate
    if size is None and init.size_is_fixed:
        size = size_text(config.image_size)
    if config.rate is not None and rate not in (None, config.rate):
        raise ValueError(
            f"{recipe.init} was trained on sounds at {config.rate} Hz, not {rate}: leave "
            f"{option('sample_rate')} out, or leave out init"
        )
    return replace(recipe, encoder=settings, image_size=size, sample_rate=config.rate or rate)


def _with_default_method(recipe: Recipe, overrides: Mapping[str, Any], per_epoch: int) -> Recipe:
    method = method_for(
        epochs=recipe.epochs, init=recipe.init, overrides=overrides, steps_per_epoch=per_epoch
    )
    kept = {name: value for name, value in overrides.items() if name in recipe.method.flat()}
    return recipe.changed({**kept, "method": method})


def _with_rates(recipe: Recipe, unset: Collection[str]) -> Recipe:
    """Return the recipe with the learning rate of the encoder's family, but not for rows."""
    multiple = LR_SCALES[family_of(recipe.encoder)]
    rates = {"lr": multiple * recipe.method.lr}
    if recipe.init is not None and recipe.init_lr_scale is None:
        recipe = recipe.changed({"init_lr_scale": init_lr_scale_for(recipe.encoder)})
    if isinstance(recipe.method, HeadMethodConfig):
        # Rows are alike for all families, so that their own rate stays as it is.
        rates["head_lr_scale"] = 1 / multiple
    return recipe.changed({name: rate for name, rate in rates.items() if name in unset})
