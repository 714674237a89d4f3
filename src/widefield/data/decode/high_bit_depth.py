"""Images of more than 8 bits: their values, and the value of white of a data set.

A file stores the bits of a value, but not how many of them the camera used: 12 bits in a file of 16
would become 16 levels of gray. White is therefore the largest value that fits the bits in use, over
all images of a data set: 2^b - 1, at least 255; 1 for floats in [0, 1]. A run stores it with its
encoder and uses it for all later data.
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
_WHITE = 255
_BITS_PER_SAMPLE, _PHOTOMETRIC, _PLANAR, _SAMPLE_FORMAT = 258, 262, 284, 339
_WHITE_IS_ZERO, _SEPARATE, _SIGNED = 0, 2, 2
_READ_TO_FULL_SCALE = {"PPM", "JPEG2000"}
"""Formats that store how many bits are in use; Pillow scales them to 16."""

_SWAPPED = {"16B": "16L", "16L": "16B", "16N": "16B" if sys.byteorder == "little" else "16L"}
"""Raw modes of Pillow for the upper byte of 16 bits, and those for the lower byte."""


class ValueRange(NamedTuple):
    """Range of the values of one image."""

    largest: float
    whole: bool
    """Whether all values are integers."""
    unit: bool
    """Whether the values are floats in [0, 1]."""


@dataclass(frozen=True, slots=True)
class Deep:
    """One image of more than 8 bits."""

    values: NDArray[np.generic]
    """[H, W] or [H, W, C], non-negative."""
    alpha: NDArray[np.float64] | None = None
    """Opacity in [0, 1], [H, W]."""
    max_value: float | None = None
    """Value of white, if the file defines it."""
    inverted: bool = False
    """Whether 0 is white."""
    orientation: int = 1
    """EXIF orientation to apply."""

    def value_range(self) -> ValueRange:
        """Return the range of the values.

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
        return ValueRange(high, whole, is_float and high <= 1)

    def to_8_bits(self, max_value: float) -> Image.Image:
        """Return the image in 8 bits, scaled so that `max_value` is 255.

        Raises:
            ValueError: there are values above `max_value`.
        """
        largest = self.value_range().largest
        if largest > max_value:
            raise ValueError(f"values up to {largest:g}, above {max_value:g}, which is white here")
        values = self.values.astype(np.float64)
        values = max_value - values if self.inverted else values
        pixels = np.round(values * (_WHITE / max_value)).astype(np.uint8)
        image = Image.fromarray(pixels)
        if self.alpha is not None:
            image.putalpha(Image.fromarray(np.round(self.alpha * 255).astype(np.uint8)))
        image.getexif()[ExifTags.Base.Orientation] = self.orientation
        return image


def shared_max_value(value_ranges: Iterable[ValueRange]) -> float:
    """Return the value of white for images with these ranges.

    Raises:
        ValueError: floats above 1 that are not integers.

    Example:
        >>> shared_max_value([ValueRange(2047, True, False), ValueRange(300, True, False)])
        2047.0
    """
    value_ranges = list(value_ranges)
    largest = max(value_range.largest for value_range in value_ranges)
    if all(value_range.unit for value_range in value_ranges):
        return 1.0
    if not all(value_range.whole for value_range in value_ranges):
        raise ValueError(
            f"floating-point images have fractions and values up to {largest:g}: "
            "bring them to [0, 1], or to whole numbers"
        )
    return float(max(_WHITE, 2 ** int(largest).bit_length() - 1))


def deep_image(image: Image.Image, file: Path | memoryview) -> Deep | None:
    """Return the values of a loaded image with more than 8 bits, or None.

    Raises:
        ValueError: an unsupported format of values.
    """
    tags = getattr(image, "tag_v2", {}) if image.format == "TIFF" else {}
    bits = max(tags.get(_BITS_PER_SAMPLE, (1,)))
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    if image.mode == "L" and _SIGNED in tags.get(_SAMPLE_FORMAT, ()):
        raise ValueError("signed values of 8 bits")
    if image.mode.startswith("I") or image.mode == "F":
        values, transparent = np.asarray(image), image.info.get("transparency")
        max_value = 2.0**bits - 1 if 8 < bits < 16 else None
        if image.format in _READ_TO_FULL_SCALE and image.mode != "F":
            max_value = _FULL
        return Deep(
            values,
            (values != transparent).astype(np.float64) if isinstance(transparent, int) else None,
            max_value=max_value,
            inverted=tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO,
            orientation=orientation,
        )
    if bits > 8 and (image.mode not in ("RGB", "RGBA") or tags.get(_PLANAR) == _SEPARATE):
        raise ValueError(f"{bits} bits in {image.mode}, in separate planes or other than RGB")
    if bits > 8 or (image.format == "PNG" and _bits_of_png(file) == 16):
        colors, alpha = _split(_read_16_bits(file, str(image.format)))
        transparent = image.info.get("transparency")
        if isinstance(transparent, tuple) and alpha is None:
            alpha = (colors != transparent).any(axis=-1).astype(np.float64)
        return Deep(colors, alpha, orientation=orientation)
    return None


def _bits_of_png(file: Path | memoryview) -> int:
    if isinstance(file, Path):
        with file.open("rb") as stream:
            return stream.read(25)[24]
    return file[24]


def _read_16_bits(file: Path | memoryview, kind: str) -> NDArray[np.uint16]:
    """Read channels of 16 bits [H, W, C]; Pillow decodes one byte of each at a time."""
    upper, raw_mode = _bytes_of(file, kind, None)
    if raw_mode.startswith("LA"):  # RGBA has both bytes of both channels
        pixels = _bytes_of(file, kind, "RGBA")[0].astype(np.uint16)
        return pixels[..., ::2] * 256 + pixels[..., 1::2]
    name, _, order = raw_mode.partition(";")
    if name not in ("RGB", "RGBA", "RGBX") or order not in _SWAPPED:
        raise ValueError(f"16 bits as {raw_mode}")
    lower, _ = _bytes_of(file, kind, f"{name};{_SWAPPED[order]}")
    return upper.astype(np.uint16) * 256 + lower


def _bytes_of(
    file: Path | memoryview, kind: str, raw_mode: str | None
) -> tuple[NDArray[np.uint8], str]:
    """Decode an image, optionally with another raw mode; also return its default raw mode."""
    with Image.open(file if isinstance(file, Path) else BytesIO(file), formats=(kind,)) as image:
        assert isinstance(image, ImageFile.ImageFile)
        tiles = image.tile
        default = tiles[0].args
        if raw_mode is not None:
            image.tile = [
                tile._replace(
                    args=(raw_mode, *tile.args[1:]) if isinstance(tile.args, tuple) else raw_mode
                )
                for tile in tiles
            ]
        image.load()
        return np.asarray(image), str(default[0] if isinstance(default, tuple) else default)


def _split(
    values: NDArray[np.uint16],
) -> tuple[NDArray[np.uint16], NDArray[np.float64] | None]:
    """Split channels [H, W, C] into colors and opacity in [0, 1], or None."""
    if values.shape[-1] == 3:
        return values, None
    alpha = values[..., -1] / _FULL
    return (values[..., 0] if values.shape[-1] == 2 else values[..., :3]), alpha
