"""The published settings of Feature Dropout (Tamkin et al. 2022)."""

from widefield.methods import ProjectorSettings, SimCLRSettings
from widefield.recipe import Recipe


def feature_dropout(method: str = "simclr") -> Recipe:
    """Return the published recipe of SimCLR; its views are chosen apart, by `views`.

    The views of the paper are `viewmaker:published` and `expert:feature-dropout`.

    Raises:
        ValueError: the paper has no settings for this method.

    Source: Feature Dropout (Tamkin et al. 2022), appendix; the loss is that of the authors' code.
    """
    if method != SimCLRSettings.name:
        raise ValueError(
            f"the recipe feature-dropout has no settings for {method}: it is for simclr"
        )
    return Recipe(
        method=SimCLRSettings(
            lr=0.03,
            projector=ProjectorSettings(layers=3),
            temperature=0.07,
            loss="one-sided",
        ),
        epochs=200,
        optimizer="sgd",
        schedule="constant",
        weight_decay=1e-4,
        warmup_epochs=0.0,
    )
