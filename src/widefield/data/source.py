"""Sources of data: what a call accepts, read to examples that are not decoded yet."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from widefield.core.types import Kind, Size, kind_of
from widefield.data.builtin.motion import read_motion
from widefield.data.builtin.photos import read_photos
from widefield.data.builtin.spoken import read_spoken
from widefield.data.cache import digest_of_files
from widefield.data.dataset import Dataset
from widefield.data.decode.values import pages_of
from widefield.data.examples import Examples
from widefield.data.labels.read import Frame
from widefield.data.readers.arrays import Array, read_memory
from widefield.data.readers.paths import read_path, read_url
from widefield.data.readers.python_data import read_object
from widefield.data.spec import BUILTIN, MEMORY, Spec, is_url, parse, similar_name_hint, spec_text

Data = str | Path | Array | Mapping[str, Any] | Sequence[Any]
"""Data as calls accept it: a spec or path, images as an array, arrays by name, or a list of paths
or PIL images."""


def read_source(data: object, size: Size | None, *, labels: bool = False) -> tuple[Spec, Examples]:
    """Return the spec and the examples of a source, of which no image is decoded."""
    if isinstance(data, Path):
        spec = Spec(spec_text(data))
        if not data.exists():
            raise ValueError(f"no path '{data}'{similar_name_hint(str(data))}")
    elif isinstance(data, str):
        spec = parse(data)
    elif isinstance(data, np.ndarray | torch.Tensor | Mapping):
        return Spec(MEMORY), read_memory(data)
    elif (examples := read_object(data)) is not None:
        return Spec(MEMORY), examples
    elif isinstance(data, Frame):
        raise ValueError(
            f"a {type(data).__name__} is a table of labels: give the paths, list(table['path']), "
            "as the data and the table as labels, or save it by to_csv and give that file"
        )
    else:
        hint = "give its arrays()" if isinstance(data, Dataset) else "stack other images into one"
        raise ValueError(
            f"cannot read data from {type(data).__name__}; expected a name or path, an array or "
            "tensor such as [n, H, W, C], a list of paths or PIL images, or a mapping of arrays "
            f"with key 'x': {hint}"
        )
    if spec.base in BUILTIN:
        return spec, _read_builtin(spec, size)
    if is_url(spec.base):
        return spec, _with_values(read_url(spec.base, labels=labels), spec)
    path = Path(os.path.expanduser(spec.base))
    return spec, _with_values(read_path(path, labels=labels), spec)


def _read_builtin(spec: Spec, size: Size | None) -> Examples:
    split = spec.split or "train"
    if spec.base == "photos":
        return read_photos(split, size[0] if size and size[0] == size[1] else None)
    if spec.base == "spoken":
        return read_spoken(split)
    return read_motion(split) if spec.base == "motion" else _read_cifar(spec)


def kind_of_source(data: Data) -> tuple[str, Kind]:
    """Return the spec and the kind of a source without decoding it."""
    spec, examples = read_source(data, None)
    if examples.recordings is not None:
        return str(spec), "sounds"
    windows = examples.pixels is not None and kind_of(examples.pixels) == "windows"
    return str(spec), "windows" if windows else "images"


def _with_values(examples: Examples, spec: Spec) -> Examples:
    """Return the examples with the depth and channels of their files, if the spec keeps these."""
    if spec.values is None:
        return examples
    if examples.files is None:
        raise ValueError(f"'{spec}' holds no image files: leave out ':{spec.values}'")
    examples = replace(examples, as_values=True)
    return pages_of(examples) if spec.values == "pages" else examples


def _read_cifar(spec: Spec) -> Examples:
    from torchvision import datasets

    name = spec.base.upper()
    root = Path(os.environ.get("WIDEFIELD_DATA", "data"))
    try:
        data = getattr(datasets, name)(root, train=spec.split == "train", download=False)
    except RuntimeError:
        raise ValueError(
            f"{name} is not in '{root}' (WIDEFIELD_DATA, or ./data); get it with: python -c "
            f"\"from torchvision.datasets import {name}; {name}('{root}', download=True)\""
        ) from None
    return Examples(
        names=[f"row {row}" for row in range(len(data.data))],
        labels={"class": np.asarray(data.targets, dtype=np.int64)},
        classes={"class": tuple(data.classes)},
        pixels=data.data,
        origin=partial(digest_of_files, [root]),
    )
