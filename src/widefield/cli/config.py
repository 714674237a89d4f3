"""The settings that a run begins with: a recipe by name, or a file."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

if TYPE_CHECKING:
    from widefield.config.recipe import Recipe

Config = Annotated[
    Path | None,
    Parameter(help="Start from the settings in this file: a run.yaml, or an edited copy of one."),
]
"""Type of the option `--config`."""


def settings_of(recipe: str, config: Path | None) -> "str | Recipe":
    """Return the name of a recipe, or the whole one that the file `config` holds.

    Raises:
        ValueError: both were chosen, or the file holds no recipe.
    """
    if config is None:
        return recipe
    if recipe != "default":
        raise ValueError(f"--config holds a whole recipe already: leave out --recipe {recipe}")
    from widefield.train.run_dir import recipe_of

    if not config.exists():
        raise ValueError(f"no settings at {config}: give the run.yaml of a run, or a copy of one")
    return recipe_of(config)
