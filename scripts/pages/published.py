"""What papers and their authors' code say of each setting, for the tables of docs/recipes.md."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from widefield.config.recipes import make_recipe

SOURCES = yaml.safe_load(Path(__file__).with_name("published.yaml").read_text())
OF_RUN = (
    "batch_size",
    "epochs",
    "optimizer",
    "schedule",
    "weight_decay",
    "decay_bias_and_norm",
    "warmup_epochs",
)
"""Settings of a run that solo-learn's files have, beside those of method and encoder."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """Values of one source for one method; what it does not name, it leaves unstated."""

    source: str
    """Paper and section, or files of the authors' code."""
    values: Mapping[str, Any]
    """Flat name of a setting -> its value in the source, the same as in the recipe."""
    differs: Mapping[str, str] = field(default_factory=dict)
    """Setting, or part that no setting chooses -> how the source has it and the recipe has not."""


def published(recipe: str, method: str) -> Published:
    """Return what the source of a recipe says of the settings of a method."""
    stated = SOURCES[recipe][method]
    return _solo_learn(method, **stated) if recipe == "solo-learn" else Published(**stated)


def _solo_learn(method: str, file: str, differs: Mapping[str, str] | None = None) -> Published:
    recipe = make_recipe("solo-learn", method=method)
    run = {name: getattr(recipe, name) for name in OF_RUN}
    values = {**recipe.method.flat(), **recipe.encoder.flat(), **run}
    for name in ("gather_distributed", "loss"):
        values.pop(name, None)
    return Published(
        source=f"solo-learn, scripts/pretrain/cifar/{file}; "
        "views and precision: S-DIET (2025), appendix C.1",
        values={**values, "views": "expert", "precision": "32"},
        differs={
            "first learning rate of the warm-up": "3e-5; here one step's share of the peak",
            **(differs or {}),
        },
    )
