"""Images -> one row of features each, computed once and kept."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from widefield.core.logmel import FrontEnd, LogMel
from widefield.core.modes import eval_mode
from widefield.core.types import KINDS, Precision, to_floats


def extract(
    encoder: nn.Module,
    images: np.ndarray,
    *,
    batch_size: int = 512,
    device: torch.device | str | None = None,
    precision: Precision = "32-true",
    progress: Callable[[int, int], None] | None = None,
) -> Tensor:
    """Compute the features float32 [n, D] of `images` [n, H, W, C], maybe a memory map.

    They are uint8, or windows or sounds, whose height is 1, as float32 or int16. The encoder sees
    float images [B, C, H, W], those of uint8 in [0, 1], on `device`, by default that of its own
    parameters. It is left exactly as it was: it runs in evaluation mode, so that BatchNorm
    statistics stand still, and every submodule then gets its own mode back. The result stays on
    `device`. `progress` gets (images done, images in all) after every batch.

    Raises `ValueError` for images that are not [n, H, W, C] of these types, for none at all,
    and for an encoder that does not return [B, D].

    Example:
        >>> images = np.zeros((3, 8, 8, 3), dtype=np.uint8)
        >>> extract(nn.Sequential(nn.Flatten(), nn.Linear(192, 5)), images).shape
        torch.Size([3, 5])
    """
    _check_images(images)
    if device is None:
        first = next(encoder.parameters(), None)
        device = "cpu" if first is None else first.device
    device = torch.device(device)
    total = len(images)
    rows = torch.empty(0)
    with eval_mode(encoder):
        for start in range(0, total, batch_size):
            h = features(
                encoder, image_batch(images[start : start + batch_size], device), precision
            )
            if start == 0:  # outside inference mode, so that a probe may differentiate through it
                rows = torch.empty(total, h.shape[1], device=device)
            rows[start : start + len(h)] = h
            if progress is not None:
                progress(start + len(h), total)
    return rows


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


def pixels(images: np.ndarray, *, size: int = 32) -> Tensor:
    """Return pixels in [0, 1] as features, float32 [n, C h w], on the CPU: the floor of a probe.

    Sides longer than `size` are first shrunk to `size` by averaging over areas, so that photos
    give as many features as thumbnails do and the probe's cost does not grow with resolution.

    Raises `ValueError` for images that are not uint8 [n, H, W, C], and for none at all.

    Example:
        >>> pixels(np.full((2, 64, 16, 1), 255, dtype=np.uint8)).shape  # 1 x 32 x 16
        torch.Size([2, 512])
    """
    return extract(Pixels.of(images, size=size), images, device="cpu")


class Pixels(nn.Module):
    """Pixels as features: x[B, C, H, W] -> h[B, C h w], sides longer than `size` shrunk to it.

    Windows, whose height is 1, have `size` squared steps of time at most. Of sounds, the pixels are
    those of their spectrogram, on the mel scale of 16 kHz whatever their rate.
    """

    def __init__(self, size: int = 32, spectrogram: LogMel | None = None) -> None:
        super().__init__()
        self.size, self.spectrogram = size, spectrogram

    @classmethod
    def of(cls, images: np.ndarray, size: int = 32) -> "Pixels":
        """Return the pixels of examples such as `images`."""
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
"""Samples a second that floors take sounds to have, Hz."""


def _check_images(images: np.ndarray) -> None:
    known = images.dtype.name in KINDS and images.ndim == 4
    if not known or (images.dtype != np.uint8 and images.shape[1] != 1):
        raise ValueError(
            f"images have dtype {images.dtype} and shape {list(images.shape)}: "
            "give uint8 of shape [n, H, W, C], float32 of windows or int16 of sounds"
        )
    if len(images) == 0:
        raise ValueError("there are no images: give at least one")


def image_batch(images: np.ndarray, device: torch.device) -> Tensor:
    """Return examples [B, H, W, C] as floats [B, C, H, W], images in [0, 1], on `device`."""
    rows = np.array(images)  # a copy: a memory map may be read-only
    x = torch.from_numpy(rows).to(device)  # images as bytes, a quarter of the traffic
    return to_floats(x.permute(0, 3, 1, 2))  # strides say channels_last already
