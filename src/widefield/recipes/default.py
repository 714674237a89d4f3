"""The recipe that runs use unless told otherwise: each method with its measured settings."""

from collections.abc import Collection

from widefield.methods import DEFAULT_METHOD, METHODS
from widefield.recipe import Recipe


def default(method: str = DEFAULT_METHOD, plants: Collection[str] = ()) -> Recipe:
    """Return the measured recipe of any method; docs/recipe.md and docs/methods.md say how.

    It is the same for all data.
    """
    return Recipe(method=METHODS[method]())
