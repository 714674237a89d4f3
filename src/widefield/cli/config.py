"""The recipe of a run, by name or from a file."""

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
    """Return the name of a recipe, or the recipe in the file `config`.

    Raises:
        ValueError: both are given, or the file has no recipe.
    """
    if config is None:
        return recipe
    if recipe != "default":
        raise ValueError(f"--config has a whole recipe already: leave out --recipe {recipe}")
    if not config.exists():
        raise ValueError(f"no settings at {config}: give the run.yaml of a run, or a copy of one")
    from widefield.train.run_dir import load_recipe

    return load_recipe(config)
