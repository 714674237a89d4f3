"""The recipe that runs use unless told otherwise: each method with its measured settings."""

from collections.abc import Collection
from typing import Any

from widefield.methods import DEFAULT_METHOD, LONG_METHOD, METHODS
from widefield.recipe import Recipe

LONG = 40
"""Epochs from which rows alone teach more than a second view; docs/recipe.md has how found."""


def default(method: str, plants: Collection[str] = ()) -> Recipe:
    """Return the measured recipe of any method; docs/recipe.md and docs/methods.md say how.

    It is the same for all data.
    """
    return Recipe(method=METHODS[method]())


def method_for(**settings: Any) -> str:
    """Return the method of a run that names none, by how often it sees each example.

    A run that goes on from an encoder takes what was measured on such runs.

    Args:
        **settings: `epochs` and `start`, if they are given.

    Raises:
        ValueError: one of them does not fit.

    Example:
        >>> method_for(epochs=5), method_for(epochs=100)
        ('view-contrast', 'row-contrast')
    """
    run = default(DEFAULT_METHOD).changed(settings)
    return LONG_METHOD if run.epochs >= LONG and run.start is None else DEFAULT_METHOD
