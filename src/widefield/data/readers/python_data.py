"""Data sets of other libraries in Python: torch, Hugging Face, PIL images, Arrow tables."""

import os
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset

from widefield.core.names import printable
from widefield.data.cache import digest_of_files
from widefield.data.examples import Encoded, Examples, LazyFiles
from widefield.data.labels.arrays import read_label_arrays
from widefield.data.labels.folders import printable_path
from widefield.data.labels.text import text_of
from widefield.data.readers.arrays import as_pixels
from widefield.data.readers.tables import read_table
from widefield.data.readers.tree import sort_out, visible
from widefield.data.table import Names


def read_object(data: object) -> Examples | None:
    """Read a data set of another library; None if it is none that is known.

    - a torch `Dataset` of images, or of pairs of an image and a label;
    - torchvision's `ImageFolder`, whose files are read without its transforms;
    - a Hugging Face `Dataset` or a `pyarrow.Table` with a column of encoded images;
    - a list of paths or of PIL images.
    """
    if isinstance(data, pa.Table):
        return read_table(data, "the table")
    if type(data).__module__.split(".")[0] == "datasets":
        return _read_hugging_face(data)
    if isinstance(data, DataLoader):
        raise ValueError("a DataLoader holds batches of a data set: give its .dataset")
    if isinstance(data, IterableDataset):
        raise ValueError("an IterableDataset has no stable order: give a Dataset with an index")
    if isinstance(data, torch.utils.data.Dataset):
        is_folder = all(hasattr(data, name) for name in ("samples", "classes", "root"))
        return _read_folder(data) if is_folder else _read_items(data)
    return read_list(data) if isinstance(data, list | tuple) else None


def read_list(images: Sequence[object]) -> Examples:
    """Return a list of paths or of PIL images as examples, in its order, without labels."""
    if not images:
        raise ValueError("the list of images is empty: give paths or PIL images")
    if all(isinstance(part, np.ndarray | torch.Tensor) for part in images):
        raise ValueError(
            "arrays stand in a list: give images and labels as {'x': x, 'class': y}, or stack "
            "images into one array [n, H, W, C]"
        )
    files: list[Encoded] = []
    for i, image in enumerate(images):
        if not isinstance(image, str | os.PathLike | Image.Image):
            raise ValueError(
                f"item {i} of the list is of type {type(image).__name__}: give paths or PIL "
                "images, or stack arrays into one array [n, H, W, C]"
            )
        files.append(image if isinstance(image, Image.Image) else Path(os.fsdecode(image)))
    names = [
        f"image {i}" if isinstance(file, Image.Image) else printable_path(str(file))
        for i, file in enumerate(files)
    ]
    paths = [file for file in files if isinstance(file, Path)]
    origin = partial(digest_of_files, paths) if len(paths) == len(files) else None
    return Examples(names=names, files=files, origin=origin)


def _images_of(data: Any) -> LazyFiles:
    """Return the images of a data set, one item at a time: it may not be made for threads."""
    lock = threading.Lock()

    def read(row: int) -> Image.Image:
        with lock:
            image: Image.Image = _pair(data[row])[0]
            image.load()  # before another item is read
        return image

    return LazyFiles(len(data), read)


_IMAGE_KEYS, _LABEL_KEYS = ("image", "images", "img", "x", "pixel_values"), ("label", "labels", "y")
"""Keys of the image and of the label in items that are mappings, in any case."""


def _pair(item: Any) -> tuple[Any, Any]:
    """Return the image and the label of an item; None for no label."""
    if isinstance(item, Mapping):
        key_of = {str(key).lower(): key for key in item}
        image = next((key_of[key] for key in _IMAGE_KEYS if key in key_of), None)
        if image is None:
            raise ValueError(
                f"items are mappings with the keys {', '.join(map(printable, map(str, item)))}: "
                "name the image 'image', and the class 'label'"
            )
        label = next((key_of[key] for key in _LABEL_KEYS if key in key_of), None)
        return item[image], None if label is None else item[label]
    if isinstance(item, tuple | list):
        return item[0], item[1] if len(item) > 1 else None
    return item, None


def _plain(label: Any) -> Any:
    """Return a label as a number, text or list, and as None if there is none."""
    if isinstance(label, torch.Tensor):
        label = label.detach().cpu().numpy()
    if isinstance(label, np.ndarray | np.generic):
        label = label.item() if label.size == 1 else label.tolist()
    return "" if text_of(label) == "" and not isinstance(label, str) else label


def _label_arrays(labels: Sequence[Any], classes: Any) -> tuple[dict[str, NDArray[Any]], list[str]]:
    """Return the arrays `class` and `classes`, and notes on labels that are neither."""
    plain = [_plain(label) for label in labels]
    missing = [label == "" for label in plain]
    if all(missing):
        return {}, []
    arrays: dict[str, NDArray[Any]] = {}
    present = [label for label, gap in zip(plain, missing, strict=True) if not gap]
    types = {type(label) for label in present}
    if types <= {int, bool}:
        are_large = max(map(int, present)) >= 2**63  # as floats, among -1
        gap_id, kind = ("", str) if are_large else (-1, int)
        arrays["class"] = np.array(
            [gap_id if gap else kind(x) for x, gap in zip(plain, missing, strict=True)]
        )
    elif types == {str}:
        arrays["class"] = np.array(plain)
    elif types in ({float}, {list}):
        if any(missing):
            return {}, [
                f"'class' is left out: {sum(missing)} examples have no label; give those of the "
                "others as labels by path"
            ]
        with suppress(ValueError):  # lists of several lengths
            arrays["class"] = np.array(plain)
    if not arrays:
        names = " and ".join(sorted({type(label).__name__ for label in labels}))
        return {}, [f"labels of type {names} are not read: give integers or strings for classes"]
    if isinstance(classes, list | tuple) and classes:
        arrays["classes"] = np.array(classes)
    return arrays, []


def _read_items(data: Any) -> Examples:
    """Read every item once; arrays are kept, and PIL images are read again for decoding."""
    if not hasattr(data, "__len__") or not len(data):
        raise ValueError("the data set has no length, or no items: give one with images")
    pixels: list[NDArray[Any]] = []
    labels: list[Any] = []
    for i in range(len(data)):
        image, label = _pair(data[i])
        labels.append(label)
        if isinstance(image, torch.Tensor | np.ndarray):
            if isinstance(image, torch.Tensor):
                image = image.detach().cpu()
                image = image.float() if image.dtype == torch.bfloat16 else image
            array = np.asarray(image)
            if pixels and array.shape != pixels[0].shape:
                raise ValueError(
                    f"item {i} has shape {list(array.shape)}, and item 0 {list(pixels[0].shape)}: "
                    "give images of one size, or PIL images"
                )
            pixels.append(array)
        elif not isinstance(image, Image.Image):
            raise ValueError(
                f"item {i} is {type(image).__name__}; expected a PIL image, a tensor or an array, "
                "or a pair of one and a label"
            )
    if pixels and len(pixels) < len(data):
        raise ValueError("some items are PIL images and others arrays: give one of the two")
    arrays, label_notes = _label_arrays(labels, getattr(data, "classes", None))
    tasks = {"class": ("class", "classes")} if arrays else {}
    stacked, notes = as_pixels(np.stack(pixels), "images of the data set") if pixels else (None, ())
    table = read_label_arrays(len(data), arrays, tasks, (*notes, *label_notes))
    return Examples(**vars(table), pixels=stacked, files=None if pixels else _images_of(data))


def _read_folder(data: Any) -> Examples:
    paths = [Path(path) for path, _ in data.samples]
    relative = [os.path.relpath(path, data.root).replace(os.sep, "/") for path in paths]
    ids, classes = np.array([k for _, k in data.samples]), np.array(data.classes)
    system_files: Counter[str] = Counter()
    rows = visible(relative, system_files)
    tree = sort_out([relative[row] for row in rows], f"'{data.root}'", Counter(), system_files)
    rows = [rows[row] for row in tree.rows]
    if len(rows) < len(paths):
        used, ids = np.unique(ids[rows], return_inverse=True)
        classes = classes[used]
    arrays = {"class": ids, "classes": classes}
    table = read_label_arrays(len(rows), arrays, {"class": ("class", "classes")}, tree.notes)
    names = Names(printable_path(relative[row]) for row in rows)
    if getattr(data, "transforms", None) is not None:
        table = table.with_notes(
            "the files are read without the transforms of the ImageFolder: views augment"
        )
    files = [paths[row] for row in rows]
    origin = partial(digest_of_files, files)
    return Examples(**vars(replace(table, names=names)), files=files, origin=origin)


def _read_hugging_face(data: Any) -> Examples:
    if not hasattr(data, "data") or not hasattr(data, "flatten_indices"):
        raise ValueError(
            f"a {type(data).__name__} of Hugging Face is no single table: choose a split, and save "
            "a stream by to_parquet"
        )
    if getattr(data, "_indices", None) is not None:
        data = data.flatten_indices()
    table = data.data.table
    return read_table(
        table.replace_schema_metadata(data.features.arrow_schema.metadata), "the data"
    )
