"""The data set: decoded examples in a stable order, with labels and planted features."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat, starmap
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from widefield.core.form import Form
from widefield.core.logmel import FrontEnd, LogMel
from widefield.core.pixels import white_of
from widefield.core.types import STORAGE_DTYPES, BlackWhite, Fit, Inputs, Kind, kind_of, to_floats
from widefield.data.cache import digest_of_example
from widefield.data.clips import Clips, Weighting
from widefield.data.encoded import EncodedImages
from widefield.data.examples import Examples
from widefield.data.notes import split_note
from widefield.data.planted import BitPlanes, DigitChannel, Overlay, SoundOverlay
from widefield.data.select import spread_rows
from widefield.data.spec import Spec
from widefield.data.table import Skipped, Table, skipped_note

# Chosen by hand: all of CIFAR-10, and seconds of decoding. Of 2,000 images the error of a mean is
# below a fortieth of the deviation between images.
_STATISTICS_EXAMPLES, _STATISTICS_ENCODED = 50_000, 2_000
"""Examples from which mean and deviation are found: decoded, and encoded ones or sounds."""
# Chosen by hand: floats of a chunk are in memory at once.
_STATISTICS_CHUNK = 512


@dataclass(frozen=True, kw_only=True)
class Dataset(Table):
    """Decoded examples 0..n-1 in a stable order.

    The index of an example is its position after split, `max_examples` and skipped files. `labels`
    and `classes` are of the tasks of the source, then of planted features. `skipped` are files that
    could not be read or were excluded, with reasons.
    """

    spec: str
    """Canonical data spec, e.g. "photos:train+digits"."""
    images: NDArray[Any]
    """uint8, uint16 or float32 in [0, 1], [n, H, W, C]; windows float32 [n, 1, T, C]; sounds int16
    [n, 1, T, 1]. In memory, a read-only memory map, or `EncodedImages`."""
    storage: str = ""
    """Location of the pixels, as text."""
    fit: Fit = "crop"
    """How images of another shape were brought to one size."""
    black_white: BlackWhite | None = None
    """Black and white in images of more than 8 bits, if the files do not define them."""
    planted: tuple[Overlay | SoundOverlay, ...] = ()
    """Overlays that are drawn on the images, in order."""
    plain: NDArray[Any] | None = None
    """`images` without overlays, if an overlay is resampled at each read; `images` and `labels`
    are those of read 0."""
    stacked: DigitChannel | None = None
    """Planted digits in the last channel."""
    bits: int = 0
    """Number of planted bits, each in one of the last channels; views leave them as they are."""
    rate: int | None = None
    """Sampling rate of sounds, Hz."""
    clips: Clips | None = None
    """Whole sounds, if some are longer than an example. `images` has their loudest segments;
    training samples a segment at each read."""

    def __post_init__(self) -> None:
        n = len(self.images)
        assert self.images.dtype.name in STORAGE_DTYPES
        assert self.images.ndim == 4
        assert len(self.names) == n
        assert self.groups is None or self.groups.shape == (n,)
        assert self.labels.keys() == self.classes.keys()
        assert all(v.dtype == np.int64 and v.shape == (n,) for v in self.labels.values())

    @classmethod
    def of(
        cls,
        spec: Spec,
        examples: Examples,
        rows: NDArray[np.int64],
        images: NDArray[Any],
        *,
        storage: str,
        failed: Iterable[Skipped] = (),
        notes: Iterable[str] = (),
    ) -> "Dataset":
        """Return the images of these rows of a source; `failed` are files that were skipped."""
        skipped = (*examples.skipped, *failed)
        grouped, by_column = examples.groups is not None, examples.is_test is not None
        split = split_note(spec, len(rows), grouped=grouped, by_column=by_column)
        return cls(
            **examples.columns(rows),
            classes=examples.classes,
            spec=str(spec),
            images=images,
            skipped=(*skipped, *examples.excluded),
            notes=(*examples.notes, *split, *notes, *skipped_note(skipped)),
            storage=storage,
        )

    def __len__(self) -> int:
        return len(self.images)

    @property
    def paths(self) -> Sequence[str]:
        """Name of each example: its relative path, or "row 17" of an array."""
        return self.names

    @property
    def kind(self) -> Kind:
        return kind_of(self.images)

    @property
    def encoded(self) -> EncodedImages | None:
        """The images, if they are decoded at each read; None if they are decoded already."""
        images: object = self.images
        return images if isinstance(images, EncodedImages) else None

    def decoded(self) -> "Dataset":
        """Return the same examples with all pixels in memory, for several reads of a few."""
        return self if self.encoded is None else replace(self, images=self.images[:])

    @property
    def inputs(self) -> Inputs:
        """What features are computed of: `images`, or all segments of long sounds."""
        return self.images if self.clips is None else WholeSounds(self)

    def weighted(self, weighting: Weighting) -> "Dataset":
        """Return the same sounds, with the segments of long ones weighted for their features."""
        assert self.clips is not None
        return replace(self, clips=replace(self.clips, weighting=weighting))

    def arrays(self) -> dict[str, Any]:
        """Return examples and labels as arrays that `open_dataset` accepts.

        Tasks with unlabeled examples are left out. Sounds longer than an example are cut to their
        loudest segment.
        """
        labels = {task: ids for task, ids in self.labels.items() if (ids >= 0).all()}
        if self.kind == "images":
            return {"x": self.images, **labels}
        signals = self.images[:, 0].swapaxes(1, 2)
        if self.kind == "windows":
            return {"windows": signals, **labels}
        return {"sounds": signals[:, 0], "sample_rate": np.array(self.rate), **labels}

    @property
    def form(self) -> Form:
        """The form of the examples; its `options()` open other data in the same form."""
        _, height, width, channels = self.images.shape
        return Form(
            kind=self.kind,
            size=(height, width),
            channels=channels,
            rate=self.rate,
            black_white=self.black_white,
            fit=self.fit,
        )

    def subset(self, rows: NDArray[np.int64] | slice) -> "Dataset":
        """Return the examples `rows`, renumbered from 0, with the same planted features.

        A slice shares the pixels; an array of indices copies them. Encoded images stay encoded.
        """
        index = np.arange(len(self))[rows]
        images: Any = self.images[rows] if self.encoded is None else self.encoded.subset(index)
        return replace(
            self,
            **self.columns(index),
            images=images,
            skipped=(),
            planted=tuple(overlay.subset(index) for overlay in self.planted),
            plain=None if self.plain is None else self.plain[rows],
            stacked=None if self.stacked is None else self.stacked.subset(index),
            clips=None if self.clips is None else self.clips.subset(index),
        )

    def with_class_order(self, known: Mapping[str, Sequence[str]]) -> "Dataset":
        """Return the same examples with the classes of each task in the order that is `known`.

        Classes that are not known follow. A task that is not is unchanged.
        """
        labels, classes = dict(self.labels), dict(self.classes)
        for task in self.classes.keys() & known.keys():
            new = [name for name in self.classes[task] if name not in known[task]]
            classes[task] = (*known[task], *new)
            ids = {name: k for k, name in enumerate(classes[task])}
            positions = np.array([*(ids[name] for name in self.classes[task]), -1], dtype=np.int64)
            labels[task] = positions[labels[task]]
        return replace(self, labels=labels, classes=classes)

    def with_overlay(self, overlay: Overlay | SoundOverlay) -> "Dataset":
        """Return the same examples with another planted feature, on a copy of the images."""
        assert not overlay.fresh, "images show read 0 only"
        images = np.array(self.images, order="C")
        overlay.apply(images, np.arange(len(self)))
        fixed = self.first_read().with_tasks(overlay)
        planted = (*fixed.planted, overlay)
        return replace(fixed, spec=f"{self.spec}+{overlay.name}", images=images, planted=planted)

    def with_tasks(self, *planted: Overlay | SoundOverlay | BitPlanes) -> "Dataset":
        """Return the same examples with the labels of planted features."""
        index = np.arange(len(self))
        return replace(
            self,
            labels=self.labels | {each.name: each.labels(index) for each in planted},
            classes=self.classes | {each.name: each.classes for each in planted},
        )

    def spread_rows(self, most: int) -> NDArray[np.int64]:
        """Return up to `most` rows, spread over all; the same ones at each call."""
        return spread_rows(len(self), most)

    def first_read(self) -> "Dataset":
        """Return the same examples with all features fixed as at read 0."""
        fixed = tuple(replace(overlay, fresh=False) for overlay in self.planted)
        return replace(self, planted=fixed, plain=None)

    def read(
        self, index: NDArray[np.int64], read: int
    ) -> tuple[NDArray[Any], dict[str, NDArray[np.int64]]]:
        """Return pixels [k, H, W, C] and labels of the examples `index` at a read.

        Features planted with `fresh` and segments of long sounds are resampled for each `read`.
        """
        if self.clips is not None:
            images: NDArray[Any] = self.clips.sample(index, read)
        else:
            source = self.images if self.plain is None else self.plain
            images = np.ascontiguousarray(source[index])  # a copy, because `index` is an array
        labels = {task: ids[index] for task, ids in self.labels.items()}
        if self.varies:
            for overlay in self.planted:
                overlay.apply(images, index, read)
                labels[overlay.name] = overlay.labels(index, read)
        return images, labels

    def masks(self, index: NDArray[np.int64], read: int = 0) -> NDArray[np.bool_]:
        """Return the pixels of the examples `index` that planted features cover.

        Bool [k, H, W, 1], equal for all channels; [k, H, W, C] with a stacked channel.
        """
        height, width, channels = self.images.shape[1:]
        mask = np.zeros((len(index), height, width, 1), dtype=np.bool_)
        for overlay in self.planted:
            mask[..., 0] |= overlay.mask(index, (height, width), read)
        if self.stacked is None:
            return mask
        image = np.repeat(mask, channels - 1, axis=3)
        return np.concatenate([image, self.stacked.draw(index) > 0], axis=3)

    @property
    def varies(self) -> bool:
        """Whether examples are resampled at each read; planted features are drawn then."""
        return self.plain is not None or self.clips is not None

    def digests(self) -> NDArray[np.uint64]:
        """Return a 64-bit BLAKE2b digest of each example's shape and pixels, uint64 [n].

        Of a sound that is longer than an example, all of it counts too; the others in the data do
        not. Two examples share a digest when they are the same picture: the manifest keeps them, so
        that a run is not resumed on data that changed.
        """
        if self.encoded is not None:
            return self.encoded.digests
        wholes = repeat(b"") if self.clips is None else self.clips.whole()
        pairs = zip(self.images, wholes, strict=False)
        return np.fromiter(starmap(digest_of_example, pairs), np.uint64, len(self))

    def channel_mean_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return mean and standard deviation of each channel, in [0, 1] units.

        Windows and sounds have their own units. Up to 50,000 examples are used, evenly spaced, or
        2,000 of encoded images. A constant channel gets a deviation of 1/255, so that division is
        safe.
        """
        most = _STATISTICS_EXAMPLES if self.encoded is None else _STATISTICS_ENCODED
        step = -(-len(self) // most)
        if self.kind != "images":
            return _mean_std(self.images[::step], 1 / 32_768 if self.kind == "sounds" else 1.0)
        if self.images.dtype != np.uint8:
            return _mean_std(self.images[::step], 1 / white_of(self.images.dtype))
        channels = self.images.shape[-1]
        count, total, square = 0, np.zeros(channels), np.zeros(channels)
        for first in range(0, len(self), _STATISTICS_CHUNK * step):
            chunk = self.images[first : first + _STATISTICS_CHUNK * step : step]
            for channel in range(channels):
                histogram = np.bincount(chunk[..., channel].ravel(), minlength=256)
                total[channel] += histogram @ np.arange(256)
                square[channel] += histogram @ np.arange(256) ** 2
            count += chunk[..., 0].size
        mean = total / count
        std = np.sqrt(np.maximum(square / count - mean**2, 1.0))
        return tuple((mean / 255).tolist()), tuple((std / 255).tolist())


@dataclass(frozen=True)
class WholeSounds:
    """The segments of the sounds of a dataset, as `widefield.core.types.Segmented`."""

    dataset: Dataset

    @property
    def images(self) -> NDArray[Any]:
        return self.dataset.images

    def batches(self, size: int) -> Iterator[tuple[NDArray[Any], list[NDArray[np.float32]]]]:
        """Yield segments int16 [m, 1, T, 1] of the next sounds, and the weights of each sound."""
        assert self.dataset.clips is not None
        parts: list[NDArray[Any]] = []
        for row in range(len(self.dataset)):
            parts.append(self._segments(row))
            if row == len(self.dataset) - 1 or sum(map(len, parts)) >= size:
                yield np.concatenate(parts), list(map(self.dataset.clips.weights, parts))
                parts = []

    def _segments(self, row: int) -> NDArray[Any]:
        """Return the segments of a sound, each with the same planted sounds."""
        assert self.dataset.clips is not None
        segments: NDArray[Any] = self.dataset.clips.segments(row)
        for overlay in self.dataset.planted:
            overlay.apply(segments, np.full(len(segments), row))
        return segments


def _mean_std(signals: NDArray[Any], scale: float) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each channel of [n, H, W, C]; 1 for a constant channel.

    Two passes, because the offset of a sensor may be large compared with its variation.
    """
    count = signals[..., 0].size

    def total(center: NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        result = np.zeros(signals.shape[-1])
        for first in range(0, len(signals), _STATISTICS_CHUNK):
            x = scale * signals[first : first + _STATISTICS_CHUNK].astype(np.float64)
            result += (x if center is None else (x - center) ** 2).sum((0, 1, 2))
        return result / count

    mean = total()
    std = np.sqrt(total(mean))
    constant = std <= 1e-6 * np.abs(mean)  # relative, because units are arbitrary
    return tuple(mean.tolist()), tuple(np.where(constant, 1.0, std).tolist())


_SOUNDS_CHUNK = 100  # chosen by hand


def spectrogram_mean_std(dataset: Dataset) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of the log-mel spectrograms of sounds, in [0, 1] units.

    Up to 2,000 sounds are used, evenly spaced.
    """
    assert dataset.rate is not None
    log_mel = LogMel(FrontEnd(rate=dataset.rate, samples=dataset.images.shape[2]))
    rows = dataset.images[:: -(-len(dataset) // _STATISTICS_ENCODED)]
    total, square, count = 0.0, 0.0, 0
    for first in range(0, len(rows), _SOUNDS_CHUNK):
        x = torch.from_numpy(np.array(rows[first : first + _SOUNDS_CHUNK])).permute(0, 3, 1, 2)
        image = log_mel(to_floats(x)).double()
        total += float(image.sum())
        square += float(image.square().sum())
        count += image.numel()
    mean = total / count
    return (mean,), (max(square / count - mean**2, 1e-6) ** 0.5,)
