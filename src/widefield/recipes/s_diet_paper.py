"""The published settings of S-DIET (2025), appendix C, and of the DIET that it compares with."""

from widefield.methods import DietSettings, MethodSettings, ProjectorSettings, SDietSettings
from widefield.recipe import Recipe


def s_diet_paper(method: str = "s-diet") -> Recipe:
    """Return the published recipe of `s-diet` or `diet`.

    Raises:
        ValueError: the paper has no settings for this method.

    Source: S-DIET (2025), appendix C.
    """
    return Recipe(method=_method(method), epochs=5000, weight_decay=0.05, warmup_epochs=0.0)


def _method(name: str) -> MethodSettings:
    if name == SDietSettings.name:
        return SDietSettings(
            lr=1e-3,
            projector=ProjectorSettings(layers=3, batch_norm=False),
            head_lr_scale=1.0,
            row_loss="batch-ce",
            logit_scale=1.0,
            label_smoothing=0.8,
            row_start="random",
            row_update="estimated",
        )
    if name == DietSettings.name:
        return DietSettings(lr=1e-3, head_lr_scale=1.0, label_smoothing=0.8)
    raise ValueError(
        f"the recipe s-diet-paper has no settings for {name}: it is for s-diet and diet"
    )
