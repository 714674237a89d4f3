"""Images of any depth and number of channels, without conversion to color.

A file is an array [H, W, C] of uint8, uint16 or float32: the pages of a TIFF are its channels, or
examples of their own. Of more than 8 bits, the 0.1 and 99.9 percentiles of each channel over the
data set become 0 and 1, and a run records them. Within them every level is kept:

    stored = round(65535 clip((v - low_c) / (high_c - low_c), 0, 1))

as uint16, or the same as float32 without rounding. Values of 8 bits stay as they are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from widefield.core.center_fit import cut_share
from widefield.core.pixels import stored
from widefield.core.types import BlackWhite, Fit, ProgressCallback, Size
from widefield.data.cache import DecodingJournal
from widefield.data.decode.high_bit_depth import deep_image, is_deep
from widefield.data.decode.images import DecodeReport, Result, in_parallel, open_image
from widefield.data.decode.resize import resize_array
from widefield.data.examples import Encoded
from widefield.data.select import spread_rows

MOST_CHANNELS = 64
_LOW, _HIGH = 0.1, 99.9
"""Percentiles that become black and white."""
_SAMPLE_IMAGES, _SAMPLE_PIXELS = 256, 4096
_FORM_FILES = 64
"""Files from which the common number of channels and the depth are found."""
_MAGIC = b"\x93NUMPY"
_STORED = {"u1": np.uint8, "u2": np.uint16, "b1": np.uint8}


@dataclass(frozen=True)
class ValueForm:
    """What the images of a data set have in common."""

    channels: int
    dtype: "np.dtype[Any]"
    """Type in which they are stored."""
    sizes: tuple[Size, ...] = field(default=(), compare=False)
    """Sizes of some of them."""


def stored_type(dtype: "np.dtype[Any]") -> "np.dtype[Any]":
    """Return the type in which values of `dtype` are stored.

    Example:
        >>> stored_type(np.dtype(np.uint16)), stored_type(np.dtype(np.float64))
        (dtype('uint16'), dtype('float32'))
    """
    return np.dtype(_STORED.get(dtype.str[1:], np.float32))


def read_values(file: Encoded) -> NDArray[Any]:
    """Return the values of a file, [H, W, C].

    Raises:
        ValueError: the values are no image, too many channels, or not finite.
    """
    values = _read_array(file) if _is_array(file) else _read_pages(file)
    if values.ndim == 2:
        values = values[..., None]
    if values.ndim == 3 and values.shape[0] <= MOST_CHANNELS < values.shape[-1]:
        values = np.moveaxis(values, 0, -1)
    if values.ndim != 3 or not 1 <= values.shape[-1] <= MOST_CHANNELS or 0 in values.shape:
        raise ValueError(f"an array {list(values.shape)}: expected [H, W] or [H, W, C], C up to 64")
    if values.dtype.kind not in "uifb":
        raise ValueError(f"values of type {values.dtype}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("values that are not finite (NaN or infinity)")
    return values.astype(np.uint8) * 255 if values.dtype == np.bool_ else values


def find_form(files: Sequence[Encoded]) -> ValueForm:
    """Return the most frequent number of channels and type of up to 64 of the files.

    Raises:
        ValueError: none of them can be read.
    """
    found: Counter[ValueForm] = Counter()
    sizes: list[Size] = []
    reason: object = ""
    for row in spread_rows(len(files), _FORM_FILES).tolist():
        try:
            height, width, channels = (values := read_values(files[row])).shape
        except Exception as error:  # decoders raise every kind of error on damaged files
            reason = error
            continue
        sizes.append((height, width))
        found[ValueForm(channels, stored_type(values.dtype))] += 1
    if not found:
        raise ValueError(f"no image can be read (first: {reason})")
    return replace(found.most_common(1)[0][0], sizes=tuple(sizes))


def percentiles(images: Sequence[NDArray[Any]]) -> BlackWhite:
    """Return the values that become 0 and 1, of each channel, of images [H, W, C].

    Example:
        >>> ((black, white),) = percentiles([np.arange(1001.0).reshape(1, 1001, 1)])
        >>> round(black, 3), round(white, 3)
        (1.0, 999.0)
    """
    sample = []
    for image in images:
        pixels = image.reshape(-1, image.shape[-1])
        sample.append(pixels[spread_rows(len(pixels), _SAMPLE_PIXELS)].astype(np.float64))
    low, high = np.percentile(np.concatenate(sample), [_LOW, _HIGH], axis=0)
    high = np.where(high > low, high, low + 1)
    return tuple(zip(low.tolist(), high.tolist(), strict=True))


def sample_rows(count: int) -> NDArray[np.int64]:
    """Return the images from which percentiles are found."""
    return spread_rows(count, _SAMPLE_IMAGES)


def decode_values(
    files: Sequence[Encoded],
    names: Sequence[str],
    out: NDArray[Any],
    progress: ProgressCallback | None = None,
    black_white: BlackWhite | None = None,
    journal: DecodingJournal | None = None,
    *,
    size: Size,
    fit: Fit,
) -> DecodeReport:
    """Read the values of files[i] into out[i] [n, H, W, C], in parallel, as `decode_all`."""
    form = ValueForm(out.shape[-1], out.dtype)
    report = DecodeReport(black_white=None if out.dtype == np.uint8 else black_white)
    if out.dtype != np.uint8 and black_white is None:
        sample = []
        for _, values in in_parallel(
            lambda i: _checked(files[i], form), sample_rows(len(files)).tolist(), 0, None
        ):
            sample += [] if isinstance(values, str) else [values]
        report.black_white, report.sampled = percentiles(sample), len(sample)
    done: dict[int, Any] = {} if journal is None else journal.done
    for i, result in done.items():
        report.add(names, i, result)

    def decode_row(i: int) -> Result:
        values = _checked(files[i], form)
        out[i], outside = fitted(values, out.dtype, size, report.black_white, fit)
        choices = [] if out.dtype == np.uint8 else ["deep"]
        was_size: Size = (values.shape[0], values.shape[1])
        if was_size == size:
            return choices, outside, 0.0
        return [*choices, "resized"], outside, cut_share(was_size, size, fit)

    rows = [i for i in range(len(files)) if i not in done]
    for i, result in in_parallel(decode_row, rows, len(files) - len(rows), progress):
        report.add(names, i, result)
        if journal is not None:
            journal.add(i, result)
    return report


def fitted(
    values: NDArray[Any],
    dtype: "np.dtype[Any]",
    size: Size,
    black_white: BlackWhite | None,
    fit: Fit,
) -> tuple[NDArray[Any], float | None]:
    """Return an image [H, W, C] as it is stored, and the share of values outside black and white.

    `black_white` has one pair for all channels or one for each.
    """
    x, outside = values.astype(np.float64), None
    if dtype == np.uint8:
        if values.shape[:2] == size:
            return values, None
        x /= 255
    else:
        assert black_white is not None
        low, high = np.array(black_white).reshape(-1, 2).T
        x = (x - low) / (high - low)
        outside = float(((x < 0) | (x > 1)).mean())
    if values.shape[:2] != size:
        x = resize_array(x[None], size, fit)[0]
    return stored(np.clip(x, 0, 1), dtype), outside


def _checked(file: Encoded, form: ValueForm) -> NDArray[Any]:
    """Return the values of a file; check that it has the channels and the depth of the others."""
    values = read_values(file)
    if values.shape[-1] != form.channels:
        raise ValueError(f"{values.shape[-1]} channels, and the others have {form.channels}")
    if stored_type(values.dtype) != form.dtype:
        raise ValueError(f"values of type {values.dtype}, and the others are {form.dtype}")
    return values


def _is_array(file: Encoded) -> bool:
    if isinstance(file, Path):
        return file.suffix.lower() == ".npy"
    return isinstance(file, memoryview) and bytes(file[:6]) == _MAGIC


def _read_array(file: Encoded) -> NDArray[Any]:
    assert not isinstance(file, Image.Image)
    source = file if isinstance(file, Path) else BytesIO(file)
    values: NDArray[Any] = np.load(source, allow_pickle=False)
    return values


def _read_pages(file: Encoded) -> NDArray[Any]:
    """Return the pages of an image as channels."""
    with open_image(file) as image:
        pages = [_page(frame, file) for frame in ImageSequence.Iterator(image)]
    shapes = {page.shape[:2] for page in pages}
    if len(shapes) > 1:
        raise ValueError("pages of different sizes")
    return pages[0] if len(pages) == 1 else np.concatenate(pages, axis=-1)


def _page(frame: Image.Image, file: Encoded) -> NDArray[Any]:
    frame.load()
    if is_deep(frame, file):
        values = deep_image(frame, file).values
    else:
        values = np.asarray(frame.convert("RGB") if frame.mode in ("P", "PA") else frame)
    return values[..., None] if values.ndim == 2 else values
