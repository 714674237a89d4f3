"""Decoding of an image file to upright sRGB of 8 bits."""

import stat
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps

from widefield.core.form import center_fit, cut_share
from widefield.core.types import BlackWhite, Fit, Size
from widefield.data.decode.black_white import share_outside
from widefield.data.decode.color_profile import to_srgb
from widefield.data.decode.decoding import PIXEL_LIMIT, suppress_warnings
from widefield.data.decode.deep import deep_image, header_white, is_deep, is_signed
from widefield.data.examples import Encoded

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
"""Allowed formats: Pillow runs external programs for some of the others."""

# Chosen by hand: a few kilobytes may hold thousands of scans, and each takes the time of an image.
_MAX_SCANS, _MAX_SCAN_PIXELS = 100, 2_000_000_000
"""Limits of a progressive JPEG, each scan of which may code all pixels: scans, scans x pixels."""
_SCAN_MARKER = b"\xff\xda"
# Chosen by hand: a strip of 1 x 1,600,000 pixels would be resized to gigabytes and then cut.
_MAX_ASPECT = 16
"""Longer images are cut before they are resized."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded image as it is stored, and the choices made in decoding it."""

    pixels: NDArray[Any]
    """[H, W, C]."""
    choices: frozenset[str] = frozenset()
    """Some of `resized`, `first`, `alpha`, `turned`, `profile`, `no_profile`, `cmyk`, `deep`."""
    outside: float | None = None
    """Share of its values outside black and white, if the file does not define these."""
    cut: float = 0.0
    """Share of its area that is cut off."""


def decode(
    file: Encoded, black_white: BlackWhite | None = None, *, size: Size, fit: Fit = "crop"
) -> Decoded | None:
    """Decode one image to upright sRGB, uint8 [H, W, 3].

    The image is brought to `size` by `fit`. Transparent pixels become white, and only the first
    page or frame is used. An image of more than 8 bits is scaled so that `black_white` become 0 and
    255; without them the result is None. A damaged file raises the error of its decoder.
    """
    with open_image(file) as image:
        oriented = load_oriented(image, file, black_white)
    if oriented is None:
        return None
    rgb, choices, cut = oriented.rgb, oriented.choices, 0.0
    was_size = (rgb.height, rgb.width)
    if was_size != size:
        choices = choices | {"resized"}
        cut = cut_share(was_size, size, fit)
        rgb = _fit_image(rgb, size, fit)
    return Decoded(np.asarray(rgb), choices, oriented.outside, cut)


class OrientedImage(NamedTuple):
    """An image in upright sRGB at the size of its file, and the choices made, as of `Decoded`."""

    rgb: Image.Image
    choices: frozenset[str]
    outside: float | None


def load_oriented(
    image: Image.Image, file: Encoded, black_white: BlackWhite | None
) -> OrientedImage | None:
    """Load an open image; None for more than 8 bits without black and white."""
    # Before and after loading: the decoder of TIFFs turns an image and drops the tag, and a PNG may
    # have its EXIF behind the pixels.
    orientations = {_orientation(image)}
    # An MPO file is a photo with its preview, not two pages.
    is_multi_page = image.format != "MPO" and getattr(image, "is_animated", False)
    choices = {"first"} if is_multi_page else set()
    deep = is_deep(image, file)
    white = header_white(image, file) if deep else None
    if deep and white is None and black_white is None:
        return None
    image.load()
    orientations.add(image.getexif().get(ExifTags.Base.Orientation, 1))
    oriented, outside = image, None
    if deep:
        choices.add("deep")
        scale: Any = black_white if white is None else (0.0, white)  # one pair for all channels
        values = deep_image(image, file)
        outside = share_outside(values.values, *scale) if white is None else None
        oriented = values.to_8_bits(scale)
    elif image.mode == "L" and is_signed(image):  # Pillow reads them as unsigned
        raise ValueError("signed values of 8 bits")
    if orientations != {1}:  # without one, it would copy the image
        oriented = ImageOps.exif_transpose(oriented)
    # Before transparent pixels become white, so that this is the white of sRGB.
    if profile := image.info.get("icc_profile"):
        in_srgb = to_srgb(oriented, profile)
        if in_srgb is not oriented:
            choices.add("profile" if in_srgb else "no_profile")
        oriented = in_srgb or oriented
    if oriented.mode == "CMYK":
        choices.add("cmyk")
    rgb, is_transparent = _to_rgb(oriented)
    if is_transparent:
        choices.add("alpha")
    if orientations & set(range(2, 9)):
        choices.add("turned")
    return OrientedImage(rgb, frozenset(choices), outside)


def sample_values(file: Encoded) -> NDArray[Any]:
    """Return values of some pixels of an image of more than 8 bits, [k]."""
    with open_image(file) as image:
        image.load()
        return deep_image(image, file).sample()


def _fit_image(image: Image.Image, size: Size, fit: Fit) -> Image.Image:
    (height, width), (top, left) = center_fit((image.height, image.width), size, fit)
    resample = Image.Resampling.BICUBIC
    if max(height, width) <= _MAX_ASPECT * max(size):
        resized = image.resize((width, height), resample)
        return resized.crop((left, top, left + size[1], top + size[0]))
    # The same but for rounding, without the memory of what is cut off.
    x, y = image.width / width, image.height / height
    box = (left * x, top * y, (left + size[1]) * x, (top + size[0]) * y)
    return image.resize((size[1], size[0]), resample, box)


def header_size(files: Sequence[Encoded], index: int) -> Size | None:
    """Return (height, width) of an upright image from its header; None if it is unreadable."""
    with suppress_warnings():
        try:
            with open_image(files[index]) as image:
                return oriented_size(image)
        except Exception:  # reported when it is decoded
            return None


def open_image(file: Encoded) -> Image.Image:
    """Open an image by its content; check that decoding does not take minutes or gigabytes."""
    if isinstance(file, Image.Image):
        return file.copy()
    if isinstance(file, Path) and not stat.S_ISREG(file.stat().st_mode):
        raise ValueError("not a regular file")
    image = Image.open(file if isinstance(file, Path) else BytesIO(file), formats=FORMATS)
    try:
        _check_decode_cost(image, file)
    except ValueError:
        image.close()
        raise
    return image


def _check_decode_cost(image: Image.Image, file: Encoded) -> None:
    pixels = image.width * image.height
    if pixels > PIXEL_LIMIT:
        raise ValueError(
            f"{image.width}x{image.height} pixels, more than the limit of "
            f"{PIXEL_LIMIT // 1_000_000} million"
        )
    if image.info.get("progressive"):
        # Inside the data of a scan, 0xFF is never followed by a marker code.
        assert not isinstance(file, Image.Image)
        encoded = file.read_bytes() if isinstance(file, Path) else bytes(file)
        scans = encoded.count(_SCAN_MARKER)
        if scans > _MAX_SCANS or scans * pixels > _MAX_SCAN_PIXELS:
            raise ValueError(f"{scans} progressive scans of {pixels} pixels, more than the limit")


def _orientation(image: Image.Image) -> object:
    """Return the EXIF orientation in the header; 1 is upright."""
    # For a PNG without EXIF in its header, `getexif` would decode the image.
    has_exif = image.format != "PNG" or "exif" in image.info
    return image.getexif().get(ExifTags.Base.Orientation, 1) if has_exif else 1


def oriented_size(image: Image.Image) -> Size:
    """Return (height, width) after applying the EXIF orientation."""
    if _orientation(image) not in (5, 6, 7, 8):
        return image.height, image.width
    if image.format == "TIFF":  # its decoder applies the orientation
        image.load()
        return image.height, image.width
    return image.width, image.height


def _to_rgb(image: Image.Image) -> tuple[Image.Image, bool]:
    """Return the image in RGB on white, and whether it has transparent pixels."""
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB"), False
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    min_alpha = image.getchannel("A").getextrema()[0]
    assert isinstance(min_alpha, int | float)
    return Image.alpha_composite(white, image).convert("RGB"), min_alpha < 255
