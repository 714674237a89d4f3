"""The published settings of Feature Dropout (Tamkin et al. 2022)."""

from collections.abc import Collection

from widefield.config.recipe import Recipe
from widefield.encoders import EncoderSettings
from widefield.methods import ProjectorConfig, SimCLRConfig
from widefield.views import ViewSettings

BUDGETS = {"letters": 0.1}
"""Planted feature -> budget of the viewmaker; 0.05 for others."""


def feature_dropout(method: str = "simclr", planted: Collection[str] = ()) -> Recipe:
    """Return the published recipe of SimCLR.

    Views are those of the published viewmaker, with the budget for the planted features; the paper
    compares them with `views="expert:feature-dropout"`.

    Raises:
        ValueError: the paper has no settings for this method.

    Source: Feature Dropout (Tamkin et al. 2022), appendix; loss, projection, optimizers and the
    decay of all parameters are those of the authors' code and configurations.
    """
    if method != SimCLRConfig.name:
        raise ValueError(
            f"the recipe feature-dropout has no settings for {method}: it is for simclr"
        )
    return Recipe(
        method=SimCLRConfig(
            lr=0.03,
            projector=ProjectorConfig(layers=1, dim=128),
            temperature=0.07,
            loss="one-sided",
        ),
        views=ViewSettings.named("viewmaker:published").changed(
            {"viewmaker_budget": max(0.05, *(BUDGETS.get(name, 0) for name in ("", *planted)))}
        ),
        encoder=EncoderSettings(name="resnet18", stem="small", zero_init_last=False),
        epochs=200,
        optimizer="sgd",
        schedule="constant",
        weight_decay=1e-4,
        decay_bias_and_norm=True,
        warmup_epochs=0.0,
        precision="32",
    )
