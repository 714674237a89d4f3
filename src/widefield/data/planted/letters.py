"""`+letters`: a letter at four positions of the image.

It has a random color and font size 12 at 32 pixels; x and y of each position are sampled from
[0, 6] or [16, 21]. Held-out letters have a bold, slanted typeface.

Source: the added features of Tamkin et al., "Feature Dropout" (2022), section 3.1.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from widefield.data.planted.overlay import (
    OVERSAMPLING,
    Alpha,
    Canvas,
    ImageFeature,
    Overlay,
    RelativeSize,
    scaled,
    shrunk,
)

LETTERS = tuple("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
# Pixels of an image of 32, chosen by hand.
_SIDE, _FONT_SIZE = 11, 12
_BOLD_STROKE, _SLANT = 0.375, 0.2  # of held-out letters, chosen by hand


@dataclass(frozen=True, kw_only=True)
class Letters(ImageFeature):
    name: ClassVar[str] = "letters"

    alpha: Alpha = 1.0
    color: Literal["fixed", "random"] = "random"
    fresh: bool = False
    place: Literal["free", "fixed"] = "free"
    size: RelativeSize = 1.0

    @classmethod
    def levels(cls) -> "tuple[Letters, ...]":
        return (
            cls(size=0.8, alpha=0.6),
            cls(),
            cls(size=1.2),
            cls(size=1.2, color="fixed"),
            cls(size=1.2, color="fixed", place="fixed"),
        )

    def draw(self, canvas: Canvas) -> Overlay:
        canvas.check(self.name)
        side = scaled(self.size * _SIDE, min(canvas.size))
        (top, down), (left, right) = (_positions(length, side) for length in canvas.size)
        cells = [(row, column) for row in (0, 1) for column in (0, 1)]
        overlay = self.overlay(
            canvas,
            LETTERS,
            np.stack([shrunk(_glyph(letter, canvas.held_out), side) for letter in LETTERS]),
            places=np.array([(top[row], left[column]) for row, column in cells]),
            jitter_range=np.array([(down[row], right[column]) for row, column in cells]),
        )
        return overlay.at_fixed_places() if self.place == "fixed" else overlay


def _positions(length: int, side: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Return the first offset of both positions along a side, and the number of offsets of each."""
    second, last = scaled(16, length), min(scaled(21, length), length - side)
    return (0, second), (scaled(6, length) + 1, last - second + 1)


def _glyph(letter: str, bold_slanted: bool) -> Image.Image:
    """Draw a letter in the top left of an oversampled square; shrink its width if necessary."""
    side = _SIDE * OVERSAMPLING
    font = ImageFont.load_default(_FONT_SIZE * OVERSAMPLING)
    stroke = round(_BOLD_STROKE * OVERSAMPLING) if bold_slanted else 0
    canvas = Image.new("L", (3 * side, 2 * side))
    ImageDraw.Draw(canvas).text((side, 0), letter, fill=255, font=font, stroke_width=stroke)
    if bold_slanted:
        shear = (1, _SLANT, 0, 0, 1, 0)
        canvas = canvas.transform(canvas.size, Image.Transform.AFFINE, shear)
    glyph = canvas.crop(canvas.getbbox())
    if glyph.width > side:
        glyph = glyph.resize((side, glyph.height), Image.Resampling.BOX)
    square = Image.new("L", (side, side))
    square.paste(glyph, (0, 0))
    return square
