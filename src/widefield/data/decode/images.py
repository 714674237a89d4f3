"""Decoding of image files to RGB of 8 bits, in parallel."""

import stat
import threading
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from widefield.core.center_fit import center_fit
from widefield.core.cpus import usable_cpus
from widefield.core.names import printable
from widefield.core.types import ProgressCallback, Size
from widefield.data.decode.high_bit_depth import ValueRange, deep_image, shared_max_value
from widefield.data.decode.libtiff import suppress_libtiff_errors
from widefield.data.skipped import Skipped

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
"""Allowed formats: Pillow runs external programs for some of the others."""

PIXEL_LIMIT = 100_000_000
"""Larger images are skipped: a few kilobytes may decompress to gigabytes."""

_MAX_SCANS, _MAX_SCAN_PIXELS = 100, 2_000_000_000
"""Limits of a progressive JPEG, each scan of which may code all pixels: scans, scans x pixels."""
_SCAN_MARKER = b"\xff\xda"
_MAX_ASPECT = 16
"""Longer images are cut before they are resized."""
_FILES_PER_TASK = 32

File = Path | memoryview


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded image, and the choices made in decoding it."""

    pixels: NDArray[np.uint8] | None
    """RGB, uint8 [H, W, 3]; None if the value of white is not known yet."""
    choices: frozenset[str] = frozenset()
    """Some of `resized`, `first`, `alpha`, `turned`, `cmyk`, `deep`."""
    value_range: ValueRange | None = None
    """Range of its values, if it has more than 8 bits and the file does not define white."""


@dataclass(slots=True)
class DecodeReport:
    """The result of decoding many files."""

    failed: dict[int, Skipped] = field(default_factory=dict)
    """Files that cannot be read, by position."""
    choices: Counter[str] = field(default_factory=Counter)
    """Number of images of each choice."""
    max_value: float | None = None
    """Value of white in images of more than 8 bits that do not define it."""
    largest: float = 0
    """The largest value in them."""


def decode_all(
    files: Sequence[File],
    names: Sequence[str],
    out: NDArray[np.uint8],
    progress: ProgressCallback | None = None,
    max_value: float | None = None,
) -> DecodeReport:
    """Decode files[i] into out[i] [n, H, W, 3], in parallel; rows of failed files are undefined.

    Without `max_value`, images of more than 8 bits are read twice, first for their ranges.

    Raises:
        ValueError: the images have no common value of white.
    """
    report, first = DecodeReport(max_value=max_value), 0
    rows: Sequence[int] = range(len(files))
    while rows:
        value_ranges: dict[int, ValueRange] = {}
        for i, decoded in _decode_rows(rows, files, out, report.max_value, first, progress):
            if isinstance(decoded, str):
                report.failed[i] = Skipped(names[i], decoded)
            elif decoded.value_range is not None and report.max_value is None:
                value_ranges[i] = decoded.value_range
            else:
                report.choices.update(decoded.choices)
                if decoded.value_range is not None:
                    report.largest = max(report.largest, decoded.value_range.largest)
        first, rows = len(files), sorted(value_ranges)
        if rows:
            report.max_value = shared_max_value(value_ranges.values())
    return report


def _decode_rows(
    rows: Sequence[int],
    files: Sequence[File],
    out: NDArray[np.uint8],
    max_value: float | None,
    first: int,
    progress: ProgressCallback | None,
) -> Iterator[tuple[int, Decoded | str]]:
    """Decode files[i] into out[i] for i in `rows`; yield what was chosen, or why it failed.

    `first` images were decoded in an earlier pass.
    """
    size: Size = (out.shape[1], out.shape[2])
    stop = threading.Event()

    def decode_task(start: int) -> list[tuple[int, Decoded | str]]:
        done: list[tuple[int, Decoded | str]] = []
        for i in rows[start : start + _FILES_PER_TASK]:
            if stop.is_set():
                break
            try:
                decoded = decode(files[i], size, max_value)
            except Exception as error:  # decoders raise every kind of error on damaged files
                done.append((i, _reason(error)))
                continue
            if decoded.pixels is not None:
                out[i] = decoded.pixels
            done.append((i, replace(decoded, pixels=None)))
        return done

    with _suppress_warnings(), ThreadPoolExecutor(usable_cpus()) as pool:
        try:
            starts = range(0, len(rows), _FILES_PER_TASK)
            for start, done in zip(starts, pool.map(decode_task, starts), strict=True):
                yield from done
                if progress is not None:
                    end = min(start + _FILES_PER_TASK, len(rows))
                    progress(first + end, first + len(rows))
        except BaseException:  # an interrupt must not wait for a million files
            stop.set()
            raise


def decode(file: File, size: Size, max_value: float | None = None) -> Decoded:
    """Decode one image to upright RGB, uint8 [H, W, 3].

    The image is resized by the shorter side and cropped to `size` at the center. Transparent pixels
    become white, and only the first page or frame is used. In images of more than 8 bits
    `max_value` becomes 255; without it, only their range is returned. A damaged file raises the
    error of its decoder.
    """
    with _open(file) as image:
        orientations = {_orientation(image)}
        # An MPO file is a photo with its preview, not two pages.
        is_multi_page = image.format != "MPO" and getattr(image, "is_animated", False)
        choices = {"first"} if is_multi_page else set()
        image.load()
        orientations.add(image.getexif().get(ExifTags.Base.Orientation, 1))
        was_size, deep, value_range = _upright_size(image), deep_image(image, file), None
        if deep is not None:
            choices.add("deep")
            value_range = deep.value_range() if deep.max_value is None else None
            if deep.max_value is None and max_value is None:
                return Decoded(None, value_range=value_range)
            image_8_bits = deep.to_8_bits(deep.max_value or max_value or 1)
        else:
            image_8_bits = image
        if image_8_bits.mode == "CMYK":
            choices.add("cmyk")
        rgb, is_transparent = _to_rgb(ImageOps.exif_transpose(image_8_bits))
    if is_transparent:
        choices.add("alpha")
    if orientations & set(range(2, 9)):
        choices.add("turned")
    if was_size != size:
        choices.add("resized")
        rgb = _center_fitted(rgb, size)
    return Decoded(np.asarray(rgb), frozenset(choices), value_range)


def _center_fitted(image: Image.Image, size: Size) -> Image.Image:
    """Return the image resized by the shorter side and cut at the center."""
    (height, width), (top, left) = center_fit((image.height, image.width), size)
    bicubic = Image.Resampling.BICUBIC
    if max(height, width) <= _MAX_ASPECT * max(size):
        resized = image.resize((width, height), bicubic)
        return resized.crop((left, top, left + size[1], top + size[0]))
    # The same but for rounding, without the memory of what is cut off.
    x, y = image.width / width, image.height / height
    box = (left * x, top * y, (left + size[1]) * x, (top + size[0]) * y)
    return image.resize((size[1], size[0]), bicubic, box)


def header_size(file: File) -> Size | None:
    """Return (height, width) of an upright image from its header; None if it is unreadable."""
    with _suppress_warnings():
        try:
            with _open(file) as image:
                return _upright_size(image)
        except Exception:  # reported when it is decoded
            return None


def _open(file: File) -> Image.Image:
    if isinstance(file, Path) and not stat.S_ISREG(file.stat().st_mode):
        raise ValueError("not a regular file")
    image = Image.open(file if isinstance(file, Path) else BytesIO(file), formats=FORMATS)
    try:
        _check_decode_cost(image, file)
    except ValueError:
        image.close()
        raise
    return image


def _check_decode_cost(image: Image.Image, file: File) -> None:
    """Check that decoding does not take minutes or gigabytes."""
    pixels = image.width * image.height
    if pixels > PIXEL_LIMIT:
        raise ValueError(
            f"{image.width}x{image.height} pixels, more than the limit of "
            f"{PIXEL_LIMIT // 1_000_000} million"
        )
    if image.info.get("progressive"):
        # Inside the data of a scan, 0xFF is never followed by a marker code.
        encoded = file.read_bytes() if isinstance(file, Path) else bytes(file)
        scans = encoded.count(_SCAN_MARKER)
        if scans > _MAX_SCANS or scans * pixels > _MAX_SCAN_PIXELS:
            raise ValueError(f"{scans} progressive scans of {pixels} pixels, more than the limit")


def _orientation(image: Image.Image) -> object:
    """Return the EXIF orientation in the header; 1 is upright."""
    # For a PNG without EXIF in its header, `getexif` would decode the image.
    has_exif = image.format != "PNG" or "exif" in image.info
    return image.getexif().get(ExifTags.Base.Orientation, 1) if has_exif else 1


def _upright_size(image: Image.Image) -> Size:
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
        return image.convert("RGB"), False
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    min_alpha = image.getchannel("A").getextrema()[0]
    assert isinstance(min_alpha, int | float)
    return Image.alpha_composite(white, image).convert("RGB"), min_alpha < 255


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, Image.DecompressionBombError):
        return f"more pixels than the limit of {PIXEL_LIMIT // 1_000_000} million"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return printable(" ".join(str(error).split()) or type(error).__name__)


@contextmanager
def _suppress_warnings() -> Iterator[None]:
    """Suppress the warnings of decoders: failures are reported by file name."""
    with suppress_libtiff_errors(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
