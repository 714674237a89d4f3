"""Every recipe beside what its paper says: docs/recipes.md."""

from pages.format import table
from pages.published import SOURCES, published
from widefield.config.recipes import make_recipe

MACHINERY = (
    "device",
    "compile",
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


def recipes() -> str:
    """Return a table for each recipe and method."""
    return "\n\n".join(_section(n, method) for n, methods in SOURCES.items() for method in methods)


def _section(name: str, method: str) -> str:
    command = f"widefield pretrain DATA --recipe {name} --method {method}"
    return (
        f"## {name}, {method}\n\n`{command}`. Source: {published(name, method).source}.\n\n"
        + table(["setting", "value", "paper"], lines(name, method))
    )


def lines(name: str, method: str) -> list[list[str]]:
    """Return setting, the recipe's value and the paper's; none for what no setting chooses."""
    flat = make_recipe(name, method=method).flat()
    settings = {key: value for key, value in flat.items() if key not in MACHINERY}
    stated = published(name, method)
    paper = {key: _shown(value) for key, value in stated.values.items()}
    paper |= {**stated.differs, "method": method}
    rows = [[*_named(key, value), paper.get(key, "unstated")] for key, value in settings.items()]
    return rows + [[key, "", paper[key]] for key in stated.differs if key not in settings]


def _named(key: str, value: object) -> tuple[str, str]:
    return (key, "") if value is None else (f"`{key}`", _shown(value))


def _shown(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
