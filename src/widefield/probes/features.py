"""Extraction of features from images, and pixels as baseline features."""

from collections.abc import Iterator
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from widefield.core.devices import CPU, device_of, eval_mode, on_device, to_device
from widefield.core.hardware import choose_device, choose_precision
from widefield.core.logmel import FrontEnd, LogMel
from widefield.core.rng import seeded
from widefield.core.types import (
    STORAGE_DTYPES,
    Inputs,
    Precision,
    ProgressCallback,
    Segmented,
    Size,
    to_floats,
)
from widefield.data.select import spread_rows
from widefield.encoders.dictionary import CellFeatures, PatchDictionary

_BATCH = 512
_CPU_BATCH = 128
"""Maps of larger batches exceed the cache of a CPU."""
# The default width of wide features.
_DICTIONARY_WIDTH = 512
# 200 to 2,000 images of CIFAR-10 and MNIST were probed with 2, 3, 4, 6 and 10: 6 or 10 were best,
# and 8 is between them.
_EXAMPLES_A_DIRECTION = 8
# Chosen by hand, as for the wide features of an untrained encoder.
_DICTIONARY_EXAMPLES = 2000
_DICTIONARY_BATCH = 50


def extract(
    encoder: nn.Module,
    images: Inputs,
    *,
    batch_size: int | None = None,
    device: torch.device | str | None = None,
    precision: Precision | Literal["auto", "32"] = "32-true",
    progress: ProgressCallback | None = None,
) -> Tensor:
    """Compute the features float32 [n, D] of `images` [n, H, W, C], which may be a memory map.

    Images are uint8, uint16 or float32 in [0, 1]; windows and sounds have height 1 and are float32
    and int16. Inputs of the encoder are float [B, C, H, W], for images in [0, 1], on `device`, by
    default that of its parameters; the result is there too. Of device and precision, auto is the
    GPU if there is one, and bf16 where it is supported. By default B is 512, on a CPU 128. The
    encoder runs in evaluation mode and is not changed. `progress` is called with (images done,
    images in all) after every batch. Of examples with several segments, the features are the
    weighted mean over the segments.

    Raises `ValueError` for images of another shape, type or range, for an empty array, and for an
    encoder that does not return [B, D].

    Example:
        >>> images = np.zeros((3, 8, 8, 3), dtype=np.uint8)
        >>> extract(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), images).shape
        torch.Size([3, 5])
    """
    plain = images.images if isinstance(images, Segmented) else images
    is_known = plain.dtype.name in STORAGE_DTYPES and plain.ndim == 4
    if not is_known or (plain.dtype == np.int16 and plain.shape[1] != 1):
        raise ValueError(
            f"images have dtype {plain.dtype} and shape {list(plain.shape)}: "
            "give uint8 or uint16 of shape [n, H, W, C], float32, or int16 of sounds"
        )
    if len(plain) == 0:
        raise ValueError("there are no images: give at least one")
    if plain.dtype == np.float32 and plain.shape[1] > 1:
        first = np.asarray(plain[:16])  # to read all would take as long as to encode them
        if not (first.min() >= 0 and first.max() <= 1):  # NaN is in no range
            raise ValueError("float32 images must be in [0, 1]: divide them by their largest value")
    if isinstance(device, str):
        device = choose_device(device)
    device = device or device_of(encoder)
    precision = choose_precision(precision, device)
    if batch_size is None:
        batch_size = _CPU_BATCH if device.type == "cpu" else _BATCH
    rows, start = torch.empty(0), 0
    with on_device(encoder, device), eval_mode(encoder):
        for part, weights in _segments(images, batch_size):
            h = features(encoder, image_batch(part, device), precision)
            if weights is not None:
                segments = torch.split(h, list(map(len, weights)))
                h = torch.stack(list(map(_weighted_mean, segments, weights)))
            if start == 0:  # outside inference mode: a probe may need gradients
                rows = torch.empty(len(plain), h.shape[1], device=device)
            rows[start : start + len(h)] = h
            start += len(h)
            if progress is not None:
                progress(start, len(plain))
    return rows


def _weighted_mean(h: Tensor, weights: NDArray[np.float32]) -> Tensor:
    w = torch.from_numpy(weights).to(h)
    return (w[:, None] * h).sum(0) / w.sum()


def _segments(
    images: Inputs, size: int
) -> Iterator[tuple[np.ndarray, list[NDArray[np.float32]] | None]]:
    if isinstance(images, Segmented):
        yield from images.batches(size)
        return
    for start in range(0, len(images), size):
        yield images[start : start + size], None


def features(encoder: nn.Module, x: Tensor, precision: Precision) -> Tensor:
    """Compute the features [B, D] of one batch of float images [B, C, H, W], in inference mode.

    Raises `ValueError` for an encoder that does not return [B, D].
    """
    bf16 = precision == "bf16-mixed"
    with torch.inference_mode(), torch.autocast(x.device.type, torch.bfloat16, enabled=bf16):
        h: Tensor = encoder(x)
        if h.ndim != 2 or len(h) != len(x):
            raise ValueError(
                f"the encoder returned shape {list(h.shape)} for {len(x)} images: "
                "it must return one row of features each, [B, D]"
            )
        return h.float()


def pixels(images: Inputs, *, size: int = 32) -> Tensor:
    """Return pixels in [0, 1] as features, float32 [n, C h w], on the CPU: a baseline of probes.

    Sides longer than `size` are first reduced to `size` by averaging over areas, so that the cost
    of the probe does not grow with the resolution.

    Raises `ValueError` as `extract` does.

    Example:
        >>> pixels(np.full((2, 64, 16, 1), 255, dtype=np.uint8)).shape  # 1 x 32 x 16
        torch.Size([2, 512])
    """
    return extract(Pixels.of(images, size=size), images, device="cpu")


def byte_pixels(images: Inputs, *, size: int = 32) -> Tensor | None:
    """Return `pixels` of images of 8 bits as they are stored, uint8 [n, h w C]; None for others.

    A probe standardizes features, so that these give the same result in a quarter of the memory.
    None if a side is longer than `size`.
    """
    if not isinstance(images, np.ndarray) or images.dtype != np.uint8:
        return None
    if max(images.shape[1:3]) > size:
        return None
    return torch.from_numpy(np.array(images)).flatten(1)  # a copy: a memory map may be read-only


class Pixels(nn.Module):
    """Pixels as features: x[B, C, H, W] -> h[B, C h w], sides longer than `size` reduced to it.

    Windows, whose height is 1, are reduced to `size` squared time steps. Sounds are represented by
    the pixels of their spectrogram, on the mel scale of 16 kHz whatever their rate.
    """

    def __init__(self, size: int = 32, spectrogram: LogMel | None = None) -> None:
        super().__init__()
        self.size, self.spectrogram = size, spectrogram

    @classmethod
    def of(cls, images: Inputs, size: int = 32) -> "Pixels":
        """Return the module for examples of the type of `images`."""
        images = images.images if isinstance(images, Segmented) else images
        if images.dtype != np.int16 or images.ndim != 4:
            return cls(size)
        return cls(size, LogMel(FrontEnd(rate=FLOOR_RATE, samples=images.shape[2])))

    def forward(self, x: Tensor) -> Tensor:
        """Return the pixels, flattened."""
        if self.spectrogram is not None:
            x = self.spectrogram(x)
        if x.shape[2] == 1:
            steps = min(x.shape[3], self.size**2)
            return functional.adaptive_avg_pool2d(x, (1, steps)).flatten(1)
        height, width = (min(side, self.size) for side in x.shape[-2:])
        return functional.adaptive_avg_pool2d(x, (height, width)).flatten(1)


FLOOR_RATE = 16_000
"""Sampling rate of the spectrograms of sounds, Hz."""


class DictionaryFeatures(nn.Module):
    """Features of a dictionary of patches of the data: x[B, C, H, W] -> k[B, D], a baseline.

    D is 512, or an eighth of fewer than 4,096 examples: of n examples whitened in n - 1 directions
    all distances are equal, and a probe is at chance.

    It is what an encoder would get without a network or training, in seconds: see
    `encoders/dictionary.py`. Sounds are represented by their spectrogram, as by `Pixels`.
    """

    def __init__(
        self, channels: int, size: Size, width: int, spectrogram: LogMel | None = None
    ) -> None:
        super().__init__()
        self.spectrogram = spectrogram
        self.norm = nn.BatchNorm2d(channels, affine=False, momentum=None)
        self.dictionary = PatchDictionary(channels, size)
        self.cells = CellFeatures(width)

    @classmethod
    def of(cls, images: Inputs, *, seed: int = 0) -> "DictionaryFeatures":
        """Return the module, fitted on up to 2,000 examples that are spread over `images`."""
        images = images.images if isinstance(images, Segmented) else images
        sample = images[spread_rows(len(images), _DICTIONARY_EXAMPLES)]
        spectrogram = Pixels.of(sample).spectrogram

        def inputs() -> Iterator[Tensor]:
            for x in batches(sample, _DICTIONARY_BATCH, CPU):
                yield x if spectrogram is None else spectrogram(x)

        channels, *size = next(inputs()).shape[1:]
        width = min(_DICTIONARY_WIDTH, -(-len(images) // _EXAMPLES_A_DIRECTION))
        with seeded(seed):
            result = cls(channels, (size[0], size[1]), width, spectrogram)
        for x in inputs():
            result.norm(x)
        result.eval()
        result.dictionary.fit(map(result.norm, inputs()), seed=seed)
        result.cells.fit(result.dictionary(result.norm(x)) for x in inputs())
        return result

    def forward(self, x: Tensor) -> Tensor:
        """Return the features in float32."""
        x = x if self.spectrogram is None else self.spectrogram(x)
        features: Tensor = self.cells(self.dictionary(self.norm(x)))
        return features


def batches(
    images: np.ndarray, size: int, device: torch.device, progress: ProgressCallback | None = None
) -> Iterator[Tensor]:
    """Yield the examples [n, H, W, C] as `image_batch` does, `size` at a time.

    `progress` is called after each batch with the number of examples done and in all.
    """
    for start in range(0, len(images), size):
        yield image_batch(images[start : start + size], device)
        if progress is not None:
            progress(min(start + size, len(images)), len(images))


def image_batch(images: np.ndarray, device: torch.device) -> Tensor:
    """Return examples [B, H, W, C] as floats [B, C, H, W], images in [0, 1], on `device`."""
    rows = np.array(images)  # a copy: a memory map may be read-only
    x = to_device(torch.from_numpy(rows), device)  # as bytes: a quarter of the transfer
    return to_floats(x.permute(0, 3, 1, 2))  # the strides are those of channels_last
