"""What the data room hands out: decoded examples in a stable order."""

import hashlib
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.types import KINDS, Kind, kind_of
from widefield.data.clips import Clips
from widefield.data.planted import DigitChannel, Overlay, SoundOverlay
from widefield.data.skipped import Skipped

_STATISTICS_EXAMPLES = 50_000
_STATISTICS_CHUNK = 512


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Decoded examples 0..n-1 in a stable order.

    An example's index is its position here, after split and limit and without skipped files.
    """

    spec: str
    """What was opened, in canonical form, e.g. "photos:train+digits"."""
    images: NDArray[Any]
    """uint8 [n, H, W, C], in memory or a read-only memory map; windows are float32 [n, 1, T, C],
    sounds int16 [n, 1, T, 1]."""
    labels: dict[str, NDArray[np.int64]]
    """Class ids of each task, int64 [n]: the source's own tasks first, then the planted ones. -1
    where a table of labels has none, if such examples were asked for."""
    classes: dict[str, tuple[str, ...]]
    """Class names of each task; a label is a position in this tuple."""
    paths: list[str]
    """Name of each example: its sorted relative path, or "row 17" of an array."""
    skipped: tuple[Skipped, ...] = ()
    """Files that could not be used, and why."""
    notes: tuple[str, ...] = ()
    """One-line facts to tell the user once: what was chosen in reading."""
    place: str = ""
    """Place of the pixels, in words."""
    max_value: float | None = None
    """The value that is white in images of more than 8 bits, where the files do not say it."""
    planted: tuple[Overlay | SoundOverlay, ...] = ()
    """What was drawn over the images, in its order."""
    plain: NDArray[Any] | None = None
    """`images` without what was drawn over them, if some of it is drawn anew at each read;
    `images` and `labels` are then those of read 0."""
    stacked: DigitChannel | None = None
    """What fills the last channel."""
    rate: int | None = None
    """Samples a second of sounds, Hz."""
    clips: Clips | None = None
    """The sounds that `images` shows the middle of, where some are longer than an example: a
    segment is drawn at each read in training."""

    def __post_init__(self) -> None:
        n = len(self.images)
        assert self.images.dtype.name in KINDS
        assert self.images.ndim == 4
        assert len(self.paths) == n
        assert self.labels.keys() == self.classes.keys()
        assert all(v.dtype == np.int64 and v.shape == (n,) for v in self.labels.values())

    def __len__(self) -> int:
        """Number of examples n."""
        return len(self.images)

    @property
    def kind(self) -> Kind:
        """What the examples are."""
        return kind_of(self.images.dtype)

    def arrays(self) -> dict[str, Any]:
        """Return examples and labels as `open_dataset` takes them in memory.

        A task is left out where some examples have no label of it: arrays cannot say so. A sound
        longer than an example is its middle there; one that is silent is skipped or refused, as
        silent sounds are.

        Example:
            >>> from widefield.data import open_dataset
            >>> sorted(open_dataset("photos", max_examples=16).arrays())
            ['class', 'x']
        """
        labels = {task: ids for task, ids in self.labels.items() if (ids >= 0).all()}
        if self.kind == "images":
            return {"x": self.images, **labels}
        signals = self.images[:, 0].swapaxes(1, 2)
        if self.kind == "windows":
            return {"windows": signals, **labels}
        return {"sounds": signals[:, 0], "sample_rate": np.array(self.rate), **labels}

    def form(self) -> dict[str, Any]:
        """Return the options of `open_dataset` by which further examples are opened as these.

        Example:
            >>> from widefield.data import open_dataset
            >>> open_dataset("photos", max_examples=16).form()
            {'image_size': (32, 32), 'max_value': None}
        """
        if self.kind == "images":
            return {"image_size": self.images.shape[1:3], "max_value": self.max_value}
        return {} if self.rate is None else {"sample_rate": self.rate}

    def subset(self, rows: NDArray[np.int64] | slice) -> "Dataset":
        """Return the examples `rows`, numbered anew from 0; what is planted on each stays.

        A slice shares the pixels; an array of positions copies them.

        Example:
            >>> from widefield.data import open_dataset
            >>> open_dataset("photos+digits", max_examples=32).subset(np.array([5, 2])).paths
            ['camera/0001', 'brick/0000']
        """
        index = np.arange(len(self))[rows]
        return replace(
            self,
            images=self.images[rows],
            labels={task: ids[rows] for task, ids in self.labels.items()},
            paths=[self.paths[row] for row in index.tolist()],
            skipped=(),
            planted=tuple(overlay.subset(index) for overlay in self.planted),
            plain=None if self.plain is None else self.plain[rows],
            stacked=None if self.stacked is None else self.stacked.subset(index),
            clips=None if self.clips is None else self.clips.subset(index),
        )

    def with_overlay(self, overlay: Overlay | SoundOverlay) -> "Dataset":
        """Return the same examples with one more feature drawn over a copy of the images."""
        assert not overlay.fresh, "the images show read 0 alone"
        index = np.arange(len(self))
        images = np.array(self.images, order="C")
        overlay.paint(images, index)
        still = self.first_read()
        return replace(
            still,
            spec=f"{self.spec}+{overlay.name}",
            images=images,
            labels={**self.labels, overlay.name: overlay.labels(index)},
            classes={**self.classes, overlay.name: overlay.classes},
            planted=(*still.planted, overlay),
        )

    def spread_rows(self, most: int) -> NDArray[np.int64]:
        """Return up to `most` rows from all over the data, in order; the same at each call.

        Folders are in the order of their classes, so that the first rows would be of one class.
        Evenly spaced ones would be too, where classes take turns: one row is drawn from each of
        `most` equal parts.
        """
        edges = np.linspace(0, len(self), min(most, len(self)) + 1, dtype=np.int64)
        return np.random.default_rng(0).integers(edges[:-1], edges[1:])

    def first_read(self) -> "Dataset":
        """Return the same examples with every feature as at read 0, in each epoch alike."""
        still = tuple(replace(overlay, fresh=False) for overlay in self.planted)
        return replace(self, planted=still, plain=None)

    def read(
        self, index: NDArray[np.int64], read: int
    ) -> tuple[NDArray[Any], dict[str, NDArray[np.int64]]]:
        """Return pixels [k, H, W, C] and labels of the examples `index`, as of a read.

        What is planted `fresh` is drawn anew for each `read`, as are segments of long sounds; all
        else is the same at any.

        Example:
            >>> from widefield.data import open_dataset
            >>> dataset = open_dataset("photos+digits:fresh", max_examples=32)
            >>> first, second = (dataset.read(np.arange(32), read)[0] for read in (1, 2))
            >>> bool((first != second).any())
            True
        """
        if self.clips is not None:
            images: NDArray[Any] = self.clips.drawn(index, read)
        else:
            stored = self.images if self.plain is None else self.plain
            images = np.array(stored[index], order="C")
        labels = {task: ids[index] for task, ids in self.labels.items()}
        if self.drawn_at_reads:
            for overlay in self.planted:
                overlay.paint(images, index, read)
                labels[overlay.name] = overlay.labels(index, read)
        return images, labels

    def masks(self, index: NDArray[np.int64], read: int = 0) -> NDArray[np.bool_]:
        """Return the pixels that planted features cover in the examples `index`.

        Bool [k, H, W, 1], all channels alike; [k, H, W, C] where a channel is stacked.

        Example:
            >>> from widefield.data import open_dataset
            >>> open_dataset("photos+digits", max_examples=32).masks(np.arange(3)).shape
            (3, 32, 32, 1)
        """
        height, width, channels = self.images.shape[1:]
        mask = np.zeros((len(index), height, width, 1), dtype=np.bool_)
        for overlay in self.planted:
            mask[..., 0] |= overlay.mask(index, (height, width), read)
        if self.stacked is None:
            return mask
        image = np.repeat(mask, channels - 1, axis=3)
        return np.concatenate([image, self.stacked.draw(index)[..., None] > 0], axis=3)

    @property
    def drawn_at_reads(self) -> bool:
        """Whether an example differs from read to read, so that features are planted then."""
        return self.plain is not None or self.clips is not None

    def digests(self) -> NDArray[np.uint64]:
        """Return a 64-bit BLAKE2b digest of each example's shape and pixels, uint64 [n].

        Of a sound that is longer than an example, all of it counts too; the others in the data do
        not. Two examples share a digest when they are the same picture: the manifest keeps them, so
        that a run is not resumed on data that changed.
        """
        shape = ",".join(map(str, self.images.shape[1:])).encode()
        digests = np.empty(len(self), dtype="<u8")
        wholes = repeat(b"") if self.clips is None else self.clips.whole()
        for row, (image, whole) in enumerate(zip(self.images, wholes, strict=False)):
            digest = hashlib.blake2b(shape, digest_size=8)
            digest.update(image.tobytes())
            digest.update(whole)
            digests[row] = int.from_bytes(digest.digest(), "little")
        return digests.astype(np.uint64)

    def channel_mean_std(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the mean and the standard deviation of each channel, in [0, 1] units.

        Windows and sounds have their own units. Exact up to 50,000 examples; beyond, over every
        k-th, where k is the least that leaves 50,000 or fewer. A channel that never varies gets
        deviation 1/255, so that dividing by it is safe.
        """
        step = -(-len(self) // _STATISTICS_EXAMPLES)
        if self.kind != "images":
            return _mean_std_over_time(self.images[::step])
        channels = self.images.shape[-1]
        count, total, square = 0, np.zeros(channels), np.zeros(channels)
        for first in range(0, len(self), _STATISTICS_CHUNK * step):
            chunk = self.images[first : first + _STATISTICS_CHUNK * step : step]
            for channel in range(channels):
                seen = np.bincount(chunk[..., channel].ravel(), minlength=256)
                total[channel] += seen @ np.arange(256)
                square[channel] += seen @ np.arange(256) ** 2
            count += chunk[..., 0].size
        mean = total / count
        std = np.sqrt(np.maximum(square / count - mean**2, 1.0))
        return tuple((mean / 255).tolist()), tuple((std / 255).tolist())


def _mean_std_over_time(
    signals: NDArray[Any],
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each channel of [n, 1, T, C]; a constant one gets deviation 1.

    Means are taken first and squares around them, because sensors may stand far from zero.
    """
    parts = range(0, len(signals), _STATISTICS_CHUNK)
    scale = 1 / 32_768 if signals.dtype == np.int16 else 1.0
    count = signals[..., 0].size

    def total(square_around: float | NDArray[np.float64] | None = None) -> NDArray[np.float64]:
        result = np.zeros(signals.shape[-1])
        for first in parts:
            x = scale * signals[first : first + _STATISTICS_CHUNK].astype(np.float64)
            x = x if square_around is None else (x - square_around) ** 2
            result += x.sum((0, 1, 2))
        return result / count

    mean = total()
    std = np.sqrt(total(mean))
    constant = std <= 1e-6 * np.abs(mean)  # no smallest deviation: tesla and ampere are large units
    return tuple(mean.tolist()), tuple(np.where(constant, 1.0, std).tolist())
