"""Batches of a data set on the device, shuffled as a function of (seed, epoch)."""

import time
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from functools import partial
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.core import rng
from widefield.core.devices import to_device
from widefield.core.errors import option
from widefield.core.hardware import free_device_memory
from widefield.core.types import WHOLE, Batch, Crop, Place, Shard, to_floats
from widefield.data.dataset import Dataset
from widefield.data.decode.decoding import suppress_warnings

# Chosen by hand: encoder, activations and a per-example head take the rest.
_DEVICE_SHARE = 0.3
"""Share of the device's free memory that pixels may take."""
# One batch is in use while the next is prepared; more would only take memory.
_PREFETCH = 2
# Chosen by hand: 3 MB of color images of 32 pixels.
_CHUNK = 1024

T = TypeVar("T")
Batches = Generator[Batch, None, None]
_Crops = Callable[..., NDArray[np.uint8]]
"""Returns the random crops [V, B, H, W, C] of the examples of an index at a read."""


class Loader:
    """Shuffled training batches without state: the order is a function of seed and epoch.

    Pixels are stored on the CUDA device if they take at most 30 % of its free memory, otherwise on
    the host. A thread prefetches batches of a memory-mapped data set, or of encoded images, which
    more threads decode. Of these, the views' random `crop` is taken here, at full resolution, for
    each of `views`: a function of seed, epoch, example and view. Each batch has `batch_size`
    examples, and the remainder of an epoch is dropped. With `drop_last=False` the remainder is a
    smaller last batch, unless it is a single example, on which batch normalization fails.

    With `masks` a batch has the pixels that planted features cover. Features planted with `fresh`
    and segments of long sounds are resampled on the host in each epoch.

    In distributed training, `shard` selects the examples of this process, which shuffles them and
    contributes `batch_size` / world examples to each step.
    """

    steps_per_epoch: int
    """floor(n / batch_size), or one more with `drop_last=False`."""
    storage: Place
    """Location of the pixels."""
    wait_seconds: float
    """Total time that the consumer waited for batches."""

    def __init__(
        self,
        dataset: Dataset,
        *,
        batch_size: int,
        device: torch.device,
        seed: int = 0,
        shard: Shard = WHOLE,
        masks: bool = False,
        crop: Crop | None = None,
        views: int = 1,
        drop_last: bool = True,
    ) -> None:
        if not 1 <= batch_size <= len(dataset):
            raise ValueError(
                f"{option('batch_size')} is {batch_size} and there are {len(dataset)} examples; "
                f"choose 1 to {len(dataset)}"
            )
        if batch_size % shard.world:
            raise ValueError(
                f"{option('batch_size')} is {batch_size}, which {shard.world} processes cannot "
                f"share evenly; choose a multiple of {shard.world}"
            )
        if not drop_last and shard.world > 1:
            raise ValueError(
                f"{shard.world} processes cannot share a last batch of any size: leave "
                f"{option('drop_last')} as it is, or train in one process"
            )
        # The same number for each shard, or collective operations would deadlock.
        self.steps_per_epoch = steps_per_epoch(len(dataset), batch_size, drop_last=drop_last)
        self.wait_seconds = 0.0
        self._batch_size, self._seed = batch_size // shard.world, seed
        self._examples = shard.examples(len(dataset)).numpy()
        crops = None
        if dataset.encoded is not None and crop is not None:
            crops = partial(dataset.encoded.crops, crop=crop, views=views, seed=seed)
        self._source = _Source(dataset, device, masks, crops)
        self.storage = self._source.storage

    def order(self, epoch: int, start: int = 0) -> list[NDArray[np.int64]]:
        """Return the indices of each batch of `epoch` from step `start` on, each int64 [B]."""
        order = rng.shuffled(self._seed, f"epoch {epoch}", self._examples)
        size = self._batch_size
        return [order[i * size : (i + 1) * size] for i in range(start, self.steps_per_epoch)]

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Yield the batches of `epoch` (0, 1, ...) from step `start` on.

        Batch `step` is the same whatever `start` was.
        """
        read = epoch + 1  # read 0 is for evaluation
        with closing(self._source.batches(self.order(epoch, start), read)) as batches:
            while True:
                start_time = time.perf_counter()
                batch = next(batches, None)
                self.wait_seconds += time.perf_counter() - start_time
                if batch is None:
                    return
                yield batch


def steps_per_epoch(examples: int, batch_size: int, *, drop_last: bool) -> int:
    """Return the number of batches of an epoch; a last batch of one example is dropped."""
    left = examples % batch_size
    return examples // batch_size + (not drop_last and left > 1)


class _Source:
    """Stored or encoded pixels, and the transfer of batches to the device."""

    def __init__(
        self, dataset: Dataset, device: torch.device, masks: bool, crops: _Crops | None
    ) -> None:
        self._dataset, self._device, self._crops = dataset, device, crops
        self._masks = dataset.masks if masks else None
        self._labels = {
            task: torch.from_numpy(ids).to(device) for task, ids in dataset.labels.items()
        }
        self._pixels: Tensor | None = None
        self.storage: Place = "host"
        images = dataset.images if dataset.plain is None else dataset.plain
        if dataset.encoded is not None:
            self.storage = "disk"
        # Resampled examples are computed on the host, so their pixels stay there.
        elif not dataset.varies and _fits_device(images.nbytes, device):
            self._pixels, self.storage = _on_device(images, device), "device"
        # torch has no negative strides, as of a memory map that is reversed.
        elif dataset.clips is None and (not images.flags.writeable or min(images.strides) < 0):
            self.storage = "disk"
        elif not dataset.varies:
            self._pixels = torch.from_numpy(images)

    def batches(self, steps: list[NDArray[np.int64]], read: int) -> Batches:
        loaded = (self._fetch(torch.from_numpy(index), read) for index in steps)
        finish = partial(self._finish, read=read)
        if self.storage != "disk":
            yield from map(finish, loaded)
            return
        context = nullcontext() if self._dataset.encoded is None else suppress_warnings()
        with context, closing(_prefetch(loaded)) as items:
            yield from map(finish, items)

    def _fetch(self, index: Tensor, read: int) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """Gather views [V, B, H, W, C] where they are stored; `index` and labels on the host."""
        pin = self._device.type != "cpu"
        if self._pixels is None:
            images, ids = self._read(index.numpy(), read)
            pixels = torch.from_numpy(images)
            labels = {task: torch.from_numpy(y) for task, y in ids.items()}
            return (pixels.pin_memory() if pin else pixels), index, labels
        if self.storage == "device" or not pin:
            rows = to_device(index, self._pixels.device)
            return self._pixels.index_select(0, rows)[None], index, {}
        shape = (len(index), *self._pixels.shape[1:])
        out = torch.empty(shape, dtype=self._pixels.dtype, pin_memory=True)
        return torch.index_select(self._pixels, 0, index, out=out)[None], index, {}

    def _read(
        self, index: NDArray[np.int64], read: int
    ) -> tuple[NDArray[Any], dict[str, NDArray[np.int64]]]:
        if self._crops is not None:
            labels = {task: ids[index] for task, ids in self._dataset.labels.items()}
            return self._crops(index, read=read), labels
        images, labels = self._dataset.read(index, read)
        return images[None], labels

    def _finish(self, loaded: tuple[Tensor, Tensor, dict[str, Tensor]], read: int) -> Batch:
        pixels, index, labels = loaded
        # The permuted [B, H, W, C] store is channels_last already; `to` keeps its strides.
        views = [to_device(x, self._device).permute(0, 3, 1, 2) for x in pixels.unbind()]
        crops = tuple(map(to_floats, views))
        labels = {task: to_device(y, self._device) for task, y in labels.items()}
        if self._pixels is not None:
            rows = to_device(index, self._device)
            labels = {task: ids.index_select(0, rows) for task, ids in self._labels.items()}
        mask = None
        if self._masks is not None:
            covered = torch.from_numpy(self._masks(index.numpy(), read)).permute(0, 3, 1, 2)
            mask = to_device(covered, self._device)
        batch_crops = () if self._crops is None else crops
        return Batch(x=crops[0], index=index, labels=labels, mask=mask, crops=batch_crops)


def _fits_device(size: int, device: torch.device) -> bool:
    return device.type == "cuda" and size <= _DEVICE_SHARE * free_device_memory(device)


def _on_device(images: NDArray[Any], device: torch.device) -> Tensor:
    first_image = torch.from_numpy(np.array(images[:1]))
    pixels = torch.empty(images.shape, dtype=first_image.dtype, device=device)
    for first in range(0, len(images), _CHUNK):  # a memory map may be larger than memory
        pixels[first : first + _CHUNK] = torch.from_numpy(np.array(images[first : first + _CHUNK]))
    return pixels


def _prefetch(items: Iterator[T]) -> Generator[T, None, None]:
    """Yield `items`, computed by a thread that is at most two items ahead.

    The thread ends after the last item, after an error (raised here), or when the consumer stops.
    """
    worker = ThreadPoolExecutor(1, thread_name_prefix="widefield-read-ahead")
    try:
        queue = deque(worker.submit(next, items, None) for _ in range(_PREFETCH))
        while (item := queue.popleft().result()) is not None:
            queue.append(worker.submit(next, items, None))
            yield item
    finally:
        worker.shutdown(cancel_futures=True)
