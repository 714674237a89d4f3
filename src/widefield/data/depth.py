"""Images of more than 8 bits: their values, and which value of a data set is shown as white.

A file says how many bits a value takes, and not how many of them a camera filled: 12 bits in a file
of 16 would become 16 levels of grey. So white is the largest value that fits the bits in use, over
all images of a data set: 2^b - 1, at least 255; 1 for fractions in [0, 1]. A run keeps it with its
encoder, and all later data of the run are read by it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image
from torchvision.io import ImageReadMode, decode_png

_FULL = 65_535
_EIGHT_BITS = 255
_BITS_PER_SAMPLE, _PHOTOMETRIC, _PLANAR, _SAMPLE_FORMAT = 258, 262, 284, 339
_WHITE_IS_ZERO, _SEPARATE, _SIGNED = 0, 2, 2
_READ_TO_FULL_SCALE = {"PPM", "JPEG2000"}
"""Formats that say how many bits are in use, so that Pillow scales them to 16."""


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
    white: float | None = None
    """The value of white, where the file itself says it."""
    inverted: bool = False
    """Whether 0 is white."""
    upper_bits: bool = False
    """Whether the lower 8 of 16 bits are lost already."""
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

    def shown(self, white: float) -> Image.Image:
        """Return the image in 8 bits, where `white` is 255.

        Raises:
            ValueError: there are values above `white`, or they cannot be told apart any more.
        """
        largest = self.extent().largest
        if largest > white:
            raise ValueError(f"values up to {largest:g}, above {white:g}, which is white here")
        if self.upper_bits and white < _FULL:
            raise ValueError(
                f"16-bit colour of which {white:g} is white: save it as PNG, or in 8 bits"
            )
        wide = self.values.astype(np.float64)
        wide = white - wide if self.inverted else wide
        pixels = np.round(wide * (_EIGHT_BITS / white)).astype(np.uint8)
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
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    if image.format == "TIFF":
        return _of_tiff(image)
    if image.mode.startswith("I") or image.mode == "F":
        white = _FULL if image.format in _READ_TO_FULL_SCALE and image.mode != "F" else None
        values, clear = np.asarray(image), image.info.get("transparency")
        alpha = (values != clear).astype(np.float64) if isinstance(clear, int) else None
        return Deep(values, alpha, white=white, orientation=orientation)
    if image.format == "PNG" and _bits_of_png(file) == 16:
        return _of_colour_png(image, file, orientation)
    return None


def _of_tiff(image: Image.Image) -> Deep | None:
    tags = image.tag_v2  # type: ignore[attr-defined]
    bits = max(tags.get(_BITS_PER_SAMPLE, (1,)))
    if image.mode == "L" and _SIGNED in tags.get(_SAMPLE_FORMAT, ()):
        raise ValueError("signed values of 8 bits")
    if image.mode.startswith("I") or image.mode == "F":
        return Deep(
            np.asarray(image),
            white=None if bits >= 16 else 2.0**bits - 1,
            inverted=tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO,
        )
    if bits <= 8:
        return None
    if image.mode not in ("RGB", "RGBA") or tags.get(_PLANAR) == _SEPARATE:
        raise ValueError(f"{bits} bits in {image.mode}, in separate planes or other than RGB")
    upper = np.asarray(image).astype(np.uint16)  # Pillow keeps the upper byte of each value
    alpha = upper[..., 3] / _EIGHT_BITS if image.mode == "RGBA" else None
    return Deep(upper[..., :3] * 257, alpha, upper_bits=True)


def _bits_of_png(file: Path | memoryview) -> int:
    if isinstance(file, Path):
        with file.open("rb") as opened:
            return opened.read(25)[24]
    return file[24]


def _of_colour_png(image: Image.Image, file: Path | memoryview, orientation: int) -> Deep:
    """Read a PNG of 16 bits and several channels, of which Pillow keeps the upper bytes alone."""
    encoded = bytearray(file.read_bytes() if isinstance(file, Path) else file)
    values = decode_png(torch.frombuffer(encoded, dtype=torch.uint8), ImageReadMode.UNCHANGED)
    channels = values.numpy()
    colours = 1 if len(channels) == 2 else 3
    alpha = channels[-1] / _FULL if len(channels) in (2, 4) else None
    clear = image.info.get("transparency")
    if isinstance(clear, tuple) and alpha is None:
        alpha = (channels != np.reshape(clear, (3, 1, 1))).any(axis=0).astype(np.float64)
    values_last = np.moveaxis(channels[:colours], 0, -1)
    return Deep(
        values_last[..., 0] if colours == 1 else values_last, alpha, orientation=orientation
    )
