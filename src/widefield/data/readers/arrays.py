"""Arrays as a source: images, windows or sounds with labels, and packs of files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from widefield.core.names import printable
from widefield.data.decode.eight_bits import UNIT, to_8_bits
from widefield.data.examples import Examples
from widefield.data.labels.arrays import describe, read_label_arrays
from widefield.data.labels.text import LARGEST_EXACT, text_of
from widefield.data.readers.npz import read_arrays
from widefield.data.readers.recordings import of_array, of_pack, split_at

_CHANNELS = (1, 2, 3, 4)
_MOST_CHANNELS = 64
"""Channels of an image, chosen by hand: more of them are another axis."""
_SHORTEST = 16
"""Minimum length of a window: an encoder halves it four times."""
_LARGEST_EXACT = 2**24
"""Whole numbers up to this one are exact in float32."""

Array = NDArray[np.generic] | torch.Tensor


def read_npz(path: Path) -> Examples:
    """Read a `.npz` file: `x` or `windows` with label arrays, or a pack of images.

    A pack has `images` (pixels) or `bytes` and `offsets` (concatenated JPEG or PNG files); its
    task is `class`. Nothing is unpickled.
    """
    return read_arrays_by_key(read_arrays(path), f"'{path}'")


def read_memory(data: Array | Mapping[str, Array]) -> Examples:
    """Read arrays in memory: images, or a mapping with `x` and arrays of labels or targets."""
    if not isinstance(data, Mapping):
        data = {"x": data}
    images: object = data.get("x")
    if (
        isinstance(images, list | tuple)
        and images
        and all(isinstance(image, Image.Image) for image in images)
    ):
        rest = {str(k): _as_array(str(k), value) for k, value in data.items() if k != "x"}
        table = read_label_arrays(len(images), rest, _tasks(rest))
        return Examples(**vars(table), files=list(images))
    arrays = {str(key): _as_array(str(key), value) for key, value in data.items()}
    return read_arrays_by_key(arrays, "the mapping")


def _as_array(key: str, value: Array) -> NDArray[np.generic]:
    """Return a value as an array; object arrays of strings, as in pandas, become text."""
    if printable(key) != key:
        raise ValueError(f"key '{printable(key)}' is not plain text; rename it")
    if isinstance(value, torch.Tensor):
        value = value.detach().cpu()
        return np.asarray(value.float() if value.is_floating_point() else value)
    array = np.asanyarray(value)
    if np.ma.is_masked(array):
        raise ValueError(f"key '{key}' is a masked array: leave out or fill what is masked")
    if array.dtype != np.object_:
        return array
    texts = [text_of(cell) for cell in array.flat]
    is_text = all(
        isinstance(cell, str) or text == "" for cell, text in zip(array.flat, texts, strict=True)
    )
    return np.array(texts).reshape(array.shape) if is_text else array


def read_arrays_by_key(arrays: dict[str, NDArray[np.generic]], source: str) -> Examples:
    """Read arrays by key, as `.npz` files have them."""
    if "x" not in arrays and "image" in arrays:
        arrays = {"x" if key == "image" else key: array for key, array in arrays.items()}
    if "audio" in arrays:
        recordings = of_pack(arrays, source)
        tasks = {"class": ("labels", "classes"), "speaker": ("speakers", "speaker_names")}
        tasks = {task: keys for task, keys in tasks.items() if keys[0] in arrays}
        table = read_label_arrays(len(recordings), arrays, tasks)
        return Examples(**vars(table), recordings=recordings)
    if "sounds" in arrays:
        recordings = of_array(arrays, source)
        table = read_label_arrays(len(recordings), arrays, _tasks(arrays, "sounds", "sample_rate"))
        return Examples(**vars(table), recordings=recordings)
    if "windows" in arrays:
        pixels = as_windows(arrays["windows"], "windows")
        table = read_label_arrays(len(pixels), arrays, _tasks(arrays, "windows"))
        return Examples(**vars(table), pixels=pixels)
    if "x" in arrays:
        pixels, notes = as_pixels(arrays["x"], "x")
        table = read_label_arrays(len(pixels), arrays, _tasks(arrays, "x"), notes)
        return Examples(**vars(table), pixels=pixels)
    if "images" in arrays or "bytes" in arrays:
        return _read_pack(arrays, source)
    raise ValueError(
        f"{source} has no examples: expected key 'x' for images, 'windows' for [n, channels, "
        "time], 'sounds' or 'audio', or 'images' or 'bytes' with 'labels' and 'classes'; "
        f"found {', '.join(map(repr, arrays)) or 'nothing'}"
    )


def _tasks(arrays: dict[str, NDArray[np.generic]], *others: str) -> dict[str, tuple[str, str]]:
    """Return task -> key of its labels and of its class names, for all keys but `others`."""
    names = {f"{key}_classes" for key in arrays}
    return {key: (key, f"{key}_classes") for key in arrays if key not in {*others, *names}}


def _read_pack(arrays: dict[str, NDArray[np.generic]], source: str) -> Examples:
    missing = {"labels"} - arrays.keys()
    if "images" not in arrays:
        missing |= {"offsets"} - arrays.keys()
    if missing:
        raise ValueError(f"{source} is a pack without key {', '.join(map(repr, sorted(missing)))}")
    pixels, files = None, None
    notes: tuple[str, ...] = ()
    if "images" in arrays:
        pixels, notes = as_pixels(arrays["images"], "images")
        n = len(pixels)
    else:
        data = arrays["bytes"]
        if data.dtype != np.uint8 or data.ndim != 1:
            raise ValueError(
                f"key 'bytes' is {describe(data)}; expected uint8 [bytes of all files]"
            )
        view = memoryview(data.tobytes())
        files = [view[part] for part in split_at(arrays["offsets"], len(data))]
        n = len(files)
    table = read_label_arrays(n, arrays, {"class": ("labels", "classes")}, notes)
    return Examples(**vars(table), pixels=pixels, files=files)


def as_pixels(x: NDArray[np.generic], key: str) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Return images as [n, H, W, C], and notes.

    Accepts [n, H, W], [n, H, W, C] or [n, C, H, W] with 1 to 64 channels. If the shape is
    ambiguous, channels are last. Bool becomes uint8. Floats and 16 bits keep their values, for
    `data.decode.eight_bits` and `data.decode.values`.
    """
    if x.ndim not in (3, 4) or 0 in x.shape:
        raise ValueError(
            f"key '{key}' is {describe(x)}; expected [n, H, W], [n, H, W, C] or [n, C, H, W]"
        )
    # Very wide gray images are more likely windows under the wrong key.
    is_flat = x.ndim == 3 and 4 * x.shape[1] < x.shape[2]
    if x.ndim == 3:
        _check_not_single_image(x, key)
        x = x[..., None]
    elif channels_are_second(x.shape):
        x = np.moveaxis(x, 1, -1)
    if x.shape[-1] > _MOST_CHANNELS:
        raise ValueError(
            f"key '{key}' is {describe(x)}; expected 1 to {_MOST_CHANNELS} channels, last or second"
        )
    if x.dtype == np.uint8:
        # A memory map stays one: a copy may not fit into memory.
        is_on_disk = isinstance(x, np.memmap) or not isinstance(x, np.ndarray)
        return (x if is_on_disk else np.ascontiguousarray(x)), ()
    if x.dtype == np.bool_:
        return x.astype(np.uint8) * np.uint8(255), (f"'{key}': bool stored as 0 and 255",)
    if x.dtype.newbyteorder("=") in (np.uint16, np.int16):
        return x, ()
    if not np.issubdtype(x.dtype, np.floating):
        raise ValueError(
            f"key '{key}' is {describe(x)}; expected uint8, uint16, int16 or floats (windows "
            "[n, channels, time] go under key 'windows')"
        )
    low, high = _finite_min_max(x, key)
    if x.shape[1] == 1 or is_flat:
        if low < 0 or high > 1 or x.shape[-1] > max(_CHANNELS):
            raise ValueError(
                f"key '{key}' is {describe(x)}: images of height {x.shape[1]} and width "
                f"{x.shape[2]}; windows [n, channels, time] go under key 'windows'"
            )
        return to_8_bits(x, UNIT), (f"'{key}': {x.dtype} in [0, 1] stored as uint8",)
    return x, ()


def channels_are_second(shape: tuple[int, ...]) -> bool:
    """Return whether images of this shape are [n, C, H, W] rather than [n, H, W, C]."""
    _, second, middle, last = shape
    if last in _CHANNELS or second in _CHANNELS:
        return last not in _CHANNELS
    if second > _MOST_CHANNELS or second == middle:
        return False
    return middle == last or second < min(middle, last)  # square images, or fewer channels


def _check_not_single_image(x: NDArray[np.generic], key: str) -> None:
    """Check that x is not [H, W, C] or [C, H, W], which would be H or C gray images."""
    channels_last = x.shape[2] in _CHANNELS and min(x.shape[:2]) > max(_CHANNELS)
    channels_first = x.shape[0] in (3, 4) and min(x.shape[1:]) > max(_CHANNELS)
    if channels_last or channels_first:
        raise ValueError(
            f"key '{key}' is {describe(x)}, which may be one color image or {x.shape[0]} gray "
            "ones: give x[None] for one image, x[..., None] for gray ones"
        )


def _finite_min_max(x: NDArray[np.generic], key: str) -> tuple[float, float]:
    chunks = [x[first : first + 1024] for first in range(0, len(x), 1024)]
    # Not `min`, which drops a NaN that is not the first.
    low, high = float(np.min([c.min() for c in chunks])), float(np.max([c.max() for c in chunks]))
    if not np.isfinite([low, high]).all():
        raise ValueError(f"key '{key}' holds values that are not finite (NaN or infinity)")
    return low, high


def as_windows(x: NDArray[np.generic], key: str) -> NDArray[np.float32]:
    """Convert windows [n, channels, time] to float32 [n, 1, time, channels].

    [n, time] is one channel. Values keep their units: the encoder normalizes each channel.
    """
    x = x[:, None, :] if x.ndim == 2 else x
    if x.ndim != 3 or 0 in x.shape or x.dtype.kind not in "iuf":
        raise ValueError(
            f"key '{key}' is {x.dtype} {list(x.shape)}; expected numbers [n, channels, time]"
        )
    n, channels, steps = x.shape
    if steps < _SHORTEST:
        raise ValueError(
            f"key '{key}' has windows of {channels} channels and {steps} steps of time; expected "
            f"[n, channels, time] with at least {_SHORTEST} steps"
        )
    if channels > steps:
        raise ValueError(
            f"key '{key}' is {list(x.shape)}, with more channels than steps of time; expected "
            "[n, channels, time]: swap the last two axes"
        )
    out = np.empty((n, 1, steps, channels), dtype=np.float32)
    with np.errstate(over="ignore"):  # what float32 cannot hold is infinite, and refused below
        out[:, 0] = np.moveaxis(x, 1, 2)
    finite = np.isfinite(out).all((1, 2, 3))
    if not finite.all():
        raise ValueError(
            f"key '{key}' holds NaN or infinity in {int((~finite).sum())} of {n} windows "
            f"(first: row {int(np.flatnonzero(~finite)[0])}); leave them out or fill the gaps"
        )
    _check_exact(x, out, key)
    return out


def _check_exact(x: NDArray[np.generic], converted: NDArray[np.float32], key: str) -> None:
    """Check that whole numbers [n, channels, time], such as counts, are stored as they are."""
    largest = max(-float(x.min()), float(x.max()))
    if largest <= _LARGEST_EXACT or (x.dtype.kind == "f" and largest > LARGEST_EXACT):
        return
    if (x == np.trunc(x)).all() and (converted[:, 0] != np.moveaxis(x, 1, 2)).any():
        raise ValueError(
            f"key '{key}' has whole numbers up to {largest:,.0f}, which float32 rounds above "
            f"{_LARGEST_EXACT:,}: subtract an offset or take differences, or give float32 values"
        )
