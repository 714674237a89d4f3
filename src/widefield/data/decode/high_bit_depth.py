"""Images of more than 8 bits: their values, and which value of a data set is shown as white.

A file says how many bits a value takes, and not how many of them a camera filled: 12 bits in a file
of 16 would become 16 levels of gray. So white is the largest value that fits the bits in use, over
all images of a data set: 2^b - 1, at least 255; 1 for fractions in [0, 1]. A run keeps it with its
encoder, and all later data of the run are read by it.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile

_FULL = 65_535
_EIGHT_BITS = 255
_BITS_PER_SAMPLE, _PHOTOMETRIC, _PLANAR, _SAMPLE_FORMAT = 258, 262, 284, 339
_WHITE_IS_ZERO, _SEPARATE, _SIGNED = 0, 2, 2
_READ_TO_FULL_SCALE = {"PPM", "JPEG2000"}
"""Formats that say how many bits are in use, so that Pillow scales them to 16."""

_SWAPPED = {"16B": "16L", "16L": "16B", "16N": "16B" if sys.byteorder == "little" else "16L"}
"""Raw modes of Pillow that keep the upper byte of 16 bits, and those that keep the other one."""


class Extent(NamedTuple):
    """What the values of one image need."""

    largest: float
    whole: bool
    """Whether all of them are whole numbers."""
    unit: bool
    """Whether they are floating-point numbers in [0, 1], even if they happen to be whole."""


@dataclass(frozen=True, slots=True)
class Deep:
    """One image of more than 8 bits."""

    values: NDArray[np.generic]
    """[H, W] or [H, W, C], from 0 on."""
    alpha: NDArray[np.float64] | None = None
    """Opacity in [0, 1], [H, W]."""
    max_value: float | None = None
    """The value of white, where the file itself says it."""
    inverted: bool = False
    """Whether 0 is white."""
    orientation: int = 1
    """EXIF orientation that is still to be applied."""

    def extent(self) -> Extent:
        """Return what the values need.

        Raises:
            ValueError: values below 0, above 16 bits, or not finite.
        """
        low, high = float(self.values.min()), float(self.values.max())
        if not np.isfinite([low, high]).all():
            raise ValueError("values that are not finite (NaN or infinity)")
        if low < 0 or high > _FULL:
            raise ValueError(f"values from {low:g} to {high:g}; expected 0 to {_FULL}")
        is_float = self.values.dtype.kind == "f"
        whole = not is_float or not np.any(self.values.astype(np.float64) % 1)
        return Extent(high, whole, is_float and high <= 1)

    def shown(self, max_value: float) -> Image.Image:
        """Return the image in 8 bits, where `white` is 255.

        Raises:
            ValueError: there are values above `white`.
        """
        largest = self.extent().largest
        if largest > max_value:
            raise ValueError(f"values up to {largest:g}, above {max_value:g}, which is white here")
        wide = self.values.astype(np.float64)
        wide = max_value - wide if self.inverted else wide
        pixels = np.round(wide * (_EIGHT_BITS / max_value)).astype(np.uint8)
        image = Image.fromarray(pixels)
        if self.alpha is not None:
            image.putalpha(Image.fromarray(np.round(self.alpha * 255).astype(np.uint8)))
        image.getexif()[ExifTags.Base.Orientation] = self.orientation
        return image


def white_of(extents: Iterable[Extent]) -> float:
    """Return the value of white for images with these values.

    Raises:
        ValueError: fractions above 1, which no file says the meaning of.

    Example:
        >>> white_of([Extent(2047, True, False), Extent(300, True, False)])
        2047.0
    """
    extents = list(extents)
    largest = max(extent.largest for extent in extents)
    if all(extent.unit for extent in extents):
        return 1.0
    if not all(extent.whole for extent in extents):
        raise ValueError(
            f"floating-point images have fractions and values up to {largest:g}: "
            "bring them to [0, 1], or to whole numbers"
        )
    return float(max(_EIGHT_BITS, 2 ** int(largest).bit_length() - 1))


def deep_image(image: Image.Image, file: Path | memoryview) -> Deep | None:
    """Return the values of a loaded image that has more than 8 bits; None if it has not.

    Raises:
        ValueError: values that cannot be read right.
    """
    tags = getattr(image, "tag_v2", {}) if image.format == "TIFF" else {}
    bits = max(tags.get(_BITS_PER_SAMPLE, (1,)))
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    if image.mode == "L" and _SIGNED in tags.get(_SAMPLE_FORMAT, ()):
        raise ValueError("signed values of 8 bits")
    if image.mode.startswith("I") or image.mode == "F":
        values, clear = np.asarray(image), image.info.get("transparency")
        return Deep(
            values,
            (values != clear).astype(np.float64) if isinstance(clear, int) else None,
            max_value=_white_of_header(image, bits),
            inverted=tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO,
            orientation=orientation,
        )
    if bits > 8 and (image.mode not in ("RGB", "RGBA") or tags.get(_PLANAR) == _SEPARATE):
        raise ValueError(f"{bits} bits in {image.mode}, in separate planes or other than RGB")
    if bits > 8 or (image.format == "PNG" and _bits_of_png(file) == 16):
        colors, alpha = _split(_sixteen_bits(file, str(image.format)))
        clear = image.info.get("transparency")
        if isinstance(clear, tuple) and alpha is None:
            alpha = (colors != clear).any(axis=-1).astype(np.float64)
        return Deep(colors, alpha, orientation=orientation)
    return None


def _white_of_header(image: Image.Image, bits: int) -> float | None:
    """Return the value of white that a format tells, if it does."""
    if image.format in _READ_TO_FULL_SCALE and image.mode != "F":
        return _FULL
    return 2.0**bits - 1 if 8 < bits < 16 else None


def _bits_of_png(file: Path | memoryview) -> int:
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return opened.read(25)[24]
    return file[24]


def _sixteen_bits(file: Path | memoryview, kind: str) -> NDArray[np.uint16]:
    """Read several channels of 16 bits [H, W, C], of which Pillow keeps one byte at a time."""
    upper, raw_mode = _bytes_of(file, kind, None)
    if raw_mode.startswith("LA"):  # four bytes a pixel: both of each value
        four = _bytes_of(file, kind, "RGBA")[0].astype(np.uint16)
        return four[..., ::2] * 256 + four[..., 1::2]
    name, _, order = raw_mode.partition(";")
    if name not in ("RGB", "RGBA", "RGBX") or order not in _SWAPPED:
        raise ValueError(f"16 bits as {raw_mode}")
    lower, _ = _bytes_of(file, kind, f"{name};{_SWAPPED[order]}")
    return upper.astype(np.uint16) * 256 + lower


def _bytes_of(
    file: Path | memoryview, kind: str, raw_mode: str | None
) -> tuple[NDArray[np.uint8], str]:
    """Decode an image by another raw mode than its own, if one is given; also return its own."""
    with Image.open(file if isinstance(file, Path) else BytesIO(file), formats=(kind,)) as image:
        assert isinstance(image, ImageFile.ImageFile)
        tiles = image.tile
        own = tiles[0].args
        if raw_mode is not None:
            image.tile = [
                tile._replace(
                    args=(raw_mode, *tile.args[1:]) if isinstance(tile.args, tuple) else raw_mode
                )
                for tile in tiles
            ]
        image.load()
        return np.asarray(image), str(own[0] if isinstance(own, tuple) else own)


def _split(
    values: NDArray[np.uint16],
) -> tuple[NDArray[np.uint16], NDArray[np.float64] | None]:
    """Divide channels [H, W, C] into colors and opacity in [0, 1], if there is one."""
    if values.shape[-1] == 3:
        return values, None
    alpha = values[..., -1] / _FULL
    return (values[..., 0] if values.shape[-1] == 2 else values[..., :3]), alpha
