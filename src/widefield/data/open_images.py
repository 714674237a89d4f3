"""Opening of images: selecting, decoding to one size, planting features."""

from collections.abc import Callable
from dataclasses import dataclass, replace
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
from widefield.data.plant import draw
from widefield.data.planted import (
    AudioFeature,
    BitPlanes,
    Bits,
    Canvas,
    DigitChannel,
    Feature,
    ImageFeature,
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


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Arguments of `open_dataset` that say how images are decoded and kept."""

    max_examples: int | None
    black_white: BlackWhite | None
    fit: Fit
    pixels: PixelStorage
    memory_budget: int | None
    agree: Agree
    progress: ProgressCallback | None


def open_images(
    spec: Spec,
    examples: Examples,
    *,
    size: Size | None,
    seed: int,
    held_out: bool,
    options: ImageOptions,
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
    black_white = options.black_white
    ranges = 1 if black_white is None else len(np.reshape(black_white, (-1, 2)))
    if dtype != np.uint8 and ranges not in (1, shape[2]):
        raise ValueError(
            f"'{spec}' holds images of {shape[2]} channels, and black and white are recorded for "
            f"{ranges}: give data of the channels that the encoder was trained on"
        )
    task = next(iter(examples.labels), None)
    canvas = Canvas(
        shape=(shape[0], shape[1], shape[2]),
        seed=seed,
        held_out=held_out or spec.split == "test",
        class_ids=None if task is None else examples.labels[task],
        class_count=0 if task is None else len(examples.classes[task]),
    )
    dataset = _Opening(spec, examples, features, canvas, dtype, options).dataset()
    if any(overlay.fresh for overlay in dataset.planted):
        unplanted, decoded = replace(spec, plants=()), replace(options, pixels="decoded")
        plain = _Opening(unplanted, examples, [], canvas, dtype, decoded).dataset()
        return replace(dataset, plain=plain.images)
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


class _Opening:
    """Selects and decodes the images of one spec, draws overlays and appends channels."""

    def __init__(
        self,
        spec: Spec,
        examples: Examples,
        features: list[Feature],
        canvas: Canvas,
        dtype: "np.dtype[Any]",
        options: ImageOptions,
    ) -> None:
        self.spec, self.examples, self.canvas = spec, examples, canvas
        self.dtype, self.options = dtype, options
        self.rows = split_rows(examples, spec)
        self.overlays = [draw(f, canvas) for f in features if isinstance(f, ImageFeature)]
        appended = (draw(f, canvas) for f in features if isinstance(f, StackedDigits | Bits))
        self.channel: Appended | None = next(appended, None)
        height, width, channels = canvas.shape
        self.size = (height, width)
        count = len(balanced_subset(examples.labels, self.rows, options.max_examples))
        added = 0 if self.channel is None else self.channel.count
        self.shape = (count, height, width, channels + added)

    def dataset(self) -> Dataset:
        """Return the images, encoded or decoded."""
        lacking, why_not_encoded = None, reason_to_decode(self.spec, self.examples)
        if self.options.pixels == "auto" and why_not_encoded is None:
            key = self.examples.origin and self._key_of_run
            lacking = space_lacking(self.shape, key, self.options.memory_budget)
            lacking = self.options.agree(lacking)
        if self.options.pixels == "encoded" or lacking is not None:
            return self._encoded(lacking)
        return self._decoded(why_not_encoded)

    def _encoded(self, lacking: str | None) -> Dataset:
        """Return images that are decoded at each read."""
        assert self.examples.files is not None
        digests, record, _ = load_or_build(
            self.shape[:1],
            self._read,
            key=self.examples.origin and partial(self._key_of_run, "digests"),
            dtype=np.uint64,
            slow=self._is_slow,
        )
        index = self._decoded_rows(record)
        black_white = self.options.black_white or _black_white(record)
        encoded = EncodedImages(
            files=SelectedFiles(self.examples.files, index),
            names=take(self.examples.names, index),
            size=self.size,
            fit=self.options.fit,
            black_white=cast(Range | None, black_white),
            digests=digests[: len(index)],
        )
        storage = "kept encoded, and decoded at each read" + f": {lacking}" * bool(lacking)
        return self._with_labels(cast(NDArray[Any], encoded), record, storage)  # read like one

    def _decoded(self, why_not_encoded: str | None) -> Dataset:
        """Return images that are decoded once, with overlays and appended channels."""
        given = self.examples.pixels
        if self.examples.origin is not None:
            images, record, storage = load_or_build(
                self.shape,
                self._build,
                key=self._key_of_run,
                budget=self.options.memory_budget,
                dtype=self.dtype,
                slow=self._is_slow,
                why_not_encoded=why_not_encoded,
            )
        elif given is not None and _is_ready(given, self.shape) and not self.overlays:
            images, record, storage = given, {}, "used in place, without a copy"
        else:  # arrays in memory: they fit, and have no identity for a cache key
            images, record, storage = load_or_build(
                self.shape, self._build, key=None, dtype=self.dtype
            )
        index = self._decoded_rows(record)
        dataset = self._with_labels(images[: len(index)], record, storage)
        channel = _of_rows(self.channel, index)
        if isinstance(channel, DigitChannel):
            return replace(dataset, stacked=channel)
        return dataset if channel is None else _with_bits(dataset, channel)

    def _read(self, out: NDArray[Any], journal: DecodingJournal | None) -> Record:
        """Decode files into pixels [n, H, W, C], or compute their digests [n]."""
        return decode_files(
            self.examples,
            self.rows,
            self.options.max_examples,
            out,
            journal,
            size=self.size,
            fit=self.options.fit,
            progress=self.options.progress,
            black_white=self.options.black_white,
        )

    def _build(self, out: NDArray[Any], journal: DecodingJournal | None) -> Record:
        """Write all pixels [n, H, W, C], with planted features."""
        target = out[..., : self.canvas.shape[2]]
        if self.examples.files is None:
            record = copy_pixels(
                self.examples,
                self.rows,
                self.options.max_examples,
                target,
                self.options.progress,
                self.options.black_white,
                self.options.fit,
            )
        else:
            record = self._read(target, journal)
        index = self._decoded_rows(record)
        plant(out[: len(index)], self.overlays, _of_rows(self.channel, index))
        return record

    def _key_of_run(self, kept: str = "") -> str:
        """Return the key of the pixels as the run has them, whose range of values is known."""
        given = self.options.black_white
        default_key = self._key(None, kept)  # a run opened its data without a range and found it
        record = None if given is None else read_record(cache_folder() / default_key)
        found = record is not None and _black_white(record) in (None, given)
        return default_key if found else self._key(given, kept)

    def _key(self, black_white: BlackWhite | None, kept: str) -> str:
        """Return the key of the cache, equal for all commands that need the same pixels."""
        spec, canvas, most = self.spec, self.canvas, self.options.max_examples
        assert self.examples.origin is not None
        plants = list(map(str, spec.plants))
        planted = (plants, canvas.seed, canvas.held_out) if plants else None
        named = (spec.base, spec.split) if spec.base in BUILT_IN else None  # share one folder
        form = (self.shape[1:], self.dtype.str, most, black_white)
        settings = (*form, planted, named, spec.values, self.options.fit)
        options = [option for plant in spec.plants for option in plant.options]
        digits = [Path(value).expanduser() for name, value in options if name == "source"]
        # Labels may come from a table.
        ids = canvas.class_ids if most is not None or self.channel is not None else None
        rows = digest(self.rows, ids)
        return cache_key((settings, kept), self.examples.origin(), rows, files=digits)

    def _is_slow(self) -> bool:
        """Return whether decoding is predicted to take long."""
        files = self.examples.files
        if files is None or self.examples.as_values or len(self.rows) < _TIMED_FROM:
            return False
        return seconds_to_decode(SelectedFiles(files, self.rows), self.size) > SLOW

    def _decoded_rows(self, record: Record) -> NDArray[np.int64]:
        """Return the rows of the source that are decoded, in their order."""
        failed, most = record.get("failed", ()), self.options.max_examples
        return subset_without(failed, self.examples, self.rows, most)

    def _with_labels(self, images: NDArray[Any], record: Record, storage: str) -> Dataset:
        """Return images [n, H, W, C] with labels, names and notes."""
        examples, fit, rows = self.examples, self.options.fit, self._decoded_rows(record)
        n, index, table = len(rows), np.arange(len(rows)), examples.table.take(rows)
        failed = tuple(Skipped(path, reason) for path, reason in record.get("skipped", ()))
        skipped = (*examples.skipped, *failed)
        height, width = images.shape[1:3]
        notes = [*examples.notes, *split_note(self.spec, n, grouped=examples.groups is not None)]
        notes += decoding_notes(record, n, (height, width), fit)
        notes += dark_note(images) + skipped_note(skipped)
        return Dataset(
            spec=str(self.spec),
            images=images,
            labels={
                **table.labels,
                **{overlay.name: overlay.labels(index) for overlay in self.overlays},
            },
            classes={
                **table.classes,
                **{overlay.name: overlay.classes for overlay in self.overlays},
            },
            paths=table.names,
            targets=table.targets,
            groups=table.groups,
            skipped=(*skipped, *examples.excluded),
            notes=tuple(notes),
            storage=storage,
            fit=fit,
            black_white=_black_white(record) if record.get("choices", {}).get("deep") else None,
            planted=tuple(self.overlays),
        )


def _with_bits(dataset: Dataset, planes: BitPlanes) -> Dataset:
    """Return the examples with the task of their bits, where there are any."""
    if not planes.count:
        return dataset
    labels = {**dataset.labels, planes.name: planes.labels(np.arange(len(dataset)))}
    classes = {**dataset.classes, planes.name: planes.classes}
    return replace(dataset, labels=labels, classes=classes, bits=planes.count)


def _of_rows(channel: Appended | None, rows: NDArray[np.int64]) -> Appended | None:
    """Return the channels of the decoded examples, in their order."""
    if not isinstance(channel, DigitChannel):
        return channel  # bits depend on the position alone, as overlays do
    return replace(channel, class_ids=channel.class_ids[rows])


def _is_ready(pixels: NDArray[Any], shape: tuple[int, ...]) -> bool:
    return pixels.shape == shape and pixels.dtype == np.uint8


def _black_white(record: Record) -> BlackWhite | None:
    return as_black_white(record.get("black_white"))
