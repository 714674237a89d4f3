"""The recipe that runs use unless told otherwise: each method with its measured settings."""

from collections.abc import Collection

from widefield.methods import DEFAULT_METHOD, LONG_METHOD, METHODS
from widefield.recipe import Recipe

LONG = 20
"""Epochs from which rows teach as much as a second view does; docs/recipe.md has how found."""


def default(method: str, plants: Collection[str] = ()) -> Recipe:
    """Return the measured recipe of any method; docs/recipe.md and docs/methods.md say how.

    It is the same for all data.
    """
    return Recipe(method=METHODS[method]())


def method_for(**epochs: int) -> str:
    """Return the method of a run that names none: it goes by how often each example is seen.

    Raises:
        ValueError: the number of `epochs` is none.

    Example:
        >>> method_for(epochs=5), method_for(epochs=100)
        ('view-contrast', 'row-mix')
    """
    short = default(DEFAULT_METHOD).changed(epochs)
    return DEFAULT_METHOD if short.epochs < LONG else LONG_METHOD
