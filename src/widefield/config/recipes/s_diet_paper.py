"""The published settings of S-DIET (2025), appendix C, and of the DIET that it compares with."""

from collections.abc import Collection

from widefield.config.recipe import Recipe
from widefield.encoders import EncoderSettings
from widefield.methods import (
    DietConfig,
    HeadConfig,
    MethodConfig,
    ProjectorConfig,
    SDietConfig,
)

_EPOCHS = 5000
STACKED_EPOCHS = 500
"""Epochs where a digit is stacked on the image (appendix C.3)."""


def s_diet_paper(method: str = "s-diet", planted: Collection[str] = ()) -> Recipe:
    """Return the published recipe of `s-diet` or `diet`.

    The encoder is a ResNet-18, as in most of the paper, or `encoder="resnet50"`. Its first layer is
    3x3 for images of CIFAR's size alone.

    The paper does not state, and this recipe sets: the projector's hidden width; its output width,
    512, because figure 1c has more than 200 large singular values; no warm-up; initial weights as
    in torchvision, which table 2 needs; the last partial batch of an epoch is dropped.

    Raises:
        ValueError: the paper has no settings for this method.

    Source: S-DIET (2025), appendix C.
    """
    return Recipe(
        method=_method(method),
        encoder=EncoderSettings(name="resnet18", stem="cifar", zero_init_last=False),
        epochs=STACKED_EPOCHS if "stacked-digits" in planted else _EPOCHS,
        weight_decay=0.05,
        decay_bias_and_norm=True,
        warmup_epochs=0.0,
        precision="32",
    )


def _method(name: str) -> MethodConfig:
    if name == SDietConfig.name:
        return SDietConfig(
            lr=1e-3,
            projector=ProjectorConfig(layers=3, width=512, dim=512, batch_norm=False),
            logit_scale=1.0,
            label_smoothing=0.8,
            head=HeadConfig(lr_scale=1.0, init="random", update="estimated"),
        )
    if name == DietConfig.name:
        return DietConfig(lr=1e-3, head_lr_scale=1.0, label_smoothing=0.8)
    raise ValueError(
        f"the recipe s-diet-paper has no settings for {name}: it is for s-diet and diet"
    )
