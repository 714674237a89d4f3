"""Recipes by name: each is a function that returns a whole `Recipe`, one file a source."""

from collections.abc import Callable
from typing import Any

from widefield.core.names import check_name
from widefield.methods import METHODS
from widefield.recipe import Recipe
from widefield.recipes.default import default
from widefield.recipes.feature_dropout import feature_dropout
from widefield.recipes.s_diet_paper import s_diet_paper

RECIPES: dict[str, Callable[[str], Recipe]] = {
    "default": default,
    "s-diet-paper": s_diet_paper,
    "feature-dropout": feature_dropout,
}
"""Every recipe by name, from the name of the method."""

FIRST_METHOD = {"default": "s-diet", "s-diet-paper": "s-diet", "feature-dropout": "simclr"}
"""The method of a recipe that is asked for no other."""


def make_recipe(name: str = "default", /, **settings: Any) -> Recipe:
    """Return the recipe `name` for the method in `settings`, with `settings` on top.

    Raises:
        ValueError: no such recipe, a method that it has no entry for, or a setting that no part
            of it has.

    Example:
        >>> make_recipe("s-diet-paper", epochs=10).epochs
        10
        >>> make_recipe("feature-dropout", method="simclr").method.temperature
        0.07
    """
    check_name("recipe", name, RECIPES)
    method = settings.pop("method", FIRST_METHOD[name])
    if not isinstance(method, str):
        return RECIPES[name](method.name).changed({"method": method, **settings})
    check_name("method", method, METHODS)
    return RECIPES[name](method).changed(settings)
