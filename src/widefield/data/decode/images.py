"""Encoded images to RGB of 8 bits, and what had to be chosen on the way."""

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

from widefield.core.cpus import usable_cpus
from widefield.core.names import printable
from widefield.core.types import ProgressCallback, Size
from widefield.data.decode.high_bit_depth import Extent, deep_image, white_of
from widefield.data.decode.libtiff import quiet_libtiff
from widefield.data.skipped import Skipped

FORMATS = ("AVIF", "BMP", "GIF", "JPEG", "JPEG2000", "PNG", "PPM", "TGA", "TIFF", "WEBP")
"""What a file may be, whatever its name says: Pillow opens others by running programs."""

PIXEL_LIMIT = 100_000_000
"""A larger image is skipped unread: a few kilobytes can decompress to gigabytes."""

_SCANS, _SCANNED_PIXELS = 100, 2_000_000_000
"""A progressive JPEG may say every pixel again and again: at most so often, and so many in all."""
_START_OF_SCAN = b"\xff\xda"
_FILES_PER_TASK = 32

File = Path | memoryview


@dataclass(frozen=True, slots=True)
class Decoded:
    """One image, and what was chosen in reading it."""

    pixels: NDArray[np.uint8] | None
    """RGB, uint8 [H, W, 3]; None where it waits for the value of white."""
    choices: frozenset[str] = frozenset()
    """Some of `resized`, `first`, `alpha`, `turned`, `cmyk`, `deep`."""
    extent: Extent | None = None
    """Its values, if they were not in 8 bits and the file does not say what is white."""


@dataclass(slots=True)
class DecodeReport:
    """What became of many files."""

    failed: dict[int, Skipped] = field(default_factory=dict)
    """Files that cannot be read, by position."""
    choices: Counter[str] = field(default_factory=Counter)
    """How many images each choice was made for."""
    max_value: float | None = None
    """The value of white in images of more than 8 bits that do not say it."""
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

    Where `white` is not given, images of more than 8 bits are read twice, once for their values.

    Raises:
        ValueError: no value can be white in all images.
    """
    reading, extents = DecodeReport(max_value=max_value), {}
    rows: Sequence[int] = range(len(files))
    for i, decoded in _decode_rows(rows, files, out, max_value, progress):
        if isinstance(decoded, str):
            reading.failed[i] = Skipped(names[i], decoded)
        elif decoded.extent is not None and max_value is None:
            extents[i] = decoded.extent
        else:
            _count(reading, decoded)
    if not extents:
        return reading
    reading.max_value, rows = white_of(extents.values()), sorted(extents)
    for i, decoded in _decode_rows(
        rows, files, out, reading.max_value, _after(len(files), progress)
    ):
        if isinstance(decoded, str):
            reading.failed[i] = Skipped(names[i], decoded)
        else:
            _count(reading, decoded)
    return reading


def _count(reading: DecodeReport, decoded: Decoded) -> None:
    reading.choices.update(decoded.choices)
    if decoded.extent is not None:
        reading.largest = max(reading.largest, decoded.extent.largest)


def _after(first: int, progress: ProgressCallback | None) -> ProgressCallback | None:
    """Return `progress` for a second reading of some of `first` images."""
    if progress is None:
        return None
    return lambda done, total: progress(first + done, first + total)


def _decode_rows(
    rows: Sequence[int],
    files: Sequence[File],
    out: NDArray[np.uint8],
    max_value: float | None,
    progress: ProgressCallback | None,
) -> Iterator[tuple[int, Decoded | str]]:
    """Decode files[i] into out[i] for i in `rows`; yield what was chosen, or why it failed."""
    size: Size = (out.shape[1], out.shape[2])
    stop = threading.Event()

    def decode_task(first: int) -> list[tuple[int, Decoded | str]]:
        done: list[tuple[int, Decoded | str]] = []
        for i in rows[first : first + _FILES_PER_TASK]:
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

    with _quiet_decoders(), ThreadPoolExecutor(usable_cpus()) as pool:
        try:
            starts = range(0, len(rows), _FILES_PER_TASK)
            for start, done in zip(starts, pool.map(decode_task, starts), strict=True):
                yield from done
                if progress is not None:
                    progress(min(start + _FILES_PER_TASK, len(rows)), len(rows))
        except BaseException:  # an interrupt must not wait for a million files
            stop.set()
            raise


def decode(file: File, size: Size, max_value: float | None = None) -> Decoded:
    """Decode one image, upright, to RGB uint8 [H, W, 3].

    The shorter side is brought to `size` and the rest cut off around the center. Transparent
    pixels show white; of several pages or frames the first is taken. In images of more than 8
    bits the value `white` becomes 255; without it they are measured alone. Raises whatever the
    decoder raises on a damaged file.
    """
    with _open(file) as image:
        orientations = {_orientation(image)}
        choices = {"first"} if _has_more_pages(image) else set()
        # JPEG only: decoding at a fraction of the resolution is several times faster, and
        # twice the wanted size leaves the resampling filter enough to average.
        image.draft(None, (2 * max(size), 2 * max(size)))
        image.load()
        orientations.add(image.getexif().get(ExifTags.Base.Orientation, 1))
        was_size, deep, extent = _upright_size(image), deep_image(image, file), None
        if deep is not None:
            choices.add("deep")
            extent = deep.extent() if deep.max_value is None else None
            if deep.max_value is None and max_value is None:
                return Decoded(None, extent=extent)
            shown = deep.shown(deep.max_value or max_value or 1)
        else:
            shown = image
        if shown.mode == "CMYK":
            choices.add("cmyk")
        rgb, is_clear = _to_rgb(ImageOps.exif_transpose(shown))
    if is_clear:
        choices.add("alpha")
    if orientations & set(range(2, 9)):
        choices.add("turned")
    if was_size != size:
        choices.add("resized")
        rgb = ImageOps.fit(rgb, (size[1], size[0]), Image.Resampling.BICUBIC)
    return Decoded(np.asarray(rgb), frozenset(choices), extent)


def header_size(file: File) -> Size | None:
    """Return (height, width) of an image, upright, from its header; None if it cannot be read."""
    with _quiet_decoders():
        try:
            with _open(file) as image:
                return _upright_size(image)
        except Exception:  # reported with its reason when it is decoded
            return None


def _open(file: File) -> Image.Image:
    if isinstance(file, Path) and not stat.S_ISREG(file.stat().st_mode):
        raise ValueError("not a regular file")
    image = Image.open(file if isinstance(file, Path) else BytesIO(file), formats=FORMATS)
    try:
        _refuse_endless(image, file)
    except ValueError:
        image.close()
        raise
    return image


def _refuse_endless(image: Image.Image, file: File) -> None:
    """Refuse what would take minutes or gigabytes to decode."""
    pixels = image.width * image.height
    if pixels > PIXEL_LIMIT:
        raise ValueError(
            f"{image.width}x{image.height} pixels, more than the limit of "
            f"{PIXEL_LIMIT // 1_000_000} million"
        )
    if image.info.get("progressive"):
        # In the coded data of a scan 0xFF never stands before another code.
        encoded = file.read_bytes() if isinstance(file, Path) else bytes(file)
        scans = encoded.count(_START_OF_SCAN)
        if scans > _SCANS or scans * pixels > _SCANNED_PIXELS:
            raise ValueError(f"{scans} progressive scans of {pixels} pixels, more than the limit")


def _has_more_pages(image: Image.Image) -> bool:
    """Return whether there are pages or frames beside the first; a photo's preview is none."""
    return image.format != "MPO" and bool(getattr(image, "is_animated", False))


def _orientation(image: Image.Image) -> object:
    """Return the EXIF orientation that the header tells; 1 is upright."""
    # Asking a PNG for EXIF data that its header lacks would decode all of it.
    has_exif = image.format != "PNG" or "exif" in image.info
    return image.getexif().get(ExifTags.Base.Orientation, 1) if has_exif else 1


def _upright_size(image: Image.Image) -> Size:
    """Return (height, width) after the EXIF orientation is applied."""
    if _orientation(image) not in (5, 6, 7, 8):
        return image.height, image.width
    if image.format == "TIFF":  # the one decoder that turns the image by itself
        image.load()
        return image.height, image.width
    return image.width, image.height


def _to_rgb(image: Image.Image) -> tuple[Image.Image, bool]:
    """Return the image in RGB, on white, and whether any of it is transparent."""
    if not image.has_transparency_data:
        return image.convert("RGB"), False
    image = image.convert("RGBA")
    white = Image.new("RGBA", image.size, "white")
    least = image.getchannel("A").getextrema()[0]
    assert isinstance(least, int | float)
    return Image.alpha_composite(white, image).convert("RGB"), least < 255


def _reason(error: Exception) -> str:
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, Image.DecompressionBombError):
        return f"more pixels than the limit of {PIXEL_LIMIT // 1_000_000} million"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return printable(" ".join(str(error).split()) or type(error).__name__)


@contextmanager
def _quiet_decoders() -> Iterator[None]:
    """Keep decoders' warnings about odd files off the screen: what fails is reported by name."""
    with quiet_libtiff(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
