"""Images of any depth and number of channels, without conversion to color.

A file is an array [H, W, C] of uint8, uint16 or float32: the pages of a TIFF are its channels, or
examples of their own. Of more than 8 bits, every level between black and white of its channel is
kept (`black_white.py`):

    stored = round(65535 clip((v - black_c) / (white_c - black_c), 0, 1))

as uint16, or the same as float32 without rounding. Values of 8 bits stay as they are.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageSequence

from widefield.core.form import center_fit, cut_share
from widefield.core.pixels import to_storage
from widefield.core.rng import hash_items
from widefield.core.types import BlackWhite, Fit, Size
from widefield.data.decode.black_white import sample_pixels, share_outside
from widefield.data.decode.decoding import in_parallel, suppress_warnings
from widefield.data.decode.deep import deep_image, is_deep, is_signed
from widefield.data.decode.images import Decoded, open_image
from widefield.data.examples import Encoded, Examples, LazyFiles
from widefield.data.readers.arrays import channels_are_second
from widefield.data.select import spread_rows
from widefield.data.table import Names

MOST_CHANNELS = 64
_SAMPLE_FILES = 64
"""Files from which the common number of channels and the depth are found."""
_MAGIC = b"\x93NUMPY"
_STORAGE_DTYPES = {"u1": np.uint8, "u2": np.uint16, "b1": np.uint8}


def storage_dtype(dtype: "np.dtype[Any]") -> "np.dtype[Any]":
    return np.dtype(_STORAGE_DTYPES.get(dtype.str[1:], np.float32))


def infer_channels(files: Sequence[Encoded]) -> tuple[int, "np.dtype[Any]", list[Size]]:
    """Return the usual channels and stored type of up to 64 of the files, and their sizes."""
    found: Counter[tuple[int, np.dtype[Any]]] = Counter()
    sizes: list[Size] = []
    reason: object = ""
    for row in spread_rows(len(files), _SAMPLE_FILES).tolist():
        try:
            height, width, channels = (values := read_values(files[row])).shape
        except Exception as error:  # decoders raise every kind of error on damaged files
            reason = error
            continue
        sizes.append((height, width))
        found[channels, storage_dtype(values.dtype)] += 1
    if not found:
        raise ValueError(f"no image can be read (first: {reason})")
    (channels, dtype), _ = found.most_common(1)[0]
    return channels, dtype, sizes


def decode_values(
    file: Encoded | NDArray[Any],
    black_white: BlackWhite | None,
    *,
    size: Size,
    fit: Fit,
    channels: int,
    dtype: "np.dtype[Any]",
) -> Decoded | None:
    """Return the values of a file as they are stored; None if black and white are not known yet.

    `black_white` has one pair for all channels or one for each.
    """
    if dtype != np.uint8 and black_white is None:
        return None
    values = _checked(file, channels, dtype)
    was_size: Size = (values.shape[0], values.shape[1])
    choices, outside, x = set(), None, values
    if dtype != np.uint8:
        low, high = np.array(black_white).reshape(-1, 2).T
        outside = share_outside(values, low, high)
        x = (values.astype(np.float64) - low) / (high - low)
        choices.add("deep")
    if was_size != size:
        x = x / 255 if dtype == np.uint8 else x
        x = resize_array(x[None], size, fit)[0]
        choices.add("resized")
    if choices:
        x = to_storage(np.clip(x, 0, 1), dtype)
    cut = cut_share(was_size, size, fit) if was_size != size else 0.0
    return Decoded(x, frozenset(choices), outside, cut)


def sample_channels(
    file: Encoded | NDArray[Any], *, channels: int, dtype: "np.dtype[Any]"
) -> NDArray[Any]:
    """Return values of some pixels of a file, [k, C]."""
    return sample_pixels(_checked(file, channels, dtype).reshape(-1, channels))


def resize_array(images: NDArray[Any], size: Size, fit: Fit = "crop") -> NDArray[Any]:
    """Bring images [n, H, W, C], uint8 or floats, to a size by `fit`."""
    (height, width), (top, left) = center_fit(images.shape[1:3], size, fit)
    x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2)
    x = torch.nn.functional.interpolate(x, size=(height, width), mode="bicubic", antialias=True)
    # A negative width of a border cuts.
    padding = (-left, left + size[1] - width, -top, top + size[0] - height)
    x = torch.nn.functional.pad(x, padding)
    return np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy())


def read_values(file: Encoded | NDArray[Any]) -> NDArray[Any]:
    """Return the values of a file, or of an array in memory, [H, W, C]."""
    if isinstance(file, np.ndarray):
        values = file
    else:
        values = _read_array(file) if _is_array(file) else _read_pages(file)
    if values.ndim == 2:
        values = values[..., None]
    if values.ndim != 3 or not 1 <= values.shape[-1] <= MOST_CHANNELS or 0 in values.shape:
        raise ValueError(f"an array {list(values.shape)}: expected [H, W] or [H, W, C], C up to 64")
    if values.dtype.kind not in "uifb":
        raise ValueError(f"values of type {values.dtype}")
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("values that are not finite (NaN or infinity)")
    return values.astype(np.uint8) * 255 if values.dtype == np.bool_ else values


def _checked(file: Encoded | NDArray[Any], channels: int, dtype: "np.dtype[Any]") -> NDArray[Any]:
    values = read_values(file)
    if values.shape[-1] != channels:
        raise ValueError(f"{values.shape[-1]} channels, and the others have {channels}")
    if storage_dtype(values.dtype) != dtype:
        raise ValueError(f"values of type {values.dtype}, and the others are {dtype}")
    return values


def _is_array(file: Encoded) -> bool:
    if isinstance(file, Path):
        return file.suffix.lower() == ".npy"
    return isinstance(file, memoryview) and bytes(file[:6]) == _MAGIC


def _read_array(file: Encoded) -> NDArray[Any]:
    assert not isinstance(file, Image.Image)
    source = file if isinstance(file, Path) else BytesIO(file)
    values: NDArray[Any] = np.load(source, allow_pickle=False)
    are_first = values.ndim == 3 and channels_are_second((1, *values.shape))
    return np.moveaxis(values, 0, -1) if are_first else values


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
        if frame.mode == "L" and is_signed(frame):  # Pillow reads them as unsigned
            values = values.view(np.int8)
    return values[..., None] if values.ndim == 2 else values


def pages_of(examples: Examples) -> Examples:
    """Return each page of the files as an example, with the labels of its file.

    The name of a page is that of its file and "page 1", "page 2", ... Pages of a file resemble each
    other, so that they are a group; of a single file there are no groups.
    """
    assert examples.files is not None
    files = examples.files

    def count(row: int) -> int:
        with open_image(files[row]) as image:
            return int(getattr(image, "n_frames", 1))

    with suppress_warnings():
        found = [number for _, number in in_parallel(count, range(len(files)))]
    counts = np.array([1 if isinstance(number, str) else number for number in found])
    failed = np.array([isinstance(number, str) for number in found])
    rows = np.repeat(np.arange(len(files)), counts)
    pages = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    repeated = examples.take(rows)
    names = [
        f"{name} page {page + 1}" for name, page in zip(repeated.names, pages.tolist(), strict=True)
    ]

    def page_of(index: int) -> Any:
        file = files[int(rows[index])]
        if failed[rows[index]]:  # a file that could not be counted is read whole, and fails there
            return file
        with open_image(file) as image:
            image.seek(int(pages[index]))
            return _page(image, file)

    pages_of_files = replace(repeated, names=Names(names), files=LazyFiles(len(rows), page_of))
    if len(files) < 2 or len(rows) == len(files):
        return pages_of_files
    ids = hash_items(name.encode("utf-8", "surrogateescape") for name in examples.names)
    note = f"pages of a file are a group: {len(files)} groups of {len(rows)} pages"
    return replace(pages_of_files, groups=ids.view(np.int64)[rows]).with_notes(note)
