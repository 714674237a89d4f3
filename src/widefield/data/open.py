"""Data sets as they are opened: read a source, select examples, decode them, plant features."""

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from widefield.core.names import printable
from widefield.core.types import Kind, ProgressCallback, Size, as_size
from widefield.data.builtin.motion import read_motion
from widefield.data.builtin.photos import read_photos
from widefield.data.builtin.spoken import read_spoken
from widefield.data.cache import Record, cache_key, cached_record, load_or_build
from widefield.data.dataset import Dataset
from widefield.data.decode.images import decode_all
from widefield.data.examples import Examples
from widefield.data.labels import LabelTable, labeled
from widefield.data.notes import (
    choice_notes,
    dark_note,
    depth_note,
    size_note,
)
from widefield.data.open_sounds import open_sounds
from widefield.data.open_windows import open_windows
from widefield.data.planted import (
    AudioOverlay,
    Canvas,
    DigitChannel,
    Feature,
    ImageOverlay,
    Overlay,
    StackedDigits,
)
from widefield.data.readers.arrays import Array, read_memory, read_npy, read_npz, read_windows
from widefield.data.readers.images import common_size, read_folder, resize_array
from widefield.data.readers.windows import read_parquet
from widefield.data.select import choose, split_rows
from widefield.data.skipped import Skipped, refuse_many, skipped_note
from widefield.data.spec import BUILT_IN, MEMORY, Spec, did_you_mean, parse, spec_text

Data = str | Path | Array | Mapping[str, Any]
"""What a call takes as data: a spec or a path, images as an array, or arrays by name."""

_CHUNK = 512


def open_dataset(
    data: Data,
    *,
    max_examples: int | None = None,
    image_size: int | Size | None = None,
    max_value: float | None = None,
    seed: int = 0,
    held_out: bool = False,
    labels: LabelTable | None = None,
    unlabeled: bool = False,
    seconds: float | None = None,
    sample_rate: int | None = None,
    memory_budget: int | None = None,
    progress: ProgressCallback | None = None,
) -> Dataset:
    """Open images, windows or sounds: a data spec, a path, or arrays in memory.

    Args:
        data: a spec as in `widefield.data.spec`; arrays as in `widefield.data.readers.arrays`.
        max_examples: take this many, balanced over the classes of the first task, in stable order.
        image_size: side of square images, or height and width; default: the common size, see
            `images.common_size`.
        max_value: value that is white in images of more than 8 bits; default: see `data.depth`.
        seed: the seed of the planted features.
        held_out: draw planted features from held-out sources; `:test` always does.
        labels: labels in place of those that the data have; see `data.labels`.
        unlabeled: keep examples without one of these labels, as class -1, instead of leaving
            them out.
        seconds: length of an example of sounds; default: 1.
        sample_rate: samples a second of sounds, Hz; default: their own, at most 16,000.
        memory_budget: bytes of pixels that may be kept in memory; default: half of what is free.
        progress: called with (done, total) images, every few dozen files while they are decoded;
            never when the cache has them, or when arrays are used as they are.

    Raises:
        ValueError: in one line, what was wrong with the data or the arguments.

    Example:
        >>> dataset = open_dataset("photos:test+digits", max_examples=100)
        >>> len(dataset), list(dataset.labels)
        (100, ['class', 'digits'])
    """
    size = None if image_size is None else as_size(image_size)
    for name, value in (
        ("max_examples", max_examples),
        ("image_size", None if size is None else min(size)),
    ):
        if value is not None and value < 1:
            raise ValueError(f"{name} is {value}; expected at least 1")
    spec, examples = _read(data, size)
    if labels is not None:
        examples = labeled(examples, labels, spec.base, unlabeled=unlabeled)
    if examples.pixels is not None and examples.pixels.dtype != np.uint8:
        return open_windows(spec, examples, size=size, max_examples=max_examples)
    if examples.recordings is not None:
        return open_sounds(
            spec,
            examples,
            size=size,
            rate=sample_rate,
            seconds=seconds,
            max_examples=max_examples,
            seed=seed,
            held_out=held_out,
            memory_budget=memory_budget,
            progress=progress,
        )
    if size is not None and size[0] == 1:  # that of windows: no resizing of images makes sense
        raise ValueError(
            f"{printable(str(spec))} holds images, and examples of 1 x {size[1]} are asked for, "
            "as windows and sounds have them: give data of the kind that the encoder was trained on"
        )
    features = _features(spec, examples)
    task = next(iter(examples.labels), None)
    opened = partial(
        _open,
        examples=examples,
        canvas=Canvas(
            shape=_shape(examples, size),
            seed=seed,
            held_out=held_out or spec.split == "test",
            class_ids=None if task is None else examples.labels[task],
            class_count=0 if task is None else len(examples.classes[task]),
        ),
        max_examples=max_examples,
        max_value=max_value,
        memory_budget=memory_budget,
        progress=progress,
    )
    dataset = opened(spec, features)
    if any(overlay.fresh for overlay in dataset.planted):
        return replace(dataset, plain=opened(replace(spec, plants=()), []).images)
    return dataset


def kind_of_source(data: str | Path | Array | Mapping[str, Array]) -> tuple[str, Kind]:
    """Return what a source is called and what it holds, before anything of it is decoded.

    Raises:
        ValueError: it cannot be read.
    """
    spec, examples = _read(data, None)
    if examples.recordings is not None:
        return str(spec), "sounds"
    windows = examples.pixels is not None and examples.pixels.dtype != np.uint8
    return str(spec), "windows" if windows else "images"


def count_of_source(
    data: str | Path | Array | Mapping[str, Array], labels: LabelTable | None = None
) -> int:
    """Return how many examples a source holds, before anything of it is decoded.

    Args:
        data: as `open_dataset` takes them.
        labels: count those that have all of these labels.

    Raises:
        ValueError: it cannot be read.

    Example:
        >>> count_of_source({"x": np.zeros((3, 8, 8, 1), np.uint8)})
        3
    """
    spec, examples = _read(data, None)
    if labels is not None:
        examples = labeled(examples, labels, spec.base, unlabeled=False)
    return len(split_rows(examples.names, spec))


def _features(spec: Spec, examples: Examples) -> list[Feature]:
    """Return what is to be planted.

    Raises:
        ValueError: the data has a task of that name, or features that do not go together.
    """
    for plant in spec.plants:
        if plant.name in examples.labels:
            raise ValueError(
                f"the data has a task '{plant.name}' already; '+{plant.name}' cannot be added"
            )
    features = [plant.feature() for plant in spec.plants]
    heard = [feature.name for feature in features if isinstance(feature, AudioOverlay)]
    if heard:
        raise ValueError(f"'+{heard[0]}' is planted in sounds, and '{spec.base}' holds images")
    stacked = [feature for feature in features if isinstance(feature, StackedDigits)]
    if stacked and any(isinstance(f, ImageOverlay) and f.fresh for f in features):
        raise ValueError(f"'+{stacked[0].name}' stays as it is: it does not go with ':fresh'")
    if stacked and any((y < 0).any() for y in examples.labels.values()):
        raise ValueError(f"'+{stacked[0].name}' goes by the labels, and some examples have none")
    return features


def _open(
    spec: Spec,
    features: list[Feature],
    *,
    examples: Examples,
    canvas: Canvas,
    max_examples: int | None,
    max_value: float | None,
    memory_budget: int | None,
    progress: ProgressCallback | None,
) -> Dataset:
    """Select and decode the images, draw over them, stack a channel behind theirs."""
    rows = split_rows(examples.names, spec)
    overlays = [feature.draw(canvas) for feature in features if isinstance(feature, ImageOverlay)]
    channel = next((f.draw(canvas) for f in features if isinstance(f, StackedDigits)), None)
    *size, channels = canvas.shape
    shape = (*size, channels + (channel is not None))

    def build(out: NDArray[np.uint8]) -> Record:
        read = _copy if examples.files is None else partial(_decode, max_value=max_value)
        record = read(examples, rows, max_examples, out[..., :channels], progress)
        _plant(out[: len(record["rows"])], overlays, _of_rows(channel, record))
        return record

    def key(max_value: float | None) -> str:
        # The same for every command that asks for the same pixels, by whatever name.
        plants = list(map(str, spec.plants))
        planted = (plants, canvas.seed, canvas.held_out) if plants else None
        named = (spec.base, spec.split) if spec.base in BUILT_IN else None  # they share a folder
        ids = canvas.class_ids if max_examples is not None or channel is not None else None
        by_class = None if ids is None else ids.tobytes()  # a table of labels may have changed
        settings = (shape, max_examples, max_value, rows.tobytes(), planted, named, by_class)
        return cache_key(settings, examples.names, examples.origin + _digit_files(spec))

    def known_key() -> str:
        own = key(None)  # a run's white is that of its data, which were opened without one
        record = None if max_value is None else cached_record(own)
        return own if record and record.get("max_value") in (None, max_value) else key(max_value)

    whole = (len(choose(examples, rows, max_examples)), *shape)
    if examples.origin:
        images, record, place = load_or_build(whole, build, key=known_key, budget=memory_budget)
    elif examples.pixels is not None and examples.pixels.shape == whole and not overlays:
        images, place = examples.pixels, "used where it is: nothing was copied"
        record = {"rows": rows.tolist()}
    else:  # made in memory, so it fits there; and it has no identity to be cached under
        images, record, place = load_or_build(whole, build, key=None)
    dataset = _dataset(spec, examples, images, record, overlays, place)
    return replace(dataset, stacked=_of_rows(channel, record))


def _of_rows(channel: DigitChannel | None, record: Record) -> DigitChannel | None:
    """Return the channel of the examples that were read, in their order."""
    if channel is None:
        return None
    return replace(channel, class_ids=channel.class_ids[np.array(record["rows"], dtype=np.int64)])


def _plant(
    images: NDArray[np.uint8], overlays: list[Overlay], channel: DigitChannel | None
) -> None:
    """Draw over `images` [n, H, W, C] in place; a stacked channel is their last."""
    for first in range(0, len(images), _CHUNK):
        index = np.arange(first, min(first + _CHUNK, len(images)))
        part = images[first : first + len(index)]
        if channel is None:
            _paint(part, overlays, index)
            continue
        below = np.ascontiguousarray(part[..., :-1])
        _paint(below, overlays, index)
        part[..., :-1] = below
        part[..., -1] = channel.draw(index)


def _paint(images: NDArray[np.uint8], overlays: list[Overlay], index: NDArray[np.int64]) -> None:
    for overlay in overlays:
        overlay.paint(images, index)


def _read(data: object, size: Size | None) -> tuple[Spec, Examples]:
    if isinstance(data, Path):
        spec = Spec(spec_text(data))
        if not data.exists():
            raise ValueError(f"no path '{data}'{did_you_mean(str(data))}")
    elif isinstance(data, str):
        spec = parse(data)
    elif isinstance(data, np.ndarray | torch.Tensor | Mapping):
        return Spec(MEMORY), read_memory(data)
    else:
        remedy = "give its arrays()" if isinstance(data, Dataset) else "stack other images into one"
        raise ValueError(
            f"cannot read data from {type(data).__name__}; expected a name or path, an array or "
            f"tensor such as [n, H, W, C], or a mapping of arrays with key 'x': {remedy}"
        )
    if spec.base == "photos":
        is_square = size is not None and size[0] == size[1]
        return spec, read_photos(spec.split or "train", size[0] if size and is_square else None)
    if spec.base == "spoken":
        return spec, read_spoken(spec.split or "train")
    if spec.base == "motion":
        return spec, read_motion(spec.split or "train")
    if spec.base in BUILT_IN:
        return spec, _read_cifar(spec)
    path = Path(os.path.expanduser(spec.base))
    if path.is_dir():
        return spec, read_folder(path)
    if path.suffix.lower() == ".npz":
        return spec, read_npz(path)
    if path.suffix.lower() == ".npy":
        return spec, read_npy(path)
    if path.suffix.lower() == ".parquet":
        return spec, replace(read_windows(read_parquet(path)), origin=(path,))
    raise ValueError(f"'{path}' is neither a folder, nor a .npz, .npy or .parquet file")


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
        origin=(root,),
    )


def _shape(examples: Examples, size: Size | None) -> tuple[int, int, int]:
    """Return (H, W, C) of the images to be."""
    if examples.files is not None:
        return *(size or common_size(examples.files)), 3
    assert examples.pixels is not None
    height, width, channels = examples.pixels.shape[1:]
    return *(size or (height, width)), channels


def _digit_files(spec: Spec) -> tuple[Path, ...]:
    options = [option for plant in spec.plants for option in plant.options]
    return tuple(Path(value).expanduser() for key, value in options if key == "source")


def _copy(
    examples: Examples,
    rows: NDArray[np.int64],
    max_examples: int | None,
    out: NDArray[np.uint8],
    progress: ProgressCallback | None,
) -> Record:
    """Copy the chosen rows of decoded pixels into `out`, brought to its size."""
    assert examples.pixels is not None
    chosen = choose(examples, rows, max_examples)
    size = out.shape[1:3]
    resized = examples.pixels.shape[1:3] != size
    for first in range(0, len(chosen), _CHUNK):
        pixels = examples.pixels[chosen[first : first + _CHUNK]]
        out[first : first + _CHUNK] = resize_array(pixels, size) if resized else pixels
        if progress is not None:
            progress(min(first + _CHUNK, len(chosen)), len(chosen))
    return {"rows": chosen.tolist(), "choices": {"resized": len(chosen)} if resized else {}}


def _decode(
    examples: Examples,
    rows: NDArray[np.int64],
    max_examples: int | None,
    out: NDArray[np.uint8],
    progress: ProgressCallback | None,
    *,
    max_value: float | None,
) -> Record:
    """Decode the chosen rows of encoded files into `out`, leaving no gap for unreadable ones."""
    assert examples.files is not None
    failed: dict[int, Skipped] = {}
    while True:
        left = np.setdiff1d(rows, list(failed))
        chosen = choose(
            examples, left, None if max_examples is None else min(max_examples, len(left))
        )
        files, names = zip(*((examples.files[r], examples.names[r]) for r in chosen), strict=True)
        reading = decode_all(files, names, out[: len(chosen)], progress, max_value)
        bad = reading.failed
        failed |= {int(chosen[i]): skipped for i, skipped in bad.items()}
        refuse_many(list(failed.values()), len(rows))
        # With a maximum, others take the place of the unreadable ones.
        if not bad or max_examples is None:
            break
    good = np.setdiff1d(np.arange(len(chosen)), list(bad))
    for position, row in enumerate(good):
        if position != row:
            out[position] = out[row]
    skipped = [(failed[row].path, failed[row].reason) for row in sorted(failed)]
    return {
        "rows": chosen[good].tolist(),
        "skipped": skipped,
        "choices": dict(reading.choices),
        "max_value": reading.max_value,
        "largest": reading.largest,
    }


def _dataset(
    spec: Spec,
    examples: Examples,
    images: NDArray[np.uint8],
    record: Record,
    planted: list[Overlay],
    place: str,
) -> Dataset:
    rows = np.array(record["rows"], dtype=np.int64)
    n, choices = len(rows), record.get("choices", {})
    skipped = tuple(Skipped(path, reason) for path, reason in record.get("skipped", ()))
    index, deep, max_value = np.arange(n), choices.get("deep", 0), record.get("max_value")
    height, width = images.shape[1:3]
    notes = [*examples.notes]
    if spec.split and spec.base not in BUILT_IN:
        notes.append(f"{spec.split} split: {n} examples, 80 / 20 by a hash of each name")
    notes += size_note(choices.get("resized", 0), n, (height, width))
    notes += depth_note(deep, n, max_value, record.get("largest", 0))
    notes += choice_notes(choices, n)
    notes += dark_note(images[:n])
    notes += skipped_note(skipped)
    return Dataset(
        spec=str(spec),
        images=images[:n],
        labels={
            **{task: ids[rows] for task, ids in examples.labels.items()},
            **{overlay.name: overlay.labels(index) for overlay in planted},
        },
        classes={**examples.classes, **{overlay.name: overlay.classes for overlay in planted}},
        paths=[examples.names[row] for row in record["rows"]],
        skipped=skipped,
        notes=tuple(notes),
        place=place,
        max_value=max_value if deep else None,
        planted=tuple(planted),
    )
