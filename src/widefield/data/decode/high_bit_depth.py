"""Images of more than 8 bits: their values, and the black and white of a data set.

A file stores the bits of a value, but not which values the camera used: 12 bits in a file of 16, a
CT with an offset of 32768, or a thermal image between 51000 and 52000 would become a few levels of
gray. Black and white therefore come from the values of a data set, and a run stores them with its
encoder for all later data. Black is 0, and white the largest value of the bits in use, 2^b - 1,
where the values fill at least half of that; 0 and 1 for floats in [0, 1]. Otherwise they are the
smallest and largest values of a sample of the files.

Outliers do not decide: of each file 1 pixel or 0.01 % is left out at both ends, then what a wide
gap separates, as padding, then 0.02 % of the sample. Extremes within 10 % of the rest count again.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile

from widefield.core.types import Range
from widefield.data.examples import Encoded

_FULL = 65_535
_WHITE = 255.0
_BITS_PER_SAMPLE, _PHOTOMETRIC, _PLANAR, _SAMPLE_FORMAT = 258, 262, 284, 339
_WHITE_IS_ZERO, _SEPARATE, _SIGNED = 0, 2, 2
_SIZ, _SIZ_DEPTH, _JP2_HEAD = b"\xff\x4f\xff\x51", 42, 1 << 16
"""Start of a JPEG 2000 codestream, the place of its depth less one, bytes in which it begins."""

_SWAPPED = {"16B": "16L", "16L": "16B", "16N": "16B" if sys.byteorder == "little" else "16L"}
"""Raw modes of Pillow for the upper byte of 16 bits, and those for the lower byte."""

_FILLED = 0.5
"""Share of 0 to 2^b - 1 that the values fill, from which that is the range."""
_PIXELS = 1 << 16
"""Most values of an image from which its sample is taken."""
_POINTS = 257
"""Values in the sample of an image: its quantiles 0, 1/256, ..., 1."""
_TRIM_IMAGE, _TRIM_SAMPLE = 1e-4, 2e-4
"""Shares of an image's values and of a sample that are left out at each end."""
_MARGIN = 0.1
"""Share of the range of what is left in which an extreme may be beyond it and count."""
_MIN_DISTINCT = 16
"""Distinct values of the sample for each one beyond a gap that is left out."""


class ValueSample(NamedTuple):
    """Sample of the values of one image."""

    values: NDArray[np.float64]
    """The smallest value, quantiles without the extremes, the largest value."""
    whole: bool
    """Whether all values are integers."""
    is_float: bool
    """Whether they are stored as floating-point numbers."""


@dataclass(frozen=True, slots=True)
class Deep:
    """One image of more than 8 bits."""

    values: NDArray[Any]
    """[H, W] or [H, W, C]."""
    alpha: NDArray[np.float64] | None = None
    """Opacity in [0, 1], [H, W]."""
    inverted: bool = False
    """Whether black is the largest value."""
    orientation: int = 1
    """EXIF orientation to apply."""

    def sample(self) -> ValueSample:
        """Return a sample of the values of opaque pixels.

        Raises:
            ValueError: values that are not finite.
        """
        low, high = self._finite_extremes()
        visible = None if self.alpha is None else self.alpha > 0
        pixels = self.values[visible] if visible is not None and visible.any() else self.values
        channels = 1 if self.values.ndim == 2 else self.values.shape[2]
        pixels = pixels.reshape(-1, channels)
        pixels = pixels[:: -(-len(pixels) // _PIXELS)]
        ordered = np.sort(pixels, axis=None).astype(np.float64)
        trimmed = min(max(channels, int(_TRIM_IMAGE * len(ordered))), (len(ordered) - 1) // 2)
        quantiles = np.linspace(trimmed, len(ordered) - 1 - trimmed, _POINTS).round().astype(int)
        is_float = self.values.dtype.kind == "f"
        whole = not is_float or not np.any(ordered % 1)
        return ValueSample(np.concatenate([[low], ordered[quantiles], [high]]), whole, is_float)

    def outside(self, black_white: Range) -> float:
        """Return the share of values outside `black_white`, without the smallest and largest value.

        These two may be padding or saturated pixels, which are black or white in any case.
        """
        values, (black, white) = self.values, black_white
        outside = ((values < black) & (values > values.min())) | (
            (values > white) & (values < values.max())
        )
        return float(outside.mean())

    def to_8_bits(self, black_white: Range) -> Image.Image:
        """Return the image in 8 bits: the values (black, white) become 0 and 255.

        Raises:
            ValueError: values that are not finite.
        """
        self._finite_extremes()
        black, white = black_white
        values = np.clip(self.values.astype(np.float64), black, white)
        values = white - values if self.inverted else values - black
        pixels = np.round(values * (_WHITE / (white - black))).astype(np.uint8)
        image = Image.fromarray(pixels)
        if self.alpha is not None:
            image.putalpha(Image.fromarray(np.round(self.alpha * 255).astype(np.uint8)))
        image.getexif()[ExifTags.Base.Orientation] = self.orientation
        return image

    def _finite_extremes(self) -> tuple[float, float]:
        """Return the smallest and largest value."""
        low, high = float(self.values.min()), float(self.values.max())
        if not np.isfinite([low, high]).all():
            raise ValueError("values that are not finite (NaN or infinity)")
        return low, high


def find_black_white(samples: Sequence[ValueSample]) -> Range:
    """Return black and white for images with these values.

    Raises:
        ValueError: some images are floats in [0, 1], others are integers.

    Example:
        >>> ramp = np.linspace(0, 1, 257)
        >>> find_black_white([ValueSample(np.round(3000 * ramp), True, False)])
        (0.0, 4095.0)
        >>> find_black_white([ValueSample(np.round(31768 + 2040 * ramp), True, False)])
        (31768.0, 33808.0)
    """
    fractions = any(not sample.whole and sample.values[-1] <= 1 for sample in samples)
    integers = next((sample for sample in samples if not sample.is_float), None)
    if fractions and integers is not None:
        raise ValueError(
            f"some images are floats in [0, 1], and others integers up to "
            f"{integers.values[-1]:g}: bring them to one scale"
        )
    low, high = _robust_extremes(samples)
    if low < 0:
        return (low, high) if low < high else (low, low + 1)
    unit = integers is None and high <= 1
    white = 1.0 if unit else max(_WHITE, 2.0 ** int(high).bit_length() - 1)
    # Stretching integers up to 255 would add no level.
    keeps_all = white == _WHITE and all(sample.whole for sample in samples)
    fills = low == high or high - low >= _FILLED * white
    return (0.0, white) if fills or keeps_all else (low, high)


def _robust_extremes(samples: Sequence[ValueSample]) -> tuple[float, float]:
    """Return the smallest and largest value of a data set, without outliers."""
    extremes = np.concatenate([sample.values[[0, -1]] for sample in samples])
    kept = _without_outliers(np.sort(np.concatenate([sample.values[1:-1] for sample in samples])))
    trimmed = int(_TRIM_SAMPLE * len(kept))
    low, high = kept[trimmed], kept[-1 - trimmed]
    if low == high:  # nearly constant
        return float(extremes.min()), float(extremes.max())
    margin = _MARGIN * (high - low)
    near = extremes[(extremes >= low - margin) & (extremes <= high + margin)]
    return float(min([low, *near])), float(max([high, *near]))


def _without_outliers(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ascending values without those that a gap of more than half their span separates.

    These are few distinct values: padding, marks, or pixels that a sensor does not read.
    """
    for _ in range(2):  # at both ends
        distinct = np.unique(values)
        gaps = np.diff(distinct)
        if not len(gaps) or 2 * gaps.max() <= distinct[-1] - distinct[0]:
            break
        below = int(gaps.argmax()) + 1
        if below * _MIN_DISTINCT <= len(distinct) - below:
            values = values[values >= distinct[below]]
        elif (len(distinct) - below) * _MIN_DISTINCT <= below:
            values = values[values < distinct[below]]
        else:
            break
    return values


def is_deep(image: Image.Image, file: Encoded) -> bool:
    """Return whether an image, which may not be loaded yet, has more than 8 bits."""
    if image.mode.startswith("I") or image.mode == "F" or _bits(image) > 8:
        return True
    return image.format == "PNG" and _head(file, 25)[24] == 16


def stated_white(image: Image.Image, file: Encoded) -> float | None:
    """Return the value of white that a file, not loaded yet, defines by its header, or None.

    PPM, JPEG 2000 and TIFFs of 9 to 15 bits define it. 16 bits are those of the container.
    """
    if not image.mode.startswith("I"):
        return None
    if image.format == "PPM":
        assert isinstance(image, ImageFile.ImageFile)
        args = image.tile[0].args  # a raw mode, or one and the largest value
        return _FULL if isinstance(args, tuple) and args[-1] != _FULL else None
    if image.format == "JPEG2000":
        start = _head(file, _JP2_HEAD)
        depth = start[start.find(_SIZ) + _SIZ_DEPTH :][:1]
        return None if depth == b"\x0f" else _FULL
    return 2.0 ** _bits(image) - 1 if 8 < _bits(image) < 16 else None


def _bits(image: Image.Image) -> int:
    """Return the bits of a TIFF's values; 1 for other formats."""
    tags = getattr(image, "tag_v2", {}) if image.format == "TIFF" else {}
    return int(max(tags.get(_BITS_PER_SAMPLE, (1,))))


def deep_image(image: Image.Image, file: Encoded) -> Deep:
    """Return the values of a loaded image with more than 8 bits.

    Raises:
        ValueError: an unsupported format of values.
    """
    tags, bits = getattr(image, "tag_v2", {}) if image.format == "TIFF" else {}, _bits(image)
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    if image.mode.startswith("I") or image.mode == "F":
        values, transparent = np.asarray(image), image.info.get("transparency")
        if bits == 32 and values.dtype == np.int32 and not _is_signed(image):
            values = values.view(np.uint32)  # Pillow reads both as signed
        return Deep(
            values,
            (values != transparent).astype(np.float64) if isinstance(transparent, int) else None,
            inverted=tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO,
            orientation=orientation,
        )
    if bits > 8 and (image.mode not in ("RGB", "RGBA") or tags.get(_PLANAR) == _SEPARATE):
        raise ValueError(f"{bits} bits in {image.mode}, in separate planes or other than RGB")
    colors, alpha = _split(_read_16_bits(file, str(image.format)))
    transparent = image.info.get("transparency")
    if isinstance(transparent, tuple) and alpha is None:
        alpha = (colors != transparent).any(axis=-1).astype(np.float64)
    return Deep(colors, alpha, orientation=orientation)


def check_unsigned(image: Image.Image) -> None:
    """Check that an image of 8 bits has no signed values, which Pillow reads as unsigned.

    Raises:
        ValueError: it has.
    """
    if image.mode == "L" and _is_signed(image):
        raise ValueError("signed values of 8 bits")


def _is_signed(image: Image.Image) -> bool:
    return image.format == "TIFF" and _SIGNED in getattr(image, "tag_v2", {}).get(
        _SAMPLE_FORMAT, ()
    )


def _head(file: Encoded, count: int) -> bytes:
    """Return the first bytes of a file."""
    if isinstance(file, Path):
        with file.open("rb") as stream:
            return stream.read(count)
    assert isinstance(file, memoryview)
    return bytes(file[:count])


def _read_16_bits(file: Encoded, kind: str) -> NDArray[np.uint16]:
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


def _bytes_of(file: Encoded, kind: str, raw_mode: str | None) -> tuple[NDArray[np.uint8], str]:
    """Decode an image, optionally with another raw mode; also return its default raw mode."""
    assert not isinstance(file, Image.Image)
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
