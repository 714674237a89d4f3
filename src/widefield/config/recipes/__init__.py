"""Recipes by name: functions that return a `Recipe`, one file for each source."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from widefield.config.defaults import DEFAULT_METHOD, method_for
from widefield.config.recipe import Recipe
from widefield.config.recipes.feature_dropout import feature_dropout
from widefield.config.recipes.s_diet_paper import s_diet_paper
from widefield.config.recipes.solo_learn import solo_learn
from widefield.core.names import check_name
from widefield.data import plant_names
from widefield.methods import METHODS, MethodConfig
from widefield.views import ViewSettings


def default(method: str, planted: Collection[str] = ()) -> Recipe:
    """Return the measured settings of any method, the same for all data."""
    return Recipe(method=METHODS[method]())


RECIPES: dict[str, Callable[[str, Collection[str]], Recipe]] = {
    "default": default,
    "s-diet-paper": s_diet_paper,
    "feature-dropout": feature_dropout,
    "solo-learn": solo_learn,
}
"""Every recipe by name, a function of the method and the planted features."""

AUTO = "auto"
"""The method that a recipe selects by default."""

FIRST_METHOD = {
    "s-diet-paper": "s-diet",
    "feature-dropout": "simclr",
    "solo-learn": "simclr",
}
"""The default method of each published recipe."""


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
    settings = dict(overrides)
    method = settings.pop("method", AUTO)
    if method == AUTO:
        method = FIRST_METHOD.get(name) or _default_method(settings)
    method_name = method.name if isinstance(method, MethodConfig) else method
    check_name("method", method_name, METHODS)
    recipe = RECIPES[name](method_name, planted)
    if not isinstance(method, str):
        settings["method"] = method
    if isinstance(settings.get("views"), str):
        views = ViewSettings.named(settings["views"])
        before, has = recipe.views.flat(), views.flat()
        settings["views"] = views.changed({k: v for k, v in before.items() if k in has})
    return recipe.changed(settings)


def _default_method(settings: Mapping[str, Any]) -> str:
    """Return the default method of a run with these settings, before data are opened."""
    known = {key: settings[key] for key in ("epochs", "init") if key in settings}
    run = default(DEFAULT_METHOD).changed(known)
    return method_for(epochs=run.epochs, init=run.init, overrides=settings)
