"""The recipe that runs use unless told otherwise: each method with its measured settings."""

from widefield.methods import DEFAULT_METHOD, METHODS
from widefield.recipe import Recipe


def default(method: str = DEFAULT_METHOD) -> Recipe:
    """Return the measured recipe of any method; docs/recipe.md and docs/methods.md say how."""
    return Recipe(method=METHODS[method]())
