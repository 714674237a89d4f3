"""Notes to the user on how images were decoded, one line each."""

import numpy as np
from numpy.typing import NDArray

from widefield.core.types import Size
from widefield.data.cache import Record
from widefield.data.spec import BUILT_IN, Spec

_CHOICES = {
    "first": "show the first of several pages or frames",
    "alpha": "are shown on white where they are transparent",
    "turned": "are turned as their EXIF orientation says",
    "cmyk": "come from CMYK, without its color profile",
}
"""Text of each choice in decoding, except size and bit depth."""

_CHUNK = 512


def split_note(spec: Spec, n: int, *, grouped: bool) -> list[str]:
    """Return a note if `spec` selects a split of a path."""
    if spec.split is None or spec.base in BUILT_IN:
        return []
    unit = "group" if grouped else "name"
    return [f"{spec.split} split: {n} examples, 80 / 20 by a hash of each {unit}"]


def decoding_notes(record: Record, n: int, size: Size) -> list[str]:
    """Return notes on resized images, images of more than 8 bits, and other choices."""
    choices, max_value = record.get("choices", {}), record.get("max_value")
    notes = []
    if choices.get("resized"):
        notes.append(
            f"{choices['resized']} of {n} images brought to {size[0]}x{size[1]}: "
            "resized by the shorter side, cut around the center"
        )
    if choices.get("deep"):
        outcome = " and were brought to 8"
        if max_value is not None:
            outcome = (
                f": values from 0 to {max_value:g} became 0 to 255 (the largest is "
                f"{record['largest']:g})"
            )
        notes.append(f"{choices['deep']} of {n} images have more than 8 bits{outcome}")
    parts = [f"{choices[name]} {text}" for name, text in _CHOICES.items() if choices.get(name)]
    return [*notes, f"of {n} images, {'; '.join(parts)}"] if parts else notes


def dark_note(images: NDArray[np.uint8]) -> list[str]:
    """Return a note if images uint8 [n, H, W, C] have only 0 and 1, as masks: they look black."""
    highest = 0
    for first in range(0, len(images), _CHUNK):
        highest = max(highest, int(images[first : first + _CHUNK].max()))
        if highest > 1:
            return []
    dark = "no pixel is above 1 of 255: masks of 0 and 1 are black unless multiplied by 255"
    return [dark] if highest else []
