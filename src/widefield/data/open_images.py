"""Opening of images: selecting, decoding to one size, planting features."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from widefield.core.names import printable
from widefield.core.types import (
    BlackWhite,
    Fit,
    PixelStorage,
    ProgressCallback,
    Range,
    Size,
    as_black_white,
)
from widefield.data.build_pixels import Appended, copy_pixels, decode_files, plant
from widefield.data.cache import (
    SLOW,
    DecodingJournal,
    Record,
    cache_folder,
    cache_key,
    digest,
    load_or_build,
    read_record,
    space_lacking,
)
from widefield.data.columns import take
from widefield.data.dataset import Dataset
from widefield.data.decode.images import seconds_to_decode
from widefield.data.decode.values import find_form, stored_type
from widefield.data.encoded import EncodedImages
from widefield.data.examples import Examples, SelectedFiles
from widefield.data.notes import dark_note, decoding_notes, split_note
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
from widefield.data.readers.images import common_size, size_for
from widefield.data.select import balanced_subset, split_rows, subset_without
from widefield.data.skipped import Skipped, skipped_note
from widefield.data.spec import BUILT_IN, Spec

Agree = Callable[[str | None], str | None]
"""Returns why all processes of a run keep images encoded, from what one of them found; or None."""

_TIMED_FROM = 1_000
"""Number of files from which the time to decode them is estimated first."""


def open_images(
    spec: Spec,
    examples: Examples,
    *,
    size: Size | None,
    max_examples: int | None,
    black_white: BlackWhite | None,
    seed: int,
    held_out: bool,
    fit: Fit,
    pixels: PixelStorage,
    memory_budget: int | None,
    agree: Agree,
    progress: ProgressCallback | None,
) -> Dataset:
    """Select and decode images, and plant features; the arguments are those of `open_dataset`.

    Raises:
        ValueError: the examples have another form than is asked for, or features do not suit them.
    """
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


def reason_to_decode(spec: Spec, examples: Examples) -> str | None:
    """Return why images cannot be decoded at each read, in words; None if they can."""
    if examples.files is None:
        return "have no encoded images"
    if examples.as_values:
        return "keep depth and channels"
    return "have planted features" if spec.plants else None


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
        decode_files,
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
            record = copy_pixels(examples, rows, max_examples, target, progress, black_white, fit)
        else:
            record = read(out[..., :channels], journal)
        index = _rows_of(record, examples, rows, max_examples)
        plant(out[: len(index)], overlays, _of_rows(channel, index))
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

    lacking, why_not_encoded = None, reason_to_decode(spec, examples)
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


def _is_ready(pixels: NDArray[Any], shape: tuple[int, ...]) -> bool:
    return pixels.shape == shape and pixels.dtype == np.uint8


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
