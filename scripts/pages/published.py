"""What papers and their authors' code say of each setting, for the tables of docs/recipes.md."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from widefield.config.recipes import make_recipe
from widefield.methods import SDietConfig


@dataclass(frozen=True, kw_only=True)
class Published:
    """Values of one source for one method; what it does not name, it leaves unstated."""

    source: str
    """Paper and section, or files of the authors' code."""
    values: Mapping[str, Any]
    """Flat name of a setting -> its value in the source, the same as in the recipe."""
    differs: Mapping[str, str] = field(default_factory=dict)
    """Setting, or part that no setting chooses -> how the source has it and the recipe has not."""


def s_diet(method: str) -> Published:
    """Return what the paper says of the settings of `s-diet` or `diet`."""
    values = {
        "encoder": "resnet18",
        "stem": "cifar",
        "views": "expert",
        "epochs": 5000,
        "batch_size": 256,
        "optimizer": "adamw",
        "schedule": "cosine",
        "lr": 1e-3,
        "weight_decay": 0.05,
        "label_smoothing": 0.8,
        "normalize": method == SDietConfig.name,
    }
    if method == SDietConfig.name:
        values |= {
            "projector_layers": 3,
            "projector_batch_norm": False,
            "logit_scale": 1.0,
            "head_update": "estimated",
        }
    return Published(
        source="S-DIET (2025), sections 5 and 6, appendices C and E",
        values=values,
        differs={
            "encoder": "resnet18, and resnet50 for others of its results",
            "projector_dim": "unstated, above 200 by figure 1c",
            "decay_bias_and_norm": "unstated; no exception is named",
            "precision": "32 bits for the baselines, unstated for S-DIET",
        },
    )


def feature_dropout(method: str) -> Published:
    """Return what the paper and its code say of the settings."""
    return Published(
        source="Feature Dropout (Tamkin et al. 2022), and the authors' code and configurations",
        values={
            "encoder": "resnet18",
            "stem": "small",
            "views": "viewmaker:published",
            "viewmaker_budget": 0.05,
            "viewmaker_lr": 1e-3,
            "epochs": 200,
            "batch_size": 256,
            "optimizer": "sgd",
            "schedule": "constant",
            "lr": 0.03,
            "weight_decay": 1e-4,
            "decay_bias_and_norm": True,
            "warmup_epochs": 0.0,
            "loss": "one-sided",
            "temperature": 0.07,
            "projector_layers": 1,
            "projector_dim": 128,
        },
        differs={
            "views": "viewmaker:published, compared with expert:feature-dropout",
            "temperature": "0.07 in the code, 0.1 in the paper",
        },
    )


SOLO_LEARN_FILES = {
    "simclr": "simclr.yaml",
    "barlow-twins": "barlow.yaml",
    "byol": "byol.yaml",
    "simsiam": "simsiam.yaml",
    "vicreg": "vicreg.yaml",
    "moco": "mocov2plus.yaml",
}
SOLO_LEARN_DIFFERS = {
    "barlow-twins": {"factor of the loss": "0.1; here 1"},
    "simsiam": {
        "norm after the projector": "batch norm without gain; here none",
        "rate of the predictor": "constant; here as of the rest",
    },
    "moco": {
        "ema_decay at the end": "0.999; here the same throughout",
        "directions of the loss": "both; here one",
        "start of the queue": "random keys; here empty",
    },
}
"""What solo-learn has and no setting chooses."""


def solo_learn(method: str) -> Published:
    """Return what solo-learn's file and S-DIET say of the settings."""
    recipe = make_recipe("solo-learn", method=method)
    run = {
        name: getattr(recipe, name)
        for name in (
            "batch_size",
            "epochs",
            "optimizer",
            "schedule",
            "weight_decay",
            "decay_bias_and_norm",
            "warmup_epochs",
        )
    }
    differences = {**recipe.method.flat(), **recipe.encoder.flat(), **run}
    for name in ("gather_distributed", "loss"):
        differences.pop(name, None)
    return Published(
        source=f"solo-learn, scripts/pretrain/cifar/{SOLO_LEARN_FILES[method]}; "
        "views and precision: S-DIET (2025), appendix C.1",
        values={**differences, "views": "expert", "precision": "32"},
        differs={
            "first learning rate of the warm-up": "3e-5; here one step's share of the peak",
            **SOLO_LEARN_DIFFERS.get(method, {}),
        },
    )


PUBLISHED: dict[str, Callable[[str], Published]] = {
    "s-diet-paper": s_diet,
    "feature-dropout": feature_dropout,
    "solo-learn": solo_learn,
}
"""What the source of a recipe says of its settings; the default has none."""
