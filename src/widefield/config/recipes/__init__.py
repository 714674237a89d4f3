"""Recipes by name: each is a function that returns a whole `Recipe`, one file a source."""

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
"""Every recipe by name, from the name of the method and those of what is planted in the data."""

AUTO = "auto"
"""The name of the method that a recipe chooses."""

FIRST_METHOD = {
    "s-diet-paper": "s-diet",
    "feature-dropout": "simclr",
    "solo-learn": "simclr",
}
"""The method of a recipe that is asked for no other; the default one goes by the epochs."""


def make_recipe(name: str = "default", /, *, data: str = "", **settings: Any) -> Recipe:
    """Return the recipe `name` for the method in `settings`, with `settings` on top.

    Other views keep those settings of the recipe's own views that they have too.

    Args:
        name: which recipe.
        data: the data spec, where the recipe depends on what is planted: 500 epochs for
            `+stacked-digits` in S-DIET, a larger viewmaker budget for `+letters`.
        **settings: settings of the run, its method, views and encoder; `auto` is the method that
            the recipe chooses.

    Raises:
        ValueError: no such recipe, a method that it has no entry for, or a setting that no part
            of it has.

    Example:
        >>> make_recipe("s-diet-paper", epochs=10).epochs
        10
        >>> make_recipe("feature-dropout", method="simclr").method.temperature
        0.07
    """
    return named_recipe(name, settings, planted=plant_names(data) if data else ())


def named_recipe(name: str, given: Mapping[str, Any], *, planted: Collection[str] = ()) -> Recipe:
    """Return the recipe `name` for data with features `planted`; as `make_recipe`."""
    check_name("recipe", name, RECIPES)
    settings = dict(given)
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
    """Return the method of a run with these settings, as far as it shows before data are read."""
    known = {key: settings[key] for key in ("epochs", "init") if key in settings}
    run = default(DEFAULT_METHOD).changed(known)
    return method_for(epochs=run.epochs, init=run.init, given=settings)
