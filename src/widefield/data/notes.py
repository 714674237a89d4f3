"""Notes to the user on how images were decoded, one line each."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from widefield.core.types import Size
from widefield.data.spec import BUILT_IN, Spec

_CHOICES = {
    "first": "show the first of several pages or frames",
    "alpha": "are shown on white where they are transparent",
    "turned": "are turned as their EXIF orientation says",
    "cmyk": "come from CMYK, without its color profile",
}
"""Text of each choice in decoding, except size and bit depth."""

_CHUNK = 512


def split_note(spec: Spec, n: int) -> list[str]:
    """Return a note if `spec` selects a split of a path."""
    if spec.split is None or spec.base in BUILT_IN:
        return []
    return [f"{spec.split} split: {n} examples, 80 / 20 by a hash of each name"]


def size_note(resized: int, n: int, size: Size) -> list[str]:
    """Return a note if some of `n` images were resized."""
    if not resized:
        return []
    return [
        f"{resized} of {n} images brought to {size[0]}x{size[1]}: "
        "resized by the shorter side, cut around the center"
    ]


def choices_note(choices: Mapping[str, int], n: int) -> list[str]:
    """Return a note with the number of images for each choice."""
    parts = [f"{choices[name]} {text}" for name, text in _CHOICES.items() if choices.get(name)]
    return [f"of {n} images, {'; '.join(parts)}"] if parts else []


def depth_note(deep: int, n: int, max_value: float | None, largest: float) -> list[str]:
    """Return a note on the value of white in images of more than 8 bits."""
    if not deep:
        return []
    if max_value is None:
        return [f"{deep} of {n} images have more than 8 bits and were brought to 8"]
    return [
        f"{deep} of {n} images have more than 8 bits: values from 0 to {max_value:g} became 0 to "
        f"255 (the largest is {largest:g})"
    ]


def dark_note(images: NDArray[np.uint8]) -> list[str]:
    """Return a note if images uint8 [n, H, W, C] have only 0 and 1, as masks: they look black."""
    highest = 0
    for first in range(0, len(images), _CHUNK):
        highest = max(highest, int(images[first : first + _CHUNK].max()))
        if highest > 1:
            return []
    if highest == 0:
        return []
    return ["no pixel is above 1 of 255: masks of 0 and 1 are black unless multiplied by 255"]
