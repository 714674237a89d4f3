"""Every objective by name."""

from widefield.methods.base import Method, RunFacts
from widefield.methods.diet import Diet
from widefield.methods.s_diet import SDiet
from widefield.methods.simclr import SimClr
from widefield.methods.supervised import Supervised
from widefield.recipe import Recipe, check_name

METHODS: dict[str, type[Method]] = {
    "s-diet": SDiet,
    "diet": Diet,
    "simclr": SimClr,
    "supervised": Supervised,
}


def build_method(recipe: Recipe, facts: RunFacts) -> Method:
    """The method that `recipe` names.

    Raises:
        ValueError: no such method; the message gives the nearest one.
    """
    check_name("method", recipe.method, tuple(METHODS))
    return METHODS[recipe.method].from_recipe(recipe, facts)


__all__ = ["METHODS", "Method", "RunFacts", "build_method"]
