"""`open_dataset`: read a source, select examples, decode them, plant features."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray

from widefield.core.center_fit import cut_share
from widefield.core.names import check_name, printable
from widefield.core.pixels import white_of
from widefield.core.types import (
    BlackWhite,
    Fit,
    Kind,
    PixelStorage,
    ProgressCallback,
    Range,
    Size,
    as_black_white,
    as_size,
    is_black_white,
    kind_of,
)
from widefield.data.builtin.motion import read_motion
from widefield.data.builtin.photos import read_photos
from widefield.data.builtin.spoken import read_spoken
from widefield.data.cache import (
    SLOW,
    DecodingJournal,
    Record,
    cache_folder,
    cache_key,
    digest,
    digest_of_files,
    load_or_build,
    read_record,
    space_lacking,
)
from widefield.data.columns import take
from widefield.data.dataset import Dataset
from widefield.data.decisions import excluded_names, without
from widefield.data.decode.images import check_inside, decode_all, seconds_to_decode
from widefield.data.decode.pages import pages_of
from widefield.data.decode.resize import resize_array
from widefield.data.decode.values import (
    decode_values,
    find_form,
    fitted,
    percentiles,
    sample_rows,
    stored_type,
)
from widefield.data.encoded import EncodedImages
from widefield.data.examples import Examples, SelectedFiles
from widefield.data.groups import grouped
from widefield.data.labels import LabelTable, labeled
from widefield.data.notes import dark_note, decoding_notes, split_note
from widefield.data.open_sounds import open_sounds
from widefield.data.open_windows import open_windows
from widefield.data.planted import (
    AudioFeature,
    BitPlanes,
    Bits,
    Canvas,
    DigitChannel,
    Feature,
    ImageFeature,
    Overlay,
    StackedDigits,
)
from widefield.data.readers.arrays import Array, read_memory
from widefield.data.readers.images import common_size, size_for
from widefield.data.readers.paths import read_path, read_url
from widefield.data.readers.python_data import read_object
from widefield.data.select import balanced_subset, split_rows, subset_without
from widefield.data.skipped import Skipped, check_skipped, skipped_note
from widefield.data.spec import BUILT_IN, MEMORY, Spec, did_you_mean, is_url, parse, spec_text

Data = str | Path | Array | Mapping[str, Any] | Sequence[Any]
"""Data as calls accept it: a spec or path, images as an array, arrays by name, or a list of paths
or PIL images."""

Agree = Callable[[str | None], str | None]
"""Returns why all processes of a run keep images encoded, from what one of them found; or None."""

Appended = DigitChannel | BitPlanes
"""Planted channels after those of the image."""

_CHUNK = 512
_TIMED_FROM = 1_000
"""Number of files from which the time to decode them is estimated first."""


def open_dataset(
    data: Data,
    *,
    max_examples: int | None = None,
    image_size: int | Size | None = None,
    black_white: BlackWhite | None = None,
    seed: int = 0,
    held_out: bool = False,
    labels: LabelTable | None = None,
    unlabeled: bool = False,
    exclude: tuple[str, ...] = (),
    group: str | None = None,
    seconds: float | None = None,
    sample_rate: int | None = None,
    fit: Fit = "crop",
    pixels: PixelStorage = "auto",
    memory_budget: int | None = None,
    agree: Agree = lambda lacking: lacking,
    progress: ProgressCallback | None = None,
) -> Dataset:
    """Open images, windows or sounds: a data spec, a path, or arrays in memory.

    Args:
        data: a spec as in `widefield.data.spec`; arrays as in `widefield.data.readers.arrays`; a
            list of paths or PIL images.
        max_examples: number of examples, balanced over the classes of the first task.
        image_size: side of square images, or height and width; default: see `common_size` in
            `data.readers.images`.
        black_white: values that become 0 and 255 in images of more than 8 bits; default: from the
            data, see `data.decode.high_bit_depth`.
        seed: seed of the planted features.
        held_out: use held-out sources of planted features, as `:test` always does.
        labels: labels that replace those of the data; see `data.labels`.
        unlabeled: keep examples without a label, as class -1, instead of dropping them.
        exclude: paths of examples to leave out; see `data.decisions`.
        group: which examples belong together; see `data.groups`. A task of this name is no task.
        seconds: duration of an example of sounds; default: 1.
        sample_rate: sampling rate of sounds, Hz; default: that of the files, at most 16,000.
        fit: how images of another shape are brought to the size: cut around the center, padded
            with black, or squashed.
        pixels: decoded keeps decoded images in memory or in the cache, encoded decodes files at
            each read; auto is encoded where neither memory nor disk holds the decoded images.
        memory_budget: limit of pixels in memory, bytes; default: half of the free memory.
        agree: called with what `auto` found in this process, and returns what all processes of a
            run go by.
        progress: called with (done, total) images while files are decoded.

    Raises:
        ValueError: the data cannot be read, or an argument does not fit them.

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
    if black_white is not None and not is_black_white(black_white):
        raise ValueError(f"black_white is {black_white!r}; expected two numbers, black < white")
    check_name("fit", fit, get_args(Fit))
    check_name("pixels", pixels, get_args(PixelStorage))
    spec, examples = _read(data, size, labels=labels is not None)
    excluded = excluded_names(exclude, examples.names, spec.base)
    if labels is not None:
        examples = labeled(examples, labels, spec.base, unlabeled=unlabeled)
    elif not unlabeled:
        examples = _without_gaps(examples)
    examples = without(examples, excluded, len(exclude))
    if group is not None:
        examples = grouped(examples, group)
    if examples.files is not None and black_white is not None and len(np.shape(black_white)) == 2:
        examples = replace(examples, as_values=True)  # as in the data of the run
    if pixels == "encoded" and (reason := _why_not_encoded(spec, examples)):
        raise ValueError(
            f"pixels is 'encoded', and the data '{spec}' {reason}: set it to auto or decoded"
        )
    if examples.pixels is not None and kind_of(examples.pixels) == "windows":
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
    if size is not None and size[0] == 1:  # the size of a window
        raise ValueError(
            f"{printable(str(spec))} holds images, and examples of 1 x {size[1]} were requested, "
            "as windows and sounds have them: give data of the kind that the encoder was trained on"
        )
    features = _features(spec, examples)
    *shape, dtype = _form(examples, size)
    ranges = 1 if black_white is None else len(np.reshape(black_white, (-1, 2)))
    if dtype != np.uint8 and ranges not in (1, shape[2]):
        raise ValueError(
            f"'{spec}' holds images of {shape[2]} channels, and black and white are recorded for "
            f"{ranges}: give data of the channels that the encoder was trained on"
        )
    task = next(iter(examples.labels), None)
    load = partial(
        _open,
        examples=examples,
        canvas=Canvas(
            shape=(shape[0], shape[1], shape[2]),
            seed=seed,
            held_out=held_out or spec.split == "test",
            class_ids=None if task is None else examples.labels[task],
            class_count=0 if task is None else len(examples.classes[task]),
        ),
        dtype=dtype,
        max_examples=max_examples,
        black_white=black_white,
        fit=fit,
        pixels=pixels,
        memory_budget=memory_budget,
        agree=agree,
        progress=progress,
    )
    dataset = load(spec, features)
    if any(overlay.fresh for overlay in dataset.planted):
        plain = load(replace(spec, plants=()), [], pixels="decoded").images
        return replace(dataset, plain=plain)
    return dataset


def kind_of_source(data: Data) -> tuple[str, Kind]:
    """Return the spec and the kind of a source without decoding it.

    Raises:
        ValueError: the source cannot be read.
    """
    spec, examples = _read(data, None)
    if examples.recordings is not None:
        return str(spec), "sounds"
    windows = examples.pixels is not None and kind_of(examples.pixels) == "windows"
    return str(spec), "windows" if windows else "images"


def count_of_source(
    data: Data,
    labels: LabelTable | None = None,
    group: str | None = None,
    exclude: tuple[str, ...] = (),
) -> int:
    """Return the number of examples of a source without decoding it.

    Args:
        data: as for `open_dataset`.
        labels: count only examples with all of these labels.
        group: which examples belong together, for the split.
        exclude: paths of examples that do not count.

    Raises:
        ValueError: it cannot be read.

    Example:
        >>> count_of_source({"x": np.zeros((3, 8, 8, 1), np.uint8)})
        3
    """
    spec, examples = _read(data, None, labels=labels is not None)
    excluded = excluded_names(exclude, examples.names, spec.base)
    if labels is not None:
        examples = labeled(examples, labels, spec.base, unlabeled=False)
    examples = without(examples, excluded, len(exclude))
    if group is not None:
        examples = grouped(examples, group)
    return len(split_rows(examples, spec))


def _why_not_encoded(spec: Spec, examples: Examples) -> str | None:
    """Return why images cannot be decoded at each read, in words; None if they can."""
    if examples.files is None:
        return "have no encoded images"
    if examples.as_values:
        return "keep depth and channels"
    return "have planted features" if spec.plants else None


def _without_gaps(examples: Examples) -> Examples:
    """Return the examples without the tasks that some of them have no label of."""
    gaps = {task: int((y < 0).sum()) for task, y in examples.labels.items() if (y < 0).any()}
    notes = tuple(
        f"{task!r} is left out: {count} examples have no label; --labels leaves these out instead"
        for task, count in gaps.items()
    )
    return replace(
        examples,
        labels={task: y for task, y in examples.labels.items() if task not in gaps},
        classes={task: names for task, names in examples.classes.items() if task not in gaps},
        notes=(*examples.notes, *notes),
    )


def _features(spec: Spec, examples: Examples) -> list[Feature]:
    """Return the features to plant; check that they suit images and can be combined."""
    features = spec.features(examples.labels)
    names = [feature.name for feature in features if isinstance(feature, AudioFeature)]
    if names:
        raise ValueError(f"'+{names[0]}' is planted in sounds, and '{spec.base}' holds images")
    appended = [feature for feature in features if isinstance(feature, StackedDigits | Bits)]
    if len(appended) > 1:
        names = [feature.name for feature in appended]
        raise ValueError(f"'+{names[0]}' and '+{names[1]}' both append channels: plant one of them")
    if appended and any(isinstance(f, ImageFeature) and f.fresh for f in features):
        raise ValueError(f"'+{appended[0].name}' cannot be combined with ':fresh'")
    unlabeled = any((y < 0).any() for y in examples.labels.values())
    if unlabeled and any(isinstance(f, StackedDigits) for f in appended):
        raise ValueError(f"'+{appended[0].name}' needs labels, and some examples have none")
    return features


def _open(
    spec: Spec,
    features: list[Feature],
    *,
    examples: Examples,
    canvas: Canvas,
    dtype: "np.dtype[Any]",
    max_examples: int | None,
    black_white: BlackWhite | None,
    fit: Fit,
    pixels: PixelStorage,
    memory_budget: int | None,
    agree: Agree,
    progress: ProgressCallback | None,
) -> Dataset:
    """Select and decode images, draw overlays, append channels."""
    rows = split_rows(examples, spec)
    overlays = [feature.draw(canvas) for feature in features if isinstance(feature, ImageFeature)]
    channel = next((f.draw(canvas) for f in features if isinstance(f, StackedDigits | Bits)), None)
    *size, channels = canvas.shape
    shape = (*size, channels + (0 if channel is None else channel.count))
    whole = (len(balanced_subset(examples, rows, max_examples)), *shape)
    read = partial(
        _decode,
        examples,
        rows,
        max_examples,
        size=(size[0], size[1]),
        fit=fit,
        progress=progress,
        black_white=black_white,
    )

    def build(out: NDArray[Any], journal: DecodingJournal | None) -> Record:
        if examples.files is None:
            target = out[..., :channels]
            record = _copy(examples, rows, max_examples, target, progress, black_white, fit)
        else:
            record = read(out[..., :channels], journal)
        index = _rows_of(record, examples, rows, max_examples)
        _plant(out[: len(index)], overlays, _of_rows(channel, index))
        return record

    origin = examples.origin

    def key(black_white: BlackWhite | None, kept: str = "") -> str:
        assert origin is not None
        # Equal for all commands that need the same pixels.
        plants = list(map(str, spec.plants))
        planted = (plants, canvas.seed, canvas.held_out) if plants else None
        named = (spec.base, spec.split) if spec.base in BUILT_IN else None  # share one folder
        ids = canvas.class_ids if max_examples is not None or channel is not None else None
        settings = (shape, dtype.str, max_examples, black_white, planted, named, spec.values, fit)
        options = [option for plant in spec.plants for option in plant.options]
        digits = [Path(value).expanduser() for name, value in options if name == "source"]
        # Labels may come from a table.
        return cache_key((settings, kept), origin(), digest(rows, ids), files=digits)

    def known_key(kept: str = "") -> str:
        default_key = key(None, kept)  # a run opened its data without `black_white` and found it
        record = None if black_white is None else read_record(cache_folder() / default_key)
        found = record is not None and _black_white(record) in (None, black_white)
        return default_key if found else key(black_white, kept)

    def is_slow() -> bool:
        if examples.files is None or examples.as_values or len(rows) < _TIMED_FROM:
            return False
        return seconds_to_decode(SelectedFiles(examples.files, rows), (size[0], size[1])) > SLOW

    lacking, why_not_encoded = None, _why_not_encoded(spec, examples)
    if pixels == "auto" and why_not_encoded is None:
        lacking = agree(space_lacking(whole, origin and known_key, memory_budget))
    if pixels == "encoded" or lacking is not None:
        digests, record, _ = load_or_build(
            whole[:1],
            read,
            key=origin and partial(known_key, "digests"),
            dtype=np.uint64,
            slow=is_slow,
        )
        index = _rows_of(record, examples, rows, max_examples)
        assert examples.files is not None
        encoded = EncodedImages(
            files=SelectedFiles(examples.files, index),
            names=take(examples.names, index),
            size=(size[0], size[1]),
            fit=fit,
            black_white=cast(Range | None, black_white or _black_white(record)),
            digests=digests[: len(index)],
        )
        storage = "kept encoded, and decoded at each read" + f": {lacking}" * bool(lacking)
        images = cast(NDArray[Any], encoded)  # read like one
        return _dataset(spec, examples, images, record, index, overlays, storage, fit)
    if origin is not None:
        images, record, storage = load_or_build(
            whole,
            build,
            key=known_key,
            budget=memory_budget,
            dtype=dtype,
            slow=is_slow,
            why_not_encoded=why_not_encoded,
        )
    elif examples.pixels is not None and _is_ready(examples.pixels, whole) and not overlays:
        images, record, storage = examples.pixels, {}, "used in place, without a copy"
    else:  # arrays in memory: they fit, and have no identity for a cache key
        images, record, storage = load_or_build(whole, build, key=None, dtype=dtype)
    index = _rows_of(record, examples, rows, max_examples)
    dataset = _dataset(spec, examples, images[: len(index)], record, index, overlays, storage, fit)
    channel = _of_rows(channel, index)
    if isinstance(channel, DigitChannel):
        return replace(dataset, stacked=channel)
    return dataset if channel is None else _with_bits(dataset, channel)


def _with_bits(dataset: Dataset, planes: BitPlanes) -> Dataset:
    """Return the examples with the task of their bits, where there are any."""
    if not planes.count:
        return dataset
    labels = {**dataset.labels, planes.name: planes.labels(np.arange(len(dataset)))}
    classes = {**dataset.classes, planes.name: planes.classes}
    return replace(dataset, labels=labels, classes=classes, bits=planes.count)


def _rows_of(
    record: Record, examples: Examples, rows: NDArray[np.int64], max_examples: int | None
) -> NDArray[np.int64]:
    """Return the rows of the source that are decoded, in their order."""
    return subset_without(record.get("failed", ()), examples, rows, max_examples)


def _of_rows(channel: Appended | None, rows: NDArray[np.int64]) -> Appended | None:
    """Return the channels of the decoded examples, in their order."""
    if not isinstance(channel, DigitChannel):
        return channel  # bits depend on the position alone, as overlays do
    return replace(channel, class_ids=channel.class_ids[rows])


def _plant(images: NDArray[Any], overlays: list[Overlay], channel: Appended | None) -> None:
    """Draw overlays on `images` [n, H, W, C] in place; appended channels are the last."""
    drawn_on = images.shape[-1] - (0 if channel is None else channel.count)
    for first in range(0, len(images), _CHUNK):
        index = np.arange(first, min(first + _CHUNK, len(images)))
        part = images[first : first + len(index)]
        below = part if channel is None else np.ascontiguousarray(part[..., :drawn_on])
        for overlay in overlays:
            overlay.apply(below, index)
        if channel is not None:
            part[..., :drawn_on] = below
            white = int(white_of(part.dtype)) // 255 or 1 / 255
            part[..., drawn_on:] = channel.draw(index) * white


def _read(data: object, size: Size | None, *, labels: bool = False) -> tuple[Spec, Examples]:
    if isinstance(data, Path):
        spec = Spec(spec_text(data))
        if not data.exists():
            raise ValueError(f"no path '{data}'{did_you_mean(str(data))}")
    elif isinstance(data, str):
        spec = parse(data)
    elif isinstance(data, np.ndarray | torch.Tensor | Mapping):
        return Spec(MEMORY), read_memory(data)
    elif (examples := read_object(data)) is not None:
        return Spec(MEMORY), examples
    else:
        hint = "give its arrays()" if isinstance(data, Dataset) else "stack other images into one"
        raise ValueError(
            f"cannot read data from {type(data).__name__}; expected a name or path, an array or "
            "tensor such as [n, H, W, C], a list of paths or PIL images, or a mapping of arrays "
            f"with key 'x': {hint}"
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
    if is_url(spec.base):
        return spec, _with_values(read_url(spec.base, labels=labels), spec)
    path = Path(os.path.expanduser(spec.base))
    return spec, _with_values(read_path(path, labels=labels), spec)


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


def _form(examples: Examples, size: Size | None) -> tuple[int, int, int, "np.dtype[np.generic]"]:
    """Return H, W, C and type of the decoded images."""
    if examples.files is not None and examples.as_values:
        form = find_form(examples.files)
        return *(size or size_for(form.sizes)), form.channels, form.dtype
    if examples.files is not None:
        return *(size or common_size(examples.files)), 3, np.dtype(np.uint8)
    assert examples.pixels is not None
    height, width, channels = examples.pixels.shape[1:]
    return *(size or (height, width)), channels, stored_type(examples.pixels.dtype)


def _is_ready(pixels: NDArray[Any], shape: tuple[int, ...]) -> bool:
    return pixels.shape == shape and pixels.dtype == np.uint8


def _copy(
    examples: Examples,
    rows: NDArray[np.int64],
    max_examples: int | None,
    out: NDArray[Any],
    progress: ProgressCallback | None,
    black_white: BlackWhite | None,
    fit: Fit,
) -> Record:
    """Copy the selected rows of decoded pixels into `out`, resized if necessary."""
    assert examples.pixels is not None
    selected = balanced_subset(examples, rows, max_examples)
    if out.dtype != np.uint8:
        return _copy_values(examples.pixels, selected, out, black_white, fit)
    size = out.shape[1:3]
    resized = examples.pixels.shape[1:3] != size
    for first in range(0, len(selected), _CHUNK):
        pixels = examples.pixels[selected[first : first + _CHUNK]]
        out[first : first + _CHUNK] = resize_array(pixels, size, fit) if resized else pixels
        if progress is not None:
            progress(min(first + _CHUNK, len(selected)), len(selected))
    choices = {"resized": len(selected)} if resized else {}
    return {"choices": choices, "cut": cut_share(examples.pixels.shape[1:3], size, fit)}


def _copy_values(
    pixels: NDArray[Any],
    rows: NDArray[np.int64],
    out: NDArray[Any],
    black_white: BlackWhite | None,
    fit: Fit,
) -> Record:
    """Copy values of more than 8 bits into `out`, scaled by `black_white` or by percentiles."""
    sampled = sample_rows(len(rows))
    found = black_white or percentiles([pixels[row] for row in rows[sampled]])
    size, outside = (out.shape[1], out.shape[2]), []
    for i, row in enumerate(rows.tolist()):
        out[i], share = fitted(pixels[row], out.dtype, size, found, fit)
        outside.append(share or 0.0)
    if black_white is not None:
        check_inside(outside, black_white)
    resized = len(rows) if pixels.shape[1:3] != size else 0
    return {
        "choices": {"deep": len(rows), **({"resized": resized} if resized else {})},
        "cut": cut_share((pixels.shape[1], pixels.shape[2]), size, fit),
        "black_white": found,
        "sampled": 0 if black_white is not None else len(sampled),
        "outside": sum(outside) / len(outside),
    }


def _decode(
    examples: Examples,
    rows: NDArray[np.int64],
    max_examples: int | None,
    out: NDArray[Any],
    journal: DecodingJournal | None,
    *,
    size: Size,
    fit: Fit,
    progress: ProgressCallback | None,
    black_white: BlackWhite | None,
) -> Record:
    """Decode the selected rows of encoded files into `out`, without gaps for unreadable ones."""
    assert examples.files is not None
    failed: dict[int, Skipped] = {}
    while True:
        selected = subset_without(failed, examples, rows, max_examples)
        files, names = SelectedFiles(examples.files, selected), take(examples.names, selected)
        target = out[: len(selected)]
        read: Any = decode_values if examples.as_values else decode_all
        result = read(files, names, target, progress, black_white, journal, size=size, fit=fit)
        failed |= {int(selected[i]): skipped for i, skipped in result.failed.items()}
        check_skipped([*examples.skipped, *failed.values()], len(rows) + len(examples.skipped))
        if journal is not None:
            journal.clear()  # pixels move now
            journal = None
        # With `max_examples`, others replace the unreadable ones.
        if not result.failed or max_examples is None:
            break
    kept = np.setdiff1d(np.arange(len(selected)), list(result.failed))
    for position, row in enumerate(kept):
        if position != row:
            out[position] = out[row]
    return {
        "failed": sorted(failed),
        "skipped": [(failed[row].path, failed[row].reason) for row in sorted(failed)],
        "choices": dict(result.choices),
        "cut": result.cut / max(result.choices["resized"], 1),
        "black_white": result.black_white,
        "sampled": result.sampled,
        "outside": sum(result.outside) / max(len(result.outside), 1),
    }


def _black_white(record: Record) -> BlackWhite | None:
    return as_black_white(record.get("black_white"))


def _dataset(
    spec: Spec,
    examples: Examples,
    images: NDArray[Any],
    record: Record,
    rows: NDArray[np.int64],
    planted: list[Overlay],
    storage: str,
    fit: Fit,
) -> Dataset:
    n, index = len(rows), np.arange(len(rows))
    failed = tuple(Skipped(path, reason) for path, reason in record.get("skipped", ()))
    skipped = (*examples.skipped, *failed)
    height, width = images.shape[1:3]
    notes = [*examples.notes, *split_note(spec, n, grouped=examples.groups is not None)]
    notes += decoding_notes(record, n, (height, width), fit)
    notes += dark_note(images) + skipped_note(skipped)
    return Dataset(
        spec=str(spec),
        images=images,
        labels={
            **{task: ids[rows] for task, ids in examples.labels.items()},
            **{overlay.name: overlay.labels(index) for overlay in planted},
        },
        classes={**examples.classes, **{overlay.name: overlay.classes for overlay in planted}},
        paths=take(examples.names, rows),
        targets={task: target.subset(rows) for task, target in examples.targets.items()},
        groups=None if examples.groups is None else examples.groups[rows],
        skipped=(*skipped, *examples.excluded),
        notes=tuple(notes),
        storage=storage,
        fit=fit,
        black_white=_black_white(record) if record.get("choices", {}).get("deep") else None,
        planted=tuple(planted),
    )
