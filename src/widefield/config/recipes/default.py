"""The recipe that runs use unless told otherwise: each method with its measured settings."""

from collections.abc import Collection

from widefield.config.recipe import Recipe
from widefield.methods import DEFAULT_METHOD, LONG_METHOD, METHODS

LONG = 40
"""Epochs from which rows alone teach more than a second view; benchmarks/NOTEBOOK.md."""
OLD_ROWS = 64
"""Steps of an epoch above which rows are too old for that; benchmarks/NOTEBOOK.md."""


def default(method: str, plants: Collection[str] = ()) -> Recipe:
    """Return the measured recipe of any method; docs/recipe.md and docs/methods.md say how.

    It is the same for all data.
    """
    return Recipe(method=METHODS[method]())


def method_for(
    *,
    epochs: int,
    init: str | None = None,
    given: Collection[str] = (),
    steps_an_epoch: int = 0,
) -> str:
    """Return the method of a run that names none.

    A setting that one of the two alone has chooses it. Else it goes by how often the run sees each
    example, and how old rows are then; a run from a start takes what was measured on such runs.

    Args:
        epochs: those of the run.
        init: the encoder that it goes on from, if any.
        given: names of the settings that the user gave.
        steps_an_epoch: the age of rows; 0 while it is not known.

    Example:
        >>> method_for(epochs=5), method_for(epochs=100)
        ('view-contrast', 'row-contrast')
        >>> method_for(epochs=100, given=["cross_entropy_weight"])
        'view-contrast'
    """
    by_setting = chosen_by(given)
    if by_setting:
        return by_setting
    rows_teach = epochs >= LONG and steps_an_epoch <= OLD_ROWS and init is None
    return LONG_METHOD if rows_teach else DEFAULT_METHOD


def chosen_by(given: Collection[str]) -> str | None:
    """Return which of the two methods has settings, among those given, that the other lacks."""
    names = {method: set(METHODS[method]().flat()) for method in (DEFAULT_METHOD, LONG_METHOD)}
    for method, other in ((DEFAULT_METHOD, LONG_METHOD), (LONG_METHOD, DEFAULT_METHOD)):
        if (names[method] - names[other]).intersection(given):
            return method
    return None
