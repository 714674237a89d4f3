"""Batches of a data set on the device, shuffled by a pure function of (seed, epoch)."""

import queue
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import closing, suppress
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.core import rng
from widefield.core.memory import free_device_memory
from widefield.core.types import WHOLE, Batch, Place, Shard, to_floats
from widefield.data.dataset import Dataset
from widefield.data.planted import Overlay, SoundOverlay

_DEVICE_SHARE = 0.3
_READ_AHEAD = 2
_CHUNK = 1024

T = TypeVar("T")
Batches = Generator[Batch, None, None]


class Loader:
    """Shuffled training batches; every epoch has its own order, and nothing to checkpoint.

    Pixels stay as they are stored: on a CUDA device if they take at most 30 % of its free memory,
    else on the host, pinned on their way. A memory-mapped data set on the host is read ahead by one
    thread. Every batch has `batch_size` examples: the ragged tail of an epoch is left out, and
    differs from epoch to epoch. Without `drop_last` it is a last, smaller batch, unless it is one
    example, which batch normalization cannot train on.

    With `masks` a batch says which pixels planted features cover. What is planted `fresh`, and the
    segments of long sounds, are drawn on the host as a batch is read, anew in each epoch.

    If several processes train together, `shard` says which examples are this one's: it shuffles
    them alone and contributes `batch_size` / world to each step.

    Example:
        >>> from widefield.data import open_dataset
        >>> dataset = open_dataset("photos", max_examples=100)
        >>> loader = Loader(dataset, batch_size=32, device=torch.device("cpu"))
        >>> [tuple(batch.x.shape) for batch in loader.epoch(0)]
        [(32, 3, 32, 32), (32, 3, 32, 32), (32, 3, 32, 32)]
    """

    steps_per_epoch: int
    """floor(n / batch_size), or one more without `drop_last`."""
    place: Place
    """Place of the pixels."""
    wait_seconds: float
    """Time that the consumer has waited for batches, in all."""

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch_size: int,
        device: torch.device,
        seed: int = 0,
        shard: Shard = WHOLE,
        masks: bool = False,
        drop_last: bool = True,
    ) -> None:
        if not 1 <= batch_size <= len(dataset):
            raise ValueError(
                f"batch_size is {batch_size} and there are {len(dataset)} examples; "
                f"choose 1 to {len(dataset)}"
            )
        if batch_size % shard.world:
            raise ValueError(
                f"batch_size is {batch_size}, which {shard.world} processes cannot share evenly; "
                f"choose a multiple of {shard.world}"
            )
        if not drop_last and shard.world > 1:
            raise ValueError(
                f"{shard.world} processes cannot share a last batch of any size: leave drop_last "
                "as it is, or train in one process"
            )
        # As many for every shard.
        self.steps_per_epoch = steps_per_epoch(len(dataset), batch_size, drop_last=drop_last)
        self.wait_seconds = 0.0
        self._batch_size, self._seed = batch_size // shard.world, seed
        self._examples = shard.examples(len(dataset)).numpy()
        self._source = _Source(dataset, device, masks)
        self.place = self._source.place

    def order(self, epoch: int, start: int = 0) -> list[NDArray[np.int64]]:
        """Return the examples of each batch of `epoch` from step `start` on, each int64 [B]."""
        order = rng.shuffled(self._seed, f"epoch {epoch}", self._examples)
        size = self._batch_size
        return [order[i * size : (i + 1) * size] for i in range(start, self.steps_per_epoch)]

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of `epoch` (0, 1, ...) from step `start` on.

        Batch `step` is the same whatever `start` was.
        """
        read = epoch + 1  # read 0 is what probes and pictures see
        with closing(self._source.batches(self.order(epoch, start), read)) as batches:
            while True:
                began = time.perf_counter()
                batch = next(batches, None)
                self.wait_seconds += time.perf_counter() - began
                if batch is None:
                    return
                yield batch


def steps_per_epoch(examples: int, batch_size: int, *, drop_last: bool) -> int:
    """Return the number of batches of an epoch; a last one of a single example is left out.

    Example:
        >>> [steps_per_epoch(10, 4, drop_last=flag) for flag in (True, False)]
        [2, 3]
    """
    left = examples % batch_size
    return examples // batch_size + (not drop_last and left > 1)


class _Source:
    """Keeps the pixels as they are stored, and brings a batch of them to the device."""

    def __init__(self, dataset: Dataset, device: torch.device, masks: bool) -> None:
        self._device = device
        self._masks = dataset.masks if masks else None
        self._labels = {
            task: torch.from_numpy(ids).to(device) for task, ids in dataset.labels.items()
        }
        self._mapped: NDArray[Any] | None = None
        self._fresh: tuple[Overlay | SoundOverlay, ...] = ()
        self._clips = dataset.clips
        images = dataset.images
        if dataset.plain is not None:
            images, self._fresh = dataset.plain, dataset.planted
        if dataset.clips is not None:
            images, self._fresh = dataset.images[:0], dataset.planted
        # What is planted fresh is drawn on the host, so its pixels stay there.
        if dataset.clips is None and not self._fresh and _fits(images.nbytes, device):
            self._pixels = _on_device(images, device)
        elif images.flags.writeable:
            self._pixels = torch.from_numpy(images)
        else:
            self._mapped = images

    @property
    def place(self) -> Place:
        """Return where the pixels live."""
        if self._mapped is not None:
            return "disk"
        return "device" if self._pixels.is_cuda else "host"

    def batches(self, steps: list[NDArray[np.int64]], read: int) -> Batches:
        """Yield one batch for each row of example indices, each example as of its read `read`."""
        fetched = (self._paint(*self._fetch(torch.from_numpy(i), read), read) for i in steps)
        finish = partial(self._finish, read=read)
        if self._mapped is None:
            yield from map(finish, fetched)
            return
        with closing(_read_ahead(fetched)) as ahead:
            yield from map(finish, ahead)

    def _paint(self, pixels: Tensor, index: Tensor, read: int) -> tuple[Tensor, Tensor]:
        """Plant what is drawn anew at each read."""
        for overlay in self._fresh:
            overlay.paint(pixels.numpy(), index.numpy(), read)
        return pixels, index

    def _fetch(self, index: Tensor, read: int) -> tuple[Tensor, Tensor]:
        """Gather pixels where they live, [B, H, W, C]; also return `index`, on the host."""
        pin = self._device.type == "cuda"
        if self._clips is not None:
            segments = torch.from_numpy(self._clips.drawn(index.numpy(), read))
            return (segments.pin_memory() if pin else segments), index
        if self._mapped is not None:
            pixels = torch.from_numpy(np.asarray(self._mapped[index.numpy()]))
            return (pixels.pin_memory() if pin else pixels), index
        if self._pixels.is_cuda or not pin:
            rows = index.to(self._pixels.device, non_blocking=True)
            return self._pixels.index_select(0, rows), index
        shape = (len(index), *self._pixels.shape[1:])
        out = torch.empty(shape, dtype=self._pixels.dtype, pin_memory=True)
        return torch.index_select(self._pixels, 0, index, out=out), index

    def _finish(self, fetched: tuple[Tensor, Tensor], read: int) -> Batch:
        pixels, index = fetched
        # The permuted [B, H, W, C] store is channels_last already; `to` keeps its strides.
        x = pixels.to(self._device, non_blocking=True).permute(0, 3, 1, 2)
        index_on_device = index.to(self._device, non_blocking=True)
        labels = {task: ids.index_select(0, index_on_device) for task, ids in self._labels.items()}
        for overlay in self._fresh:
            drawn = torch.from_numpy(overlay.labels(index.numpy(), read))
            labels[overlay.name] = drawn.to(self._device)
        mask = None
        if self._masks is not None:
            covered = torch.from_numpy(self._masks(index.numpy(), read)).permute(0, 3, 1, 2)
            mask = covered.to(self._device)
        return Batch(x=to_floats(x), index=index, labels=labels, mask=mask)


def _fits(size: int, device: torch.device) -> bool:
    """Return whether `size` bytes of pixels can lie on the device beside a training."""
    return device.type == "cuda" and size <= _DEVICE_SHARE * free_device_memory(device)


def _on_device(images: NDArray[Any], device: torch.device) -> Tensor:
    first_image = torch.from_numpy(np.array(images[:1]))
    pixels = torch.empty(images.shape, dtype=first_image.dtype, device=device)
    for first in range(0, len(images), _CHUNK):  # a memory map larger than memory passes through
        pixels[first : first + _CHUNK] = torch.from_numpy(np.array(images[first : first + _CHUNK]))
    return pixels


def _read_ahead(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield `items`, computed by one thread that stays at most two ahead.

    The thread ends with the items, with an error (raised here), or when the consumer stops.
    """
    ready: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(_READ_AHEAD)
    stopped = threading.Event()

    def offer(item: T | None, error: BaseException | None = None) -> None:
        while not stopped.is_set():
            with suppress(queue.Full):
                ready.put((item, error), timeout=0.1)
                return

    def read() -> None:
        try:
            for item in items:
                offer(item)
                if stopped.is_set():
                    return
            offer(None)
        except BaseException as error:
            offer(None, error)

    thread = threading.Thread(target=read, name="widefield-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        stopped.set()
        thread.join()
