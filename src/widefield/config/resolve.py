"""From the settings that a user gave to those of a run: one pure pass over facts."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from widefield.config.defaults import LR_MULTIPLES, balanced, batch_size_for, method_for
from widefield.config.notes import notes_on
from widefield.config.recipe import Recipe
from widefield.config.recipes import AUTO, named_recipe
from widefield.core.hardware import choose_precision
from widefield.core.memory import Memory
from widefield.core.types import InputSpec, Kind, Size
from widefield.data import Dataset, steps_per_epoch
from widefield.encoders import EncoderConfig, EncoderSettings, family_of
from widefield.methods import HeadMethodConfig


@dataclass(frozen=True, kw_only=True)
class InitFacts:
    """What settings depend on of the weights that a run begins with."""

    config: EncoderConfig
    """Architecture of the encoder."""
    size_is_fixed: bool
    """Whether it takes images of its own size only."""


@dataclass(frozen=True, kw_only=True)
class Facts:
    """What settings depend on: the data, the initial weights, the machine."""

    examples: int
    """n."""
    image_size: Size
    """Height and width of the examples, pixels."""
    channels: int = 3
    kind: Kind = "images"
    rate: int | None = None
    """Samples per second of sounds, Hz."""
    planted: Collection[str] = ()
    """Names of the planted features."""
    init: InitFacts | None = None
    """The initial weights; None for random ones."""
    feature_dim: int | None = None
    """D, where the encoder to train is there already; None for the one of the recipe."""
    device: torch.device
    """Device to train on."""
    bf16: bool = False
    """Whether the device has arithmetic in bf16."""
    memory: Memory
    """Memory for the rows of a per-example head."""

    @classmethod
    def of(cls, dataset: Dataset, *, device: torch.device, **others: Any) -> Self:
        """Return the facts of a data set on this machine."""
        _, height, width, channels = dataset.images.shape
        return cls(
            examples=len(dataset),
            image_size=(height, width),
            channels=channels,
            kind=dataset.kind,
            rate=dataset.rate,
            device=device,
            bf16=choose_precision("auto", device) == "bf16-mixed",
            memory=Memory.of(device),
            **others,
        )


def resolve(
    recipe: str | Recipe, given: Mapping[str, Any], facts: Facts
) -> tuple[Recipe, tuple[str, ...]]:
    """Return the settings of a run, each `auto` replaced, and notes on what was chosen.

    What the user did not give goes by the rules of `widefield.config.defaults` in the recipe
    `default`. Other recipes keep their values, but the learning rate of another method than theirs.

    Args:
        recipe: name of a recipe, or a whole one.
        given: settings that the user gave, under their flat names.
        facts: the data, the initial weights and the machine.

    Raises:
        ValueError: as `check`, the encoder does not take such examples, or a warm-up was given in
            steps that does not end.

    Example:
        >>> cpu = torch.device("cpu")
        >>> facts = Facts(examples=500, image_size=(32, 32), device=cpu, memory=Memory(host=10**9))
        >>> recipe, notes = resolve("default", {"epochs": 50}, facts)
        >>> recipe.method.name, recipe.batch_size, recipe.encoder.name
        ('row-contrast', 64, 'resnet-tiny')
        >>> for note in notes:
        ...     print(note)
        method row-contrast, the default from 40 epochs on: --method sets another
        batch size 64, because there are few examples: --batch-size sets another
    """
    unset = _unset(recipe, given)
    chosen = check(recipe, given, planted=facts.planted, init=facts.init)
    bf16 = chosen.precision == "bf16" or (chosen.precision == "auto" and facts.bf16)
    encoder = chosen.encoder.resolved(facts.device, facts.kind)
    chosen = replace(chosen, precision="bf16" if bf16 else "32", encoder=encoder)
    if "batch_size" in unset:
        batch_size = batch_size_for(facts.examples, most=chosen.batch_size)
        chosen = replace(chosen, batch_size=batch_size)
    per_epoch = steps_per_epoch(facts.examples, chosen.batch_size, drop_last=chosen.drop_last)
    steps = chosen.epochs * per_epoch
    if "method" in unset:
        chosen = _with_default_method(chosen, given, per_epoch)
    feature_dim = facts.feature_dim or encoder.width(
        InputSpec(channels=facts.channels, image_size=facts.image_size, rate=facts.rate)
    )
    method = balanced(chosen.method, steps=steps).placed(facts.examples, feature_dim, facts.memory)
    chosen = _with_rates(replace(chosen, method=method), unset)
    if chosen.warmup_steps is not None and chosen.warmup_steps >= steps > 0:
        raise ValueError(
            f"warmup_steps is {chosen.warmup_steps} and the run has {steps} steps: give more "
            "epochs or a shorter warm-up"
        )
    return chosen, notes_on(chosen, per_epoch, unset=unset, given=given)


def check(
    recipe: str | Recipe,
    given: Mapping[str, Any],
    *,
    planted: Collection[str] = (),
    init: InitFacts | None = None,
) -> Recipe:
    """Return the settings as far as they go before data are open; the first part of `resolve`.

    Raises:
        ValueError: settings do not fit the recipe, each other, or the initial weights.

    Example:
        >>> check("default", {"epochs": 3, "warmup_epochs": 3})
        Traceback (most recent call last):
        ValueError: warmup_epochs is 3 and the run has 3 epochs: give more epochs or a shorter ...
    """
    given = without_auto(given)
    if isinstance(recipe, Recipe):
        chosen = recipe.changed(given)
    else:
        chosen = named_recipe(recipe, given, planted=planted)
    _refuse_contradiction(chosen, given)
    if init is None:
        return chosen
    named = set(given)
    if isinstance(recipe, Recipe):  # whose zero_init_last, of random weights, cannot be left out
        named |= recipe.encoder.flat().keys() - {"zero_init_last"}
    return _with_init(chosen, named, init)


def without_auto(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without the method `auto`, which is none."""
    return {name: value for name, value in given.items() if (name, value) != ("method", AUTO)}


def _unset(recipe: str | Recipe, given: Mapping[str, Any]) -> frozenset[str]:
    """Return which of `method`, `batch_size`, `lr` and `head_lr_scale` go by measured rules.

    A method that is given whole brings its rates, and rows go by an `lr` that is given.
    """
    method = given.get("method", AUTO)
    named = isinstance(method, str) and "lr" not in given
    rates = frozenset({"lr", "head_lr_scale"} - given.keys() if named else ())
    if isinstance(recipe, Recipe) and method not in (AUTO, recipe.method.name):
        return rates  # those of the recipe are those of its method
    if recipe != "default":
        return frozenset()
    return rates | {"batch_size"} - given.keys() | ({"method"} if method == AUTO else set())


def _refuse_contradiction(recipe: Recipe, given: Mapping[str, Any]) -> None:
    """Refuse settings that cannot go together, whatever the data."""
    if "warmup_epochs" in given and recipe.warmup_epochs >= recipe.epochs:
        raise ValueError(
            f"warmup_epochs is {recipe.warmup_epochs:g} and the run has {recipe.epochs} epochs: "
            "give more epochs or a shorter warm-up"
        )
    if given.keys() >= {"warmup_epochs", "warmup_steps"}:
        raise ValueError("warmup_epochs and warmup_steps set the same warm-up: give one of them")
    if recipe.optimizer == "lars" and recipe.decay_bias_and_norm:
        raise ValueError(
            "lars never decays biases and the gains of norms: give decay_bias_and_norm=False, "
            "or choose another optimizer"
        )


def _with_init(recipe: Recipe, named: Collection[str], init: InitFacts) -> Recipe:
    """Return `recipe` with the architecture of the initial weights, and the size that they need.

    Raises:
        ValueError: a setting of `named` is another one.
    """
    config, settings = init.config, EncoderSettings.of(init.config)
    wanted = recipe.encoder.flat()
    for name, value in settings.flat().items():
        if name in named and wanted[name] not in ("auto", value):
            raise ValueError(
                f"{recipe.init} has {name} {value!r}, not {wanted[name]!r}: leave {name} out, "
                "or leave out init"
            )
    size, rate = recipe.image_size, recipe.sample_rate
    height, width = config.image_size
    if size is None and init.size_is_fixed and height == width:
        size = height
    if config.rate is not None and rate not in (None, config.rate):
        raise ValueError(
            f"{recipe.init} was trained on sounds at {config.rate} Hz, not {rate}: leave "
            "sample_rate out, or leave out init"
        )
    return replace(recipe, encoder=settings, image_size=size, sample_rate=config.rate or rate)


def _with_default_method(recipe: Recipe, given: Mapping[str, Any], per_epoch: int) -> Recipe:
    """Return the recipe with the method for its epochs and steps, and the settings given."""
    method = method_for(
        epochs=recipe.epochs, init=recipe.init, given=given, steps_per_epoch=per_epoch
    )
    own = {name: value for name, value in given.items() if name in recipe.method.flat()}
    return recipe.changed({**own, "method": method})


def _with_rates(recipe: Recipe, unset: Collection[str]) -> Recipe:
    """Return the recipe with the learning rate of the encoder's family; rows keep the method's."""
    multiple = LR_MULTIPLES[family_of(recipe.encoder)]
    rates = {"lr": multiple * recipe.method.lr}
    if isinstance(recipe.method, HeadMethodConfig):
        rates["head_lr_scale"] = 1 / multiple
    return recipe.changed({name: rate for name, rate in rates.items() if name in unset})
