"""Recipes by name: the measured settings of each method, and those that papers published."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from widefield.config.defaults import DEFAULT_METHOD, method_for
from widefield.config.recipe import Recipe, listed
from widefield.core.names import check_name
from widefield.data import plant_names
from widefield.methods import METHODS, MethodConfig
from widefield.views import ViewSettings

AUTO = "auto"
"""The method that a recipe selects by default."""


@dataclass(frozen=True, kw_only=True)
class PaperSettings:
    """Published settings by their flat names; those that are not named have their defaults."""

    settings: Mapping[str, Any]
    """Settings of every method."""
    methods: Mapping[str, Mapping[str, Any]]
    """Method -> its settings; the first is the default."""
    planted: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Planted feature of the data -> settings on top."""


S_DIET_PAPER = PaperSettings(
    settings={
        # As in most of the paper; its first layer is 3x3 for images of CIFAR's size alone.
        "encoder": "resnet18",
        "stem": "cifar",
        "epochs": 5000,
        "weight_decay": 0.05,
        "decay_bias_and_norm": True,
        "precision": "32",
        # Not stated: no warm-up, and initial weights as in torchvision, which table 2 needs.
        "warmup_epochs": 0.0,
        "zero_init_last": False,
    },
    methods={
        "s-diet": {
            "lr": 1e-3,
            "projector_layers": 3,
            # Not stated: the hidden width, and the output width, which is above 200 because
            # figure 1c has more than 200 large singular values.
            "projector_width": 512,
            "projector_dim": 512,
            "projector_batch_norm": False,
            "logit_scale": 1.0,
            "label_smoothing": 0.8,
            "head_lr_scale": 1.0,
            "head_init": "random",
            "head_update": "estimated",
        },
        "diet": {"lr": 1e-3, "head_lr_scale": 1.0, "label_smoothing": 0.8},
    },
    planted={"stacked-digits": {"epochs": 500}},  # appendix C.3
)
"""S-DIET (2025), appendix C, and the DIET that it compares with."""

FEATURE_DROPOUT_PAPER = PaperSettings(
    settings={
        # The paper compares these views with `expert:feature-dropout`.
        "views": "viewmaker:published",
        "viewmaker_budget": 0.05,
        "encoder": "resnet18",
        "stem": "small",
        "zero_init_last": False,
        "epochs": 200,
        "optimizer": "sgd",
        "schedule": "constant",
        "weight_decay": 1e-4,
        "decay_bias_and_norm": True,
        "warmup_epochs": 0.0,
        "precision": "32",
    },
    methods={
        "simclr": {
            "lr": 0.03,
            "projector_layers": 1,
            "projector_dim": 128,
            "temperature": 0.07,
            "loss": "one-sided",
        }
    },
    planted={"letters": {"viewmaker_budget": 0.1}},
)
"""Feature Dropout (Tamkin et al. 2022), appendix; loss, projection, optimizers and the decay of all
parameters are those of the authors' code and configurations."""

_SMALL_PROJECTOR = {"projector_layers": 2, "projector_width": 2048, "projector_dim": 256}
_LARGE_PROJECTOR = {"projector_layers": 3, "projector_width": 2048, "projector_dim": 2048}
# solo-learn's `exclude_bias_n_norm`, which its baselines with LARS set, exempts biases and gains.
_SGD = {"optimizer": "sgd", "decay_bias_and_norm": True}

SOLO_LEARN_PAPER = PaperSettings(
    settings={
        "encoder": "resnet18",
        "stem": "cifar",
        "zero_init_last": False,
        "epochs": 1000,
        "optimizer": "lars",
        "weight_decay": 1e-4,
        "warmup_epochs": 10.0,
        "precision": "32",
    },
    methods={
        "simclr": {
            **_SMALL_PROJECTOR,
            "projector_batch_norm": False,
            "lr": 0.4,
            "temperature": 0.2,
        },
        "barlow-twins": {**_LARGE_PROJECTOR, "lr": 0.3, "off_diagonal_weight": 0.0051},
        "byol": {
            **_SMALL_PROJECTOR,
            "projector_width": 4096,
            "lr": 1.0,
            "predictor_width": 4096,
            "ema_decay": 0.99,
            "directions": "both",
            "weight_decay": 1e-5,
        },
        "simsiam": {
            **_LARGE_PROJECTOR,
            **_SGD,
            "lr": 0.5,
            "predictor_width": 512,
            "weight_decay": 1e-5,
        },
        "vicreg": {
            **_LARGE_PROJECTOR,
            "lr": 0.3,
            "invariance_weight": 25.0,
            "variance_weight": 25.0,
            "cov_weight": 1.0,
        },
        "moco": {
            **_SMALL_PROJECTOR,
            **_SGD,
            "projector_batch_norm": False,
            "lr": 0.3,
            "temperature": 0.2,
            "ema_decay": 0.99,
            "queue_size": 32768,
        },
    },
)
"""solo-learn's CIFAR settings, the baselines of S-DIET (2025), appendix C.1, whose views, batch
size and precision they have. Source: solo-learn, the files of `scripts/pretrain/cifar`."""

RECIPES: dict[str, PaperSettings | None] = {
    "default": None,
    "s-diet-paper": S_DIET_PAPER,
    "feature-dropout": FEATURE_DROPOUT_PAPER,
    "solo-learn": SOLO_LEARN_PAPER,
}
"""Every recipe by name; the default one has the measured settings of any method."""


def make_recipe(name: str = "default", /, *, data: str = "", **settings: Any) -> Recipe:
    """Return the recipe `name` for the method in `settings`, with `settings` on top.

    New views keep the settings that they share with the recipe's views.

    Args:
        name: name of the recipe.
        data: the data spec, whose planted features some recipes depend on: 500 epochs for
            `+stacked-digits` in S-DIET, a larger viewmaker budget for `+letters`.
        **settings: settings of the run, its method, views and encoder; the method `auto` is the
            recipe's default.

    Raises:
        ValueError: the recipe, its method or a setting is unknown.

    Example:
        >>> make_recipe("s-diet-paper", epochs=10).epochs
        10
        >>> make_recipe("feature-dropout", method="simclr").method.temperature
        0.07
    """
    return named_recipe(name, settings, planted=plant_names(data) if data else ())


def named_recipe(
    name: str, overrides: Mapping[str, Any], *, planted: Collection[str] = ()
) -> Recipe:
    """Return the recipe `name` for data with features `planted`; as `make_recipe`."""
    check_name("recipe", name, RECIPES)
    published, settings = RECIPES[name], dict(overrides)
    method = settings.pop("method", AUTO)
    if method == AUTO:
        method = _default_method(settings) if published is None else next(iter(published.methods))
    method_name = method.name if isinstance(method, MethodConfig) else method
    check_name("method", method_name, METHODS)
    recipe = Recipe(method=METHODS[method_name]())
    if published is not None:
        recipe = recipe.changed(_published(name, published, method_name, planted))
    if not isinstance(method, str):
        settings["method"] = method
    if isinstance(settings.get("views"), str):
        views = ViewSettings.named(settings["views"])
        before, has = recipe.views.flat(), views.flat()
        settings["views"] = views.changed({k: v for k, v in before.items() if k in has})
    return recipe.changed(settings)


def _published(
    name: str, published: PaperSettings, method: str, planted: Collection[str]
) -> dict[str, Any]:
    if method not in published.methods:
        raise ValueError(
            f"the recipe {name} has no settings for {method}: it is for {listed(published.methods)}"
        )
    settings = {**published.settings, **published.methods[method]}
    for feature, changes in published.planted.items():
        if feature in planted:
            settings |= changes
    return settings


def _default_method(settings: Mapping[str, Any]) -> str:
    """Return the default method of a run with these settings, before data are opened."""
    known = {key: settings[key] for key in ("epochs", "init") if key in settings}
    run = Recipe(method=METHODS[DEFAULT_METHOD]()).changed(known)
    return method_for(epochs=run.epochs, init=run.init, overrides=settings)
