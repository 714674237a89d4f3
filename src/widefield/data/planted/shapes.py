"""`+shapes`: a square, a triangle or a circle in the middle of the image.

It has a random color and alpha 180/255, as published. It is 9 of 32 pixels high, at one of 3 x 3
positions inside the center third (ours): at a fixed position, a linear classifier on pixels finds
the shape. `as-published` fills the center third, rows and columns 10 to 21, in each image.

Source: the added features of Tamkin et al., "Feature Dropout" (2022), section 3.1.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from PIL import Image, ImageDraw

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

SHAPES = ("square", "triangle", "circle")
# Pixels of an image of 32: a shape moves within the center third, which has 11.
_SIDE = 9


@dataclass(frozen=True, kw_only=True)
class Shapes(ImageFeature):
    name: ClassVar[str] = "shapes"

    alpha: Alpha = 180 / 255
    as_published: bool = False
    """Fill the center third, always at the same position."""
    color: Literal["fixed", "random"] = "random"
    fresh: bool = False
    place: Literal["free", "fixed"] = "free"
    size: RelativeSize = 1.0

    def __post_init__(self) -> None:
        if self.as_published and (self.size, self.place) != (1.0, "free"):
            raise ValueError(
                f"'+{self.name}:as-published' has a fixed size and place: leave out size and place"
            )

    @classmethod
    def levels(cls) -> "tuple[Shapes, ...]":
        return (
            cls(size=0.8, alpha=0.5),
            cls(),
            cls(alpha=1.0),
            cls(size=1.2, alpha=1.0),
            cls(size=1.2, alpha=1.0, color="fixed", place="fixed"),
        )

    def draw(self, canvas: Canvas) -> Overlay:
        canvas.check(self.name)
        top_left, side, ranges = self._layout(canvas.size)
        masks = np.stack([shrunk(_silhouette(shape, side), side) for shape in SHAPES])
        overlay = self.overlay(
            canvas, SHAPES, masks, places=np.array([top_left]), jitter_range=np.array([ranges])
        )
        return overlay.at_fixed_places() if self.place == "fixed" else overlay

    def _layout(self, size: tuple[int, int]) -> tuple[list[int], int, list[int]]:
        """Return the smallest top and left, the side, and the numbers of tops and lefts."""
        first = [length // 3 for length in size]
        if self.as_published:  # inclusive ends, as PIL draws a rectangle
            return first, min(2 * length // 3 - length // 3 + 1 for length in size), [1, 1]
        side = scaled(self.size * _SIDE, min(size))
        thirds = [-(-length // 3) for length in size]
        return first, side, [max(length - side + 1, 1) for length in thirds]


def _silhouette(shape: str, side: int) -> Image.Image:
    big = side * OVERSAMPLING
    image = Image.new("L", (big, big))
    draw = ImageDraw.Draw(image)
    if shape == "square":
        draw.rectangle((0, 0, big, big), fill=255)
    elif shape == "triangle":
        draw.polygon([(0, big), (big / 2, 0), (big, big)], fill=255)
    else:
        draw.ellipse((0, 0, big - 1, big - 1), fill=255)
    return image
