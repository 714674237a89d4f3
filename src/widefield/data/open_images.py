"""Opening of images: selecting, decoding to one size, planting features."""

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from widefield.core.form import cut_share
from widefield.core.names import printable
from widefield.core.pixels import to_storage
from widefield.core.types import BlackWhite, Size, as_black_white
from widefield.data import cache, planted
from widefield.data.dataset import Dataset
from widefield.data.decode.black_white import ValueRange, check_scale
from widefield.data.decode.decoding import Result, decode_all, failure_record
from widefield.data.decode.eight_bits import in_8_bits
from widefield.data.decode.images import decode, sample_values
from widefield.data.decode.values import (
    decode_values,
    infer_channels,
    resize_array,
    sample_channels,
    storage_dtype,
)
from widefield.data.encoded import EncodedImages
from widefield.data.examples import Examples, selected
from widefield.data.notes import decoding_notes, plain_notes
from widefield.data.open_options import OpenOptions
from widefield.data.plant import draw
from widefield.data.readers.images import common_size, size_for
from widefield.data.select import balanced_subset, split_rows, subset_without
from widefield.data.spec import BUILTIN, Spec
from widefield.data.table import Skipped, check_skipped, take

# Chosen by hand: a memory map may be larger than the memory, and is copied in parts.
_CHUNK = 512


def open_images(spec: Spec, examples: Examples, options: OpenOptions) -> Dataset:
    if options.size is not None and options.size[0] == 1:  # the size of a window
        raise ValueError(
            f"{printable(str(spec))} holds images, and examples of 1 x {options.size[1]} were "
            "requested, as windows and sounds have them: give data of the kind that the encoder "
            "was trained on"
        )
    black_white = options.black_white
    examples = in_8_bits(examples, black_white, trained=options.eight_bits)
    if examples.files is not None and black_white is not None and len(np.shape(black_white)) == 2:
        examples = replace(examples, as_values=True)  # as in the data of the run
    features = _features(spec, examples)
    *shape, dtype = _stored_shape(examples, options.size)
    ranges = 1 if black_white is None else len(np.reshape(black_white, (-1, 2)))
    if dtype != np.uint8 and ranges not in (1, shape[2]):
        raise ValueError(
            f"'{spec}' holds images of {shape[2]} channels, and black and white are recorded for "
            f"{ranges}: give data of the channels that the encoder was trained on"
        )
    task = next(iter(examples.labels), None)
    canvas = planted.Canvas(
        shape=(shape[0], shape[1], shape[2]),
        seed=options.seed,
        held_out=options.held_out or spec.split == "test",
        class_ids=None if task is None else examples.labels[task],
        class_count=0 if task is None else len(examples.classes[task]),
    )
    appended = (draw(f, canvas) for f in features if isinstance(f, planted.Appended))
    source = _ImageSource(
        spec=spec,
        examples=examples,
        options=options,
        canvas=canvas,
        dtype=dtype,
        overlays=tuple(draw(f, canvas) for f in features if isinstance(f, planted.ImageFeature)),
        channel=next(appended, None),
    )
    dataset = source.dataset()
    if any(overlay.fresh for overlay in source.overlays):
        plain = replace(source, spec=replace(spec, plants=()), overlays=(), channel=None)
        return replace(dataset, plain=plain.decoded().images)
    return dataset


def reason_to_decode(spec: Spec, examples: Examples) -> str | None:
    """Return why images cannot be decoded at each read, in words; None if they can."""
    if examples.files is None:
        return "have no encoded images"
    if examples.as_values:
        return "keep depth and channels"
    return "have planted features" if spec.plants else None


def _features(spec: Spec, examples: Examples) -> list[planted.Feature]:
    """Return the features to plant; check that they suit images and can be combined."""
    features = spec.features(examples.labels)
    names = [feature.name for feature in features if isinstance(feature, planted.AudioFeature)]
    if names:
        raise ValueError(f"'+{names[0]}' is planted in sounds, and '{spec.base}' holds images")
    appended = [feature for feature in features if isinstance(feature, planted.Appended)]
    if len(appended) > 1:
        names = [feature.name for feature in appended]
        raise ValueError(f"'+{names[0]}' and '+{names[1]}' both append channels: plant one of them")
    if appended and any(isinstance(f, planted.ImageFeature) and f.fresh for f in features):
        raise ValueError(f"'+{appended[0].name}' cannot be combined with ':fresh'")
    unlabeled = any((y < 0).any() for y in examples.labels.values())
    if unlabeled and any(isinstance(f, planted.StackedDigits) for f in appended):
        raise ValueError(f"'+{appended[0].name}' needs labels, and some examples have none")
    return features


def _stored_shape(examples: Examples, size: Size | None) -> tuple[int, int, int, "np.dtype[Any]"]:
    """Return H, W, C and type of the stored images."""
    if examples.files is not None and examples.as_values:
        channels, dtype, sizes = infer_channels(examples.files)
        return *(size or size_for(sizes)), channels, dtype
    if examples.files is not None:
        return *(size or common_size(examples.files)), 3, np.dtype(np.uint8)
    assert examples.pixels is not None
    height, width, channels = examples.pixels.shape[1:]
    return *(size or (height, width)), channels, storage_dtype(examples.pixels.dtype)


@dataclass(frozen=True, kw_only=True)
class _ImageSource:
    """The images of one spec: which they are, and what is drawn on them."""

    spec: Spec
    examples: Examples
    options: OpenOptions
    canvas: planted.Canvas
    """Form of the images, without appended channels."""
    dtype: "np.dtype[Any]"
    """Type in which they are stored."""
    overlays: tuple[planted.Overlay, ...]
    channel: planted.AppendedChannels | None
    """Channels that are appended."""

    @cached_property
    def rows(self) -> NDArray[np.int64]:
        return split_rows(self.examples, self.spec)

    def selected(self, failed: Collection[int] = ()) -> NDArray[np.int64]:
        """Return the rows of the source that are examples, without those that failed, in order."""
        most = self.options.max_examples
        examples = self.examples
        return subset_without(failed, examples.labels, self.rows, most, examples.groups)

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        height, width, channels = self.canvas.shape
        most = self.options.max_examples
        count = len(balanced_subset(self.examples.labels, self.rows, most))
        added = 0 if self.channel is None else self.channel.count
        return count, height, width, channels + added

    def dataset(self) -> Dataset:
        reason, decode_reason = None, reason_to_decode(self.spec, self.examples)
        if self.options.pixels == "auto" and decode_reason is None:
            key = self.examples.origin and self._key_of_run
            reason = cache.missing_space(self.shape, key, self.options.memory_budget)
            reason = self.options.agree(reason)
        if self.options.pixels == "encoded" or reason is not None:
            return self._encoded(reason)
        return self.decoded()

    def _encoded(self, reason: str | None) -> Dataset:
        """Return images that are decoded at each read, and once here: damaged ones are left out."""
        assert self.examples.files is not None
        digests, record, _ = cache.load_or_build(
            self.shape[:1],
            self._decode,
            key=self.examples.origin and partial(self._key_of_run, "digests"),
            files=len(self.rows),
            dtype=np.uint64,
        )
        rows = self.selected(record["failed"])
        encoded = EncodedImages(
            files=selected(self.examples.files, rows),
            names=take(self.examples.names, rows),
            size=self.canvas.size,
            fit=self.options.fit,
            black_white=as_black_white(record["black_white"]),
            digests=digests[: len(rows)],
        )
        storage = "kept encoded, and decoded at each read"
        if reason is not None:
            storage += f": {reason}"
        return self._with_labels(cast(NDArray[Any], encoded), rows, record, storage)

    def decoded(self) -> Dataset:
        """Return images that are decoded once, with overlays and appended channels."""
        pixels, key = self.examples.pixels, self.examples.origin and self._key_of_run
        are_ready = pixels is not None and pixels.shape == self.shape and pixels.dtype == np.uint8
        if key is None and pixels is not None and are_ready and not self.overlays:
            return self._with_labels(pixels, self.rows, {}, "used in place, without a copy")
        images, record, storage = cache.load_or_build(
            self.shape,
            self._build,
            key=key,
            files=0 if self.examples.files is None else len(self.rows),
            budget=self.options.memory_budget,
            dtype=self.dtype,
            decode_reason=reason_to_decode(self.spec, self.examples),
        )
        rows = self.selected(record.get("failed", ()))
        dataset = self._with_labels(images[: len(rows)], rows, record, storage)
        channel = self._channel_of(rows)
        if isinstance(channel, planted.DigitChannel):
            return replace(dataset, stacked=channel)
        if channel is None or not channel.count:
            return dataset
        return replace(dataset.with_tasks(channel), bits=channel.count)

    def _build(self, out: NDArray[Any], journal: cache.DecodingJournal | None) -> cache.Record:
        """Write all pixels [n, H, W, C], with planted features."""
        target = out[..., : self.canvas.shape[2]]
        is_copied = self.examples.files is None and self.dtype == np.uint8
        record = self._copy(target) if is_copied else self._decode(target, journal)
        rows = self.selected(record.get("failed", ()))
        self._plant(out[: len(rows)], self._channel_of(rows))
        return record

    def _copy(self, out: NDArray[np.uint8]) -> cache.Record:
        pixels, size, fit = self.examples.pixels, self.canvas.size, self.options.fit
        assert pixels is not None
        rows = self.selected()
        was_size = pixels.shape[1:3]
        for first in range(0, len(rows), _CHUNK):
            part = pixels[rows[first : first + _CHUNK]]
            last = first + len(part)
            out[first:last] = part if was_size == size else resize_array(part, size, fit)
            if self.options.progress is not None:
                self.options.progress(last, len(rows))
        choices = {} if was_size == size else {"resized": len(rows)}
        return {"choices": choices, "cut": cut_share(was_size, size, fit)}

    def _decode(self, out: NDArray[Any], journal: cache.DecodingJournal | None) -> cache.Record:
        """Decode the examples into pixels [n, H, W, C], or write their digests [n].

        There are no gaps for those that cannot be read.
        """
        examples, most = self.examples, self.options.max_examples
        failed: dict[int, Skipped] = {}
        while True:
            rows = self.selected(failed)
            record, new = self._decode_rows(rows, out, journal)
            failed |= new
            count = len(self.rows) + len(examples.skipped)
            check_skipped([*examples.skipped, *failed.values()], count)
            if journal is not None:
                journal.clear()  # pixels move now
                journal = None
            # With `max_examples`, others replace the unreadable ones.
            if not new or most is None:
                break
        kept = np.flatnonzero(~np.isin(rows, list(failed)))
        for position, row in enumerate(kept.tolist()):
            if position != row:
                out[position] = out[row]
        return record | failure_record(failed)

    def _decode_rows(
        self, rows: NDArray[np.int64], out: NDArray[Any], journal: cache.DecodingJournal | None
    ) -> tuple[cache.Record, dict[int, Skipped]]:
        """Decode these rows into `out`; return their record, and those that failed."""
        examples, options = self.examples, self.options
        files: Any = examples.pixels if examples.files is None else examples.files
        size, channels = self.canvas.size, self.canvas.shape[2]
        read: Any = partial(decode, size=size, fit=options.fit)
        sample: Any = sample_values
        if examples.files is None or examples.as_values:
            sample = partial(sample_channels, channels=channels, dtype=self.dtype)
            read = partial(
                decode_values, size=size, fit=options.fit, channels=channels, dtype=self.dtype
            )
        value_range = ValueRange(
            options.black_white,
            lambda row: sample(files[row]),
            journal,
            names=examples.names,
            eight_bits=options.eight_bits,
        )

        def decode_row(row: int) -> Result | None:
            decoded = read(files[row], value_range.black_white)
            if decoded is None:
                return None
            k = int(np.searchsorted(rows, row))
            out[k] = decoded.pixels if out.ndim > 1 else cache.digest_of_example(decoded.pixels)
            return sorted(decoded.choices), decoded.outside, decoded.cut

        report = decode_all(
            decode_row,
            examples.names,
            rows.tolist(),
            prepare=value_range.find,
            journal=journal,
            progress=options.progress,
        )
        if options.black_white is not None:
            check_scale(report.outside, options.black_white)
        return report.record() | value_range.record(), report.failed

    def _plant(self, images: NDArray[Any], channel: planted.AppendedChannels | None) -> None:
        """Draw overlays on `images` [n, H, W, C] in place, and the appended channels, the last."""
        channels = self.canvas.shape[2]
        for first in range(0, len(images), _CHUNK):
            part = images[first : first + _CHUNK]
            index = np.arange(first, first + len(part))
            below = np.ascontiguousarray(part[..., :channels])  # a copy, if channels are appended
            for overlay in self.overlays:
                overlay.apply(below, index)
            if channel is not None:
                part[..., :channels] = below
                part[..., channels:] = to_storage(channel.draw(index) / 255, part.dtype)

    def _channel_of(self, rows: NDArray[np.int64]) -> planted.AppendedChannels | None:
        """Return the appended channels of these rows, in their order."""
        if isinstance(self.channel, planted.DigitChannel):
            return replace(self.channel, class_ids=self.channel.class_ids[rows])
        return self.channel  # bits depend on the position alone, as overlays do

    def _key_of_run(self, kept: str = "") -> str:
        """Return the key of the pixels as the run has them, whose range of values is known."""
        scale = "8 bits" if self.options.eight_bits else self.options.black_white
        default_key = self._key(None, kept)  # a run opened its data without a range and found it
        record = None if scale is None else cache.read_record(cache.cache_folder() / default_key)
        if record is not None and as_black_white(record.get("black_white")) in (None, scale):
            return default_key
        return self._key(scale, kept)

    def _key(self, black_white: BlackWhite | str | None, kept: str) -> str:
        """Return the key of the cache, equal for all commands that need the same pixels."""
        spec, canvas, most = self.spec, self.canvas, self.options.max_examples
        assert self.examples.origin is not None
        plants = list(map(str, spec.plants))
        planted = (plants, canvas.seed, canvas.held_out) if plants else None
        named = (spec.base, spec.split) if spec.base in BUILTIN else None  # share one folder
        image_settings = (self.shape[1:], self.dtype.str, most, black_white)
        settings = (*image_settings, planted, named, spec.values, self.options.fit)
        options = [option for plant in spec.plants for option in plant.options]
        source_files = [Path(value).expanduser() for name, value in options if name == "source"]
        # Labels may come from a table.
        ids = canvas.class_ids if most is not None or self.channel is not None else None
        groups = None if most is None else self.examples.groups
        rows = cache.digest(self.rows, ids, *(() if groups is None else (groups,)))
        return cache.cache_key((settings, kept), self.examples.origin(), rows, files=source_files)

    def _with_labels(
        self, images: NDArray[Any], rows: NDArray[np.int64], record: cache.Record, storage: str
    ) -> Dataset:
        """Return images [n, H, W, C] of these rows with labels, names and notes."""
        fit = self.options.fit
        notes = decoding_notes(record, len(rows), self.canvas.size, fit) + plain_notes(images)
        failed = [Skipped(path, reason) for path, reason in record.get("skipped", ())]
        dataset = Dataset.of(
            self.spec, self.examples, rows, images, storage=storage, failed=failed, notes=notes
        )
        is_deep = record.get("choices", {}).get("deep")
        return replace(
            dataset.with_tasks(*self.overlays),
            fit=fit,
            black_white=as_black_white(record["black_white"]) if is_deep else None,
            planted=self.overlays,
        )
