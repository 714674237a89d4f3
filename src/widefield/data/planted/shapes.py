"""`+shapes`: a square, a triangle or a circle in the middle of the image.

It has a random color and alpha 180/255, as published. It is 9 pixels high at 32 pixels and stands
at one of 3 x 3 places inside the center third (ours): a fixed place can be read off the pixels by a
linear classifier. `as-published` fills the center third, rows and columns 10 to 21, in every image.

Source: the added features of Tamkin et al., "Feature Dropout" (2022), section 3.1.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from PIL import Image, ImageDraw

from widefield.data.planted.options import Alpha, RelativeSize
from widefield.data.planted.overlay import (
    OVERSAMPLING,
    Canvas,
    ImageOverlay,
    Overlay,
    scaled,
    shrunk,
)

SHAPES = ("square", "triangle", "circle")
_SIDE = 9


@dataclass(frozen=True, kw_only=True)
class Shapes(ImageOverlay):
    """Options of `+shapes`."""

    name: ClassVar[str] = "shapes"

    alpha: Alpha = 180 / 255
    as_published: bool = False
    """Fill the center third, always in the same place."""
    color: Literal["fixed", "random"] = "random"
    fresh: bool = False
    place: Literal["free", "fixed"] = "free"
    size: RelativeSize = 1.0

    def __post_init__(self) -> None:
        """Refuse another size or place beside the published ones.

        Raises:
            ValueError: there is one.
        """
        if self.as_published and (self.size, self.place) != (1.0, "free"):
            raise ValueError(
                f"'+{self.name}:as-published' has a size and a place of its own: "
                "leave out size and place"
            )

    @classmethod
    def grades(cls) -> "tuple[Shapes, ...]":
        """Return five, from hard to easy to see."""
        return (
            cls(size=0.8, alpha=0.5),
            cls(),
            cls(alpha=1.0),
            cls(size=1.2, alpha=1.0),
            cls(size=1.2, alpha=1.0, color="fixed", place="fixed"),
        )

    def draw(self, canvas: Canvas) -> Overlay:
        """Draw a sprite of each shape."""
        canvas.check(self.name)
        tops, side, ranges = self._layout(canvas.size)
        overlay = Overlay(
            name=self.name,
            classes=SHAPES,
            alpha_mask=np.stack([shrunk(_silhouette(shape, side), side) for shape in SHAPES]),
            intensity=np.ones((len(SHAPES), side, side), dtype=np.float32),
            sprite_class=np.arange(len(SHAPES)),
            places=np.array([tops]),
            jitter_range=np.array([ranges]),
            shared_offset=False,
            colored=self.color == "random",
            alpha=self.alpha,
            seed=canvas.seed,
            held_out=canvas.held_out,
            fresh=self.fresh,
        )
        return overlay.at_fixed_places() if self.place == "fixed" else overlay

    def _layout(self, size: tuple[int, int]) -> tuple[list[int], int, list[int]]:
        """Return the smallest top and left, the side, and how many tops and lefts there are."""
        first = [length // 3 for length in size]
        if self.as_published:  # both ends are part of it, as PIL draws a box
            return first, min(2 * length // 3 - length // 3 + 1 for length in size), [1, 1]
        side = scaled(self.size * _SIDE, min(size))
        third = [-(-length // 3) for length in size]
        return first, side, [max(length - side + 1, 1) for length in third]


def _silhouette(shape: str, side: int) -> Image.Image:
    """Return a shape that fills a square of `side`, oversampled."""
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
