"""A recipe as a table, beside what its paper says."""

from dataclasses import dataclass
from typing import Any

from widefield.config.recipes import PUBLISHED, make_recipe
from widefield.data import plant_names

MACHINERY = (
    "device",
    "seed",
    "max_examples",
    "image_size",
    "sample_rate",
    "seconds",
    "checkpoint_every",
    "health_every",
    "gather_distributed",
    "head_storage",
    "head_moments",
    "head_second_moment",
)
"""Settings that say how a run is carried out, not what is trained."""

UNSTATED = "unstated"


@dataclass(frozen=True, kw_only=True)
class Line:
    """One setting: the recipe's value, and the paper's."""

    setting: str
    value: Any
    """The recipe's; None for what no setting chooses."""
    paper: str
    """The paper's, in words; "unstated" where it says nothing."""


@dataclass(frozen=True, kw_only=True)
class RecipeTable:
    """Every setting of a recipe that decides what is trained."""

    recipe: str
    method: str
    source: str
    """Paper or files that the recipe is from; "measured here" for the default."""
    lines: tuple[Line, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield recipe --json` prints them."""
        lines = {line.setting: {"value": line.value, "paper": line.paper} for line in self.lines}
        return {
            "recipe": self.recipe,
            "method": self.method,
            "source": self.source,
            "settings": lines,
        }


def recipe_table(name: str, *, method: str | None = None, data: str = "") -> RecipeTable:
    """Return the recipe `name` as a table.

    Args:
        name: which recipe.
        method: for which method; by default the recipe's first.
        data: the data spec, where the recipe depends on what is planted.

    Raises:
        ValueError: no such recipe or method, or a method that the recipe has no entry for.

    Example:
        >>> table = recipe_table("s-diet-paper")
        >>> [line.paper for line in table.lines if line.setting == "projector_width"]
        ['unstated']
    """
    given = {} if method is None else {"method": method}
    recipe = make_recipe(name, data=data, **given)
    flat = {key: value for key, value in recipe.flat().items() if key not in MACHINERY}
    if name not in PUBLISHED:
        lines = tuple(Line(setting=key, value=value, paper="") for key, value in flat.items())
        return RecipeTable(
            recipe=name, method=recipe.method.name, source="measured here", lines=lines
        )
    plants = plant_names(data) if data else ()
    published = PUBLISHED[name](recipe.method.name, plants)
    words = {key: shown(value) for key, value in published.values.items()}
    words |= published.differs
    words["method"] = recipe.method.name
    rows = {**flat, **dict.fromkeys(key for key in published.differs if key not in flat)}
    return RecipeTable(
        recipe=name,
        method=recipe.method.name,
        source=published.source,
        lines=tuple(
            Line(setting=key, value=value, paper=words.get(key, UNSTATED))
            for key, value in rows.items()
        ),
    )


def shown(value: object) -> str:
    """Return a value as the table has it."""
    return f"{value:g}" if isinstance(value, float) else str(value)
