"""Arrays as a source: `.npz` files, packs of encoded or grey images, arrays in memory."""

import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from widefield.data.examples import Examples

_CHANNELS = (1, 2, 3, 4)
_MOST_CLASSES = 65_536
_PACK_KEYS = {"bytes", "offsets", "images", "labels", "classes"}

Array = NDArray[np.generic] | torch.Tensor


def read_npz(path: Path) -> Examples:
    """Read a `.npz` file: `x` and label arrays, or a pack of images with `labels`, `classes`.

    A pack holds `images` (pixels) or `bytes` and `offsets` (JPEG or PNG files end to end); its
    task is called `class`. Nothing is unpickled.
    """
    try:
        # Numpy would take other files for what they are, and leave a broken archive open.
        with zipfile.ZipFile(path):
            pass
    except (zipfile.BadZipFile, OSError):
        raise ValueError(f"'{path}' is not a readable .npz file; make one by numpy.savez") from None
    with np.load(path, allow_pickle=False) as file:
        arrays = {key: _member(file, key, path) for key in file.files}
    examples = _read_arrays(arrays, f"'{path}'")
    return replace(examples, origin=(path,))


def _member(file: np.lib.npyio.NpzFile, key: str, path: Path) -> NDArray[np.generic]:
    try:
        array: NDArray[np.generic] = file[key]
    except (zipfile.BadZipFile, zlib.error, OSError, EOFError):
        raise ValueError(
            f"key '{key}' of '{path}' is damaged; copy or make the file anew"
        ) from None
    except ValueError:
        raise ValueError(
            f"key '{key}' of '{path}' holds Python objects, which are never unpickled; "
            "save it as numbers or fixed-width strings"
        ) from None
    return array


def read_memory(data: Array | Mapping[str, Array]) -> Examples:
    """Read arrays in memory: images alone, or a mapping with `x` and label arrays."""
    if not isinstance(data, Mapping):
        data = {"x": data}
    arrays = {
        str(key): _from_torch(value) if isinstance(value, torch.Tensor) else np.asanyarray(value)
        for key, value in data.items()
    }
    return _read_arrays(arrays, "the mapping")


def _from_torch(value: torch.Tensor) -> NDArray[np.generic]:
    value = value.detach().cpu()
    array: NDArray[np.generic] = (value.float() if value.is_floating_point() else value).numpy()
    return array


def _read_arrays(arrays: dict[str, NDArray[np.generic]], source: str) -> Examples:
    if "audio" in arrays:
        raise ValueError(f"{source} holds audio; only images are supported, under key 'x'")
    if "x" in arrays:
        return _read_tasks(arrays)
    if "images" in arrays or "bytes" in arrays:
        return _read_pack(arrays, source)
    raise ValueError(
        f"{source} has no images: expected key 'x', or 'images' or 'bytes' with 'labels' and "
        f"'classes'; found {', '.join(map(repr, arrays)) or 'nothing'}"
    )


def _read_tasks(arrays: dict[str, NDArray[np.generic]]) -> Examples:
    pixels, notes = as_pixels(arrays["x"], "x")
    labels, classes = {}, {}
    names = {key for key in arrays if key.endswith("_classes") and key[:-8] in arrays}
    for task in arrays.keys() - names - {"x"}:
        labels[task], classes[task] = as_labels(
            arrays[task], task, len(pixels), arrays.get(f"{task}_classes"), f"{task}_classes"
        )
    order = [key for key in arrays if key in labels]  # the file's own order, not the set's
    return Examples(
        names=_row_names(len(pixels)),
        labels={task: labels[task] for task in order},
        classes={task: classes[task] for task in order},
        pixels=pixels,
        notes=notes,
    )


def _read_pack(arrays: dict[str, NDArray[np.generic]], source: str) -> Examples:
    missing = {"labels", "classes"} - arrays.keys()
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
        files = _split_files(arrays["bytes"], arrays["offsets"])
        n = len(files)
    labels, classes = as_labels(arrays["labels"], "labels", n, arrays["classes"], "classes")
    return Examples(
        names=_row_names(n),
        labels={"class": labels},
        classes={"class": classes},
        pixels=pixels,
        files=files,
        notes=notes,
    )


def _split_files(data: NDArray[np.generic], offsets: NDArray[np.generic]) -> list[memoryview]:
    if data.dtype != np.uint8 or data.ndim != 1:
        raise ValueError(f"key 'bytes' is {_kind(data)}; expected uint8 [bytes of all files]")
    if not np.issubdtype(offsets.dtype, np.integer) or offsets.ndim != 1 or len(offsets) < 2:
        raise ValueError(f"key 'offsets' is {_kind(offsets)}; expected integers [n + 1]")
    ends = offsets.astype(np.int64)
    if ends[0] < 0 or ends[-1] > len(data) or (np.diff(ends) < 0).any():
        raise ValueError(f"key 'offsets' must rise from 0 to at most {len(data)}, the bytes held")
    view = memoryview(data.tobytes())
    return [view[a:b] for a, b in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]


def as_pixels(x: NDArray[np.generic], key: str) -> tuple[NDArray[np.uint8], tuple[str, ...]]:
    """Bring images to uint8 [n, H, W, C]; also return what there is to tell the user.

    Accepts [n, H, W], [n, H, W, C] or [n, C, H, W] with 1 to 4 channels (where both readings
    are possible, the channels are last), as uint8 or as float in [0, 1].
    """
    if x.ndim not in (3, 4) or 0 in x.shape:
        raise ValueError(
            f"key '{key}' is {_kind(x)}; expected [n, H, W], [n, H, W, C] or [n, C, H, W]"
        )
    if x.ndim == 3:
        x = x[..., None]
    elif x.shape[-1] not in _CHANNELS:
        if x.shape[1] not in _CHANNELS:
            raise ValueError(f"key '{key}' is {_kind(x)}; expected 1 to 4 channels, last or second")
        x = np.moveaxis(x, 1, -1)
    if x.dtype == np.uint8:
        return (x if isinstance(x, np.memmap) else np.ascontiguousarray(x)), ()
    if not np.issubdtype(x.dtype, np.floating):
        raise ValueError(f"key '{key}' is {_kind(x)}; expected uint8, or float in [0, 1]")
    return _from_float(x, key), (f"'{key}': {x.dtype} in [0, 1] stored as uint8",)


def _from_float(x: NDArray[np.generic], key: str) -> NDArray[np.uint8]:
    pixels = np.empty(x.shape, dtype=np.uint8)
    for first in range(0, len(x), 1024):
        chunk = x[first : first + 1024].astype(np.float32)
        low, high = float(chunk.min()), float(chunk.max())
        if not np.isfinite([low, high]).all():
            raise ValueError(f"key '{key}' holds values that are not finite (NaN or infinity)")
        if low < 0 or high > 1:
            raise ValueError(
                f"key '{key}' is float from {low:g} to {high:g}; expected [0, 1], or uint8"
            )
        pixels[first : first + 1024] = np.round(chunk * 255)
    return pixels


def as_labels(
    values: NDArray[np.generic],
    key: str,
    n: int,
    names: NDArray[np.generic] | None,
    names_key: str,
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Bring one label array to class ids int64 [n] and their class names.

    Integers are class ids as they stand, named by `names` or by their own digits, so that two
    files of one data set agree; strings are numbered in sorted order, or in that of `names`.
    """
    if values.ndim != 1 or len(values) != n:
        raise ValueError(
            f"key '{key}' is {_kind(values)}; expected one label for each of {n} images"
        )
    known = None if names is None else _class_names(names, names_key)
    if values.dtype.kind in "US":
        return _from_strings(values.astype(str), key, known)
    if values.dtype.kind not in "iub":
        raise ValueError(f"key '{key}' is {_kind(values)}; expected integers or strings")
    low, high = int(values.min()), int(values.max())
    limit = _MOST_CLASSES if known is None else len(known)
    if low < 0 or high >= limit:
        raise ValueError(
            f"key '{key}' holds class ids from {low} to {high}; "
            f"expected 0 to {limit - 1}, or strings"
        )
    return values.astype(np.int64), known or tuple(map(str, range(high + 1)))


def _class_names(names: NDArray[np.generic], key: str) -> tuple[str, ...]:
    if names.ndim != 1 or names.dtype.kind not in "USiu":
        raise ValueError(f"key '{key}' is {_kind(names)}; expected one name for each class")
    return tuple(map(str, names.astype(str).tolist()))


def _from_strings(
    values: NDArray[np.str_], key: str, known: tuple[str, ...] | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    words, ids = np.unique(values, return_inverse=True)
    if known is None:
        return ids.astype(np.int64), tuple(words.tolist())
    position = {name: i for i, name in enumerate(known)}
    unknown = [name for name in words.tolist() if name not in position]
    if unknown:
        raise ValueError(f"key '{key}' holds '{unknown[0]}', which '{key}_classes' does not list")
    return np.array([position[name] for name in words.tolist()], dtype=np.int64)[ids], known


def _row_names(n: int) -> list[str]:
    return [f"row {row}" for row in range(n)]


def _kind(array: NDArray[np.generic]) -> str:
    return f"{array.dtype} {list(array.shape)}"
