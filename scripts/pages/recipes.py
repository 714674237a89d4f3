"""Every recipe beside what its paper says: docs/recipes.md."""

from pages.format import table
from widefield.config.recipes import FIRST_METHOD, PUBLISHED
from widefield.config.recipes.beside import RecipeTable, recipe_table, shown
from widefield.config.recipes.solo_learn import BASELINES

METHODS = {
    **{name: (FIRST_METHOD[name],) for name in PUBLISHED},
    "s-diet-paper": ("s-diet", "diet"),
    "solo-learn": tuple(BASELINES),
}
"""Methods of each recipe that has a source."""


def recipes() -> str:
    """Return a table for each recipe and method."""
    return "\n\n".join(
        _section(recipe_table(name, method=method))
        for name, methods in METHODS.items()
        for method in methods
    )


def _section(recipe: RecipeTable) -> str:
    command = f"widefield recipe {recipe.recipe} --method {recipe.method}"
    rows = [
        [
            f"`{line.setting}`" if line.value is not None else line.setting,
            "" if line.value is None else shown(line.value),
            line.paper,
        ]
        for line in recipe.lines
    ]
    return (
        f"## {recipe.recipe}, {recipe.method}\n\n`{command}`. Source: {recipe.source}.\n\n"
        + table(["setting", "value", "paper"], rows)
    )
