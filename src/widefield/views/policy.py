"""Type of the entries of `VIEWS`, and functions that build one."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from widefield.core.settings import Settings
from widefield.views.base import Augmentation
from widefield.views.chain import Chain
from widefield.views.image import ImageAugmentation
from widefield.views.stacked import StackedAugmentation
from widefield.views.turn import Turn

Stage = Literal["image", "picture", "spectrogram", "samples", "any"]
"""Input: images only, images and spectrograms, spectrograms only, windows and waveforms, or any."""


class Policy(NamedTuple):
    """A named augmentation with its settings.

    Example:
        >>> from widefield.views import VIEWS
        >>> VIEWS["cutout"].stage
        'picture'
    """

    summary: str
    """One sentence on its effect and its source."""
    settings: type[Settings]
    build: Callable[[Any, int], Augmentation]
    """Function from the settings and the number of channels to the augmentation."""
    stage: Stage = "image"


def fixed(summary: str, build: Callable[[], Augmentation], stage: Stage = "image") -> Policy:
    """Return a policy without settings."""
    return Policy(summary, Settings, lambda settings, channels: build(), stage)


def image_views(summary: str, **arguments: Any) -> Policy:
    """Return a policy that is an `ImageAugmentation` with these arguments."""
    return fixed(summary, lambda: ImageAugmentation(**arguments))


def turned_views(summary: str, **arguments: Any) -> Policy:
    """Return a policy that turns images, then changes them as `ImageAugmentation` does."""
    return fixed(
        summary,
        lambda: Chain([("turn", Turn()), ("image", ImageAugmentation(flip_prob=0.0, **arguments))]),
    )


def stacked_views() -> Augmentation:
    """Return the views of images with a digit stacked on them (S-DIET 2025, appendix C)."""
    rest = ImageAugmentation(
        crop_scale=(0.75, 1.0),
        flip_prob=0.0,
        grayscale_prob=0.0,
        blur_sigma=(0.1, 2.0),
        blur_prob=0.5,
    )
    return StackedAugmentation(image=ImageAugmentation(crop_scale=(0.08, 1.0)), rest=rest)
