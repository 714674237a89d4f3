"""What a user is told of how images were read, in a few lines."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from widefield.core.types import Size

_CHOICES = {
    "first": "show the first of several pages or frames",
    "alpha": "are shown on white where they are transparent",
    "turned": "are turned as their EXIF orientation says",
    "cmyk": "come from CMYK, without its color profile",
}
"""What may be chosen for an image beside size and depth."""

_CHUNK = 512


def size_note(resized: int, n: int, size: Size) -> list[str]:
    """Say how many of `n` images were brought to one size."""
    if not resized:
        return []
    return [
        f"{resized} of {n} images brought to {size[0]}x{size[1]}: "
        "resized by the shorter side, cut around the center"
    ]


def choice_notes(choices: Mapping[str, int], n: int) -> list[str]:
    """Say in one line what was chosen for how many of `n` images."""
    made = [f"{choices[name]} {words}" for name, words in _CHOICES.items() if choices.get(name)]
    return [f"of {n} images, {'; '.join(made)}"] if made else []


def depth_note(deep: int, n: int, max_value: float | None, largest: float) -> list[str]:
    """Say what became white in images of more than 8 bits."""
    if not deep:
        return []
    if max_value is None:
        return [f"{deep} of {n} images have more than 8 bits and were brought to 8"]
    return [
        f"{deep} of {n} images have more than 8 bits: values from 0 to {max_value:g} became 0 to "
        f"255 (the largest is {largest:g})"
    ]


def dark_note(images: NDArray[np.uint8]) -> list[str]:
    """Say that images uint8 [n, H, W, C] hold 0 and 1 alone, as masks do: they look black."""
    highest = 0
    for first in range(0, len(images), _CHUNK):
        highest = max(highest, int(images[first : first + _CHUNK].max()))
        if highest > 1:
            return []
    if highest == 0:
        return []
    return ["no pixel is above 1 of 255: masks of 0 and 1 are black unless multiplied by 255"]
