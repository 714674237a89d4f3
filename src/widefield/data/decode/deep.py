"""Values of image files of more than 8 bits: depths and raw modes that Pillow reads by halves."""

import sys
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile

from widefield.core.types import Range
from widefield.data.decode.black_white import sample_pixels
from widefield.data.examples import Encoded

_FULL = 65_535
_WHITE = 255.0
_BITS_PER_SAMPLE, _PHOTOMETRIC, _PLANAR, _SAMPLE_FORMAT = 258, 262, 284, 339
_WHITE_IS_ZERO, _SEPARATE, _SIGNED = 0, 2, 2
_SIZ, _SIZ_DEPTH, _JP2_HEAD = b"\xff\x4f\xff\x51", 42, 1 << 16
"""Start of a JPEG 2000 codestream, the place of its depth less one, bytes in which it begins."""

_SWAPPED = {"16B": "16L", "16L": "16B", "16N": "16B" if sys.byteorder == "little" else "16L"}
"""Raw modes of Pillow for the upper byte of 16 bits, and those for the lower byte."""


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

    def sample(self) -> NDArray[Any]:
        """Return values of some of the opaque pixels, of all channels, [k]."""
        self._check_finite()
        visible = np.ones(self.values.shape[:2], dtype=np.bool_)
        if self.alpha is not None and self.alpha.any():
            visible = self.alpha > 0
        return sample_pixels(self.values[visible]).ravel()

    def to_8_bits(self, black_white: Range) -> Image.Image:
        """Return the image in 8 bits: the values (black, white) become 0 and 255."""
        self._check_finite()
        black, white = black_white
        values = np.clip(self.values.astype(np.float64), black, white)
        values = white - values if self.inverted else values - black
        pixels = np.round(values * (_WHITE / (white - black))).astype(np.uint8)
        image = Image.fromarray(pixels)
        if self.alpha is not None:
            image.putalpha(Image.fromarray(np.round(self.alpha * 255).astype(np.uint8)))
        image.getexif()[ExifTags.Base.Orientation] = self.orientation
        return image

    def _check_finite(self) -> None:
        if not np.isfinite([self.values.min(), self.values.max()]).all():
            raise ValueError("values that are not finite (NaN or infinity)")


def is_deep(image: Image.Image, file: Encoded) -> bool:
    """Return whether an image, which may not be loaded yet, has more than 8 bits."""
    if image.mode.startswith("I") or image.mode == "F" or _bits(image) > 8:
        return True
    return image.format == "PNG" and _head(file, 25)[24] == 16


def header_white(image: Image.Image, file: Encoded) -> float | None:
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
    """Return the values of a loaded image with more than 8 bits."""
    tags, bits = getattr(image, "tag_v2", {}) if image.format == "TIFF" else {}, _bits(image)
    orientation = image.getexif().get(ExifTags.Base.Orientation, 1)
    if image.mode.startswith("I") or image.mode == "F":
        values, transparent = np.asarray(image), image.info.get("transparency")
        if bits == 32 and values.dtype == np.int32 and not is_signed(image):
            values = values.view(np.uint32)  # Pillow reads both as signed
        return Deep(
            values,
            (values != transparent).astype(np.float64) if isinstance(transparent, int) else None,
            inverted=tags.get(_PHOTOMETRIC) == _WHITE_IS_ZERO,
            orientation=orientation,
        )
    if bits > 8 and (image.mode not in ("RGB", "RGBA") or tags.get(_PLANAR) == _SEPARATE):
        raise ValueError(f"{bits} bits in {image.mode}, in separate planes or other than RGB")
    colors, alpha = _split(_read_16_bits(file, str(image.format), image.tell()))
    transparent = image.info.get("transparency")
    if isinstance(transparent, tuple) and alpha is None:
        alpha = (colors != transparent).any(axis=-1).astype(np.float64)
    return Deep(colors, alpha, orientation=orientation)


def is_signed(image: Image.Image) -> bool:
    return image.format == "TIFF" and _SIGNED in getattr(image, "tag_v2", {}).get(
        _SAMPLE_FORMAT, ()
    )


def _head(file: Encoded, count: int) -> bytes:
    if isinstance(file, Path):
        with file.open("rb") as stream:
            return stream.read(count)
    assert isinstance(file, memoryview)
    return bytes(file[:count])


def _read_16_bits(file: Encoded, kind: str, page: int) -> NDArray[np.uint16]:
    """Read channels of 16 bits [H, W, C]; Pillow decodes one byte of each at a time."""
    upper, raw_mode = _bytes_of(file, kind, page, None)
    if raw_mode.startswith("LA"):  # RGBA has both bytes of both channels
        pixels = _bytes_of(file, kind, page, "RGBA")[0].astype(np.uint16)
        return pixels[..., ::2] * 256 + pixels[..., 1::2]
    name, _, order = raw_mode.partition(";")
    if name not in ("RGB", "RGBA", "RGBX") or order not in _SWAPPED:
        raise ValueError(f"16 bits as {raw_mode}")
    lower, _ = _bytes_of(file, kind, page, f"{name};{_SWAPPED[order]}")
    return upper.astype(np.uint16) * 256 + lower


def _bytes_of(
    file: Encoded, kind: str, page: int, raw_mode: str | None
) -> tuple[NDArray[np.uint8], str]:
    """Decode a page, optionally with another raw mode; also return its default raw mode."""
    assert not isinstance(file, Image.Image)
    with Image.open(file if isinstance(file, Path) else BytesIO(file), formats=(kind,)) as image:
        assert isinstance(image, ImageFile.ImageFile)
        image.seek(page)
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
