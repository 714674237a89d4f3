"""Decoding of image files to RGB of 8 bits, in parallel."""

import stat
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError

from widefield.core.center_fit import center_fit, cut_share
from widefield.core.cpus import usable_cpus
from widefield.core.names import printable
from widefield.core.types import BlackWhite, Fit, ProgressCallback, Range, Size
from widefield.data.cache import DecodingJournal, digest_of_example
from widefield.data.decode.color_profile import to_srgb
from widefield.data.decode.high_bit_depth import (
    ValueSample,
    check_unsigned,
    deep_image,
    find_black_white,
    is_deep,
    stated_white,
)
from widefield.data.decode.libtiff import suppress_libtiff_errors
from widefield.data.examples import Encoded
from widefield.data.select import spread_rows
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
_TIMED_FILES = 64
"""Files that an estimate of the time decodes."""

_RANGE_FILES = 256
"""Files from whose values black and white are found."""
_MAX_OUTSIDE = 0.25
"""Largest share of values outside a given black and white; with more, the scale is another one."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """A decoded image, and the choices made in decoding it."""

    pixels: NDArray[np.uint8]
    """RGB, uint8 [H, W, 3]."""
    choices: frozenset[str] = frozenset()
    """Some of `resized`, `first`, `alpha`, `turned`, `profile`, `no_profile`, `cmyk`, `deep`."""
    outside: float | None = None
    """Share of its values outside black and white, if the file does not define these."""
    cut: float = 0.0
    """Share of its area that is cut off."""


@dataclass(slots=True)
class DecodeReport:
    """The result of decoding many files."""

    failed: dict[int, Skipped] = field(default_factory=dict)
    """Files that cannot be read, by position."""
    choices: Counter[str] = field(default_factory=Counter)
    """Number of images of each choice."""
    black_white: BlackWhite | None = None
    """Black and white in images of more than 8 bits that do not define them."""
    sampled: int = 0
    """Number of images whose values gave black and white; 0 if these were given."""
    outside: list[float] = field(default_factory=list)
    """Share of the values outside them, of each such image."""
    cut: float = 0.0
    """Sum of the shares of their areas that are cut off."""

    def add(self, names: Sequence[str], row: int, result: "Result | str") -> None:
        """Count the result of a row, or why it failed."""
        if isinstance(result, str):
            self.failed[row] = Skipped(names[row], result)
            return
        choices, outside, cut = result
        self.cut += cut
        self.choices.update(choices)
        self.outside += [] if outside is None else [outside]


Result = tuple[list[str], float | None, float]
"""Choices made in decoding an image, the share of its values outside black and white, and the share
of its area that is cut off."""


def decode_all(
    files: Sequence[Encoded],
    names: Sequence[str],
    out: NDArray[Any],
    progress: ProgressCallback | None = None,
    black_white: Range | None = None,
    journal: DecodingJournal | None = None,
    *,
    size: Size,
    fit: Fit = "crop",
) -> DecodeReport:
    """Decode files[i] into out[i] [n, H, W, 3], in parallel; rows of failed files are undefined.

    Into uint64 [n] it writes the digest of each image, for those that are decoded at each read.
    Without `black_white`, a sample of the images of more than 8 bits is read first. Rows that the
    `journal` has are in `out` already.

    Raises:
        ValueError: the images have no common black and white, or many values are outside.
    """
    report = DecodeReport(black_white=black_white)
    done: dict[int, Any] = {} if journal is None else journal.done
    if journal is not None and black_white is None and "black_white" in journal.facts:
        black, white = journal.facts["black_white"]
        report.black_white, report.sampled = (black, white), journal.facts["sampled"]

    def decode_row(i: int) -> Result | None:
        scale: Any = report.black_white  # one pair for all channels, as given or found
        decoded = decode(files[i], size, scale, fit)
        if decoded is None:
            return None
        out[i] = decoded.pixels if out.ndim > 1 else digest_of_example(decoded.pixels)
        return sorted(decoded.choices), decoded.outside, decoded.cut

    for i, result in done.items():
        report.add(names, i, result)
    rows = [i for i in range(len(files)) if i not in done]
    first = len(files) - len(rows)
    while rows:
        deep: list[int] = []
        for i, result in in_parallel(decode_row, rows, first, progress):
            if result is None:
                deep.append(i)
                continue
            report.add(names, i, result)
            if journal is not None:
                journal.add(i, result)
        first, rows = len(files), _find_black_white(files, names, sorted(deep), report)
        if rows and journal is not None:
            journal.state({"black_white": report.black_white, "sampled": report.sampled})
    if black_white is not None:
        check_inside(report.outside, black_white)
    return report


def seconds_to_decode(files: Sequence[Encoded], size: Size) -> float:
    """Return an estimate of the seconds that decoding takes, from a few of the files."""
    rows = spread_rows(len(files), _TIMED_FILES).tolist()
    start_time = time.perf_counter()
    for _ in in_parallel(lambda i: decode(files[i], size), rows, 0, None):
        pass
    return (time.perf_counter() - start_time) * len(files) / max(len(rows), 1)


def _find_black_white(
    files: Sequence[Encoded], names: Sequence[str], rows: list[int], report: DecodeReport
) -> list[int]:
    """Set `report.black_white` from a sample of the files `rows`; return those that are readable.

    Raises:
        ValueError: the images have no common scale.
    """
    while rows and report.black_white is None:
        sampled = [rows[i] for i in spread_rows(len(rows), _RANGE_FILES)]
        samples = []
        for i, sample in in_parallel(lambda i: sample_values(files[i]), sampled, 0, None):
            if isinstance(sample, str):
                report.failed[i] = Skipped(names[i], sample)
            else:
                samples.append(sample)
        if samples:
            report.black_white, report.sampled = find_black_white(samples), len(samples)
        rows = [i for i in rows if i not in report.failed]
    return rows


def check_inside(outside: Sequence[float], black_white: BlackWhite) -> None:
    """Check that the images have the scale of a given black and white."""
    share = sum(outside) / max(len(outside), 1)
    if share > _MAX_OUTSIDE:
        ranges = np.array(black_white).reshape(-1, 2)
        black, white = ranges[:, 0].min(), ranges[:, 1].max()
        raise ValueError(
            f"{share:.0%} of the values of {len(outside)} images are outside {black:.7g} to "
            f"{white:.7g}, which are black and white here: bring them to that scale"
        )


def in_parallel(
    work: Callable[[int], Any],
    rows: Sequence[int],
    first: int,
    progress: ProgressCallback | None,
) -> Iterator[tuple[int, Any]]:
    """Call `work` for each of `rows` in threads; yield its result, or why it failed.

    `first` images were decoded in an earlier pass.
    """
    stop = threading.Event()

    def task(start: int) -> list[tuple[int, Any]]:
        done: list[tuple[int, Any]] = []
        for i in rows[start : start + _FILES_PER_TASK]:
            if stop.is_set():
                break
            try:
                done.append((i, work(i)))
            except Exception as error:  # decoders raise every kind of error on damaged files
                done.append((i, reason_of(error)))
        return done

    with suppress_warnings(), ThreadPoolExecutor(usable_cpus()) as pool:
        try:
            starts = range(0, len(rows), _FILES_PER_TASK)
            for start, done in zip(starts, pool.map(task, starts), strict=True):
                yield from done
                if progress is not None:
                    end = min(start + _FILES_PER_TASK, len(rows))
                    progress(first + end, first + len(rows))
        except BaseException:  # an interrupt must not wait for a million files
            stop.set()
            raise


def decode(
    file: Encoded, size: Size, black_white: Range | None = None, fit: Fit = "crop"
) -> Decoded | None:
    """Decode one image to upright sRGB, uint8 [H, W, 3].

    The image is brought to `size` by `fit`. Transparent pixels become white, and only the first
    page or frame is used. An image of more than 8 bits is scaled so that `black_white` become 0 and
    255; without them the result is None. A damaged file raises the error of its decoder.
    """
    with open_image(file) as image:
        upright = load_upright(image, file, black_white)
    if upright is None:
        return None
    rgb, choices, cut = upright.rgb, upright.choices, 0.0
    was_size = (rgb.height, rgb.width)
    if was_size != size:
        choices = choices | {"resized"}
        cut = cut_share(was_size, size, fit)
        rgb = _fitted(rgb, size, fit)
    return Decoded(np.asarray(rgb), choices, upright.outside, cut)


class Upright(NamedTuple):
    """An image in upright sRGB at the size of its file, and the choices made, as of `Decoded`."""

    rgb: Image.Image
    choices: frozenset[str]
    outside: float | None


def load_upright(image: Image.Image, file: Encoded, black_white: Range | None) -> Upright | None:
    """Load an open image; None for more than 8 bits without black and white."""
    orientations = {_orientation(image)}
    # An MPO file is a photo with its preview, not two pages.
    is_multi_page = image.format != "MPO" and getattr(image, "is_animated", False)
    choices = {"first"} if is_multi_page else set()
    scale, stated, outside = black_white, None, None
    if deep := is_deep(image, file):
        stated = stated_white(image, file)
        scale = black_white if stated is None else (0.0, stated)
        if scale is None:
            return None
    image.load()
    orientations.add(image.getexif().get(ExifTags.Base.Orientation, 1))
    upright = image
    if deep and scale is not None:
        choices.add("deep")
        values = deep_image(image, file)
        outside = values.outside(scale) if stated is None else None
        upright = values.to_8_bits(scale)
    else:
        check_unsigned(image)
    if orientations != {1}:  # without one, it would copy the image
        upright = ImageOps.exif_transpose(upright)
    if profile := image.info.get("icc_profile"):
        in_srgb = to_srgb(upright, profile)
        choices |= set() if in_srgb is upright else {"profile" if in_srgb else "no_profile"}
        upright = in_srgb or upright
    if upright.mode == "CMYK":
        choices.add("cmyk")
    rgb, is_transparent = _to_rgb(upright)
    if is_transparent:
        choices.add("alpha")
    if orientations & set(range(2, 9)):
        choices.add("turned")
    return Upright(rgb, frozenset(choices), outside)


def sample_values(file: Encoded) -> ValueSample:
    """Return a sample of the values of an image of more than 8 bits."""
    with open_image(file) as image:
        image.load()
        return deep_image(image, file).sample()


def _fitted(image: Image.Image, size: Size, fit: Fit) -> Image.Image:
    """Return the image resized, and cut or padded around the center."""
    (height, width), (top, left) = center_fit((image.height, image.width), size, fit)
    bicubic = Image.Resampling.BICUBIC
    if max(height, width) <= _MAX_ASPECT * max(size):
        resized = image.resize((width, height), bicubic)
        return resized.crop((left, top, left + size[1], top + size[0]))
    # The same but for rounding, without the memory of what is cut off.
    x, y = image.width / width, image.height / height
    box = (left * x, top * y, (left + size[1]) * x, (top + size[0]) * y)
    return image.resize((size[1], size[0]), bicubic, box)


def header_size(files: Sequence[Encoded], index: int) -> Size | None:
    """Return (height, width) of an upright image from its header; None if it is unreadable."""
    with suppress_warnings():
        try:
            with open_image(files[index]) as image:
                return upright_size(image)
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
    """Check that decoding does not take minutes or gigabytes."""
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


def upright_size(image: Image.Image) -> Size:
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


def reason_of(error: Exception) -> str:
    """Return why a file cannot be read, in words."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, Image.DecompressionBombError):
        return f"more pixels than the limit of {PIXEL_LIMIT // 1_000_000} million"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return printable(" ".join(str(error).split()) or type(error).__name__)


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Suppress the warnings of decoders: failures are reported by file name."""
    with suppress_libtiff_errors(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield
