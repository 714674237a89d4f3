"""Examples and views as images: windows as line plots, sounds as spectrograms."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.core.logmel import FrontEnd, LogMel, mel_frequencies
from widefield.core.pixels import to_bytes
from widefield.core.types import Kind
from widefield.data import Dataset
from widefield.probes.features import image_batch
from widefield.report import (
    Sound,
    decode_wav,
    encode_wav,
    spectrogram_image,
    window_image,
)

_MAX_SECONDS = 4.0
"""Longest sound on a page: a second takes 20 to 40 kilobytes."""


def render_examples(
    dataset: Dataset, rows: Sequence[int] | NDArray[Any]
) -> list[NDArray[np.uint8]]:
    """Return an image of each of `rows`, uint8 [h, w, C]."""
    if dataset.kind == "images":
        return [to_bytes(dataset.images[row]) for row in rows]
    if not len(rows):
        return []
    x = image_batch(dataset.images[np.asarray(rows)], torch.device("cpu"))
    return list(render_views(x, dataset.kind, dataset.rate))


def recorded(dataset: Dataset, rows: Sequence[int] | NDArray[Any]) -> list[tuple[str, str]]:
    """Return (path and labels, WAV file) of the sounds `rows`; empty for other kinds."""
    rate = dataset.rate
    if dataset.kind != "sounds" or rate is None:
        return []
    clips = dataset.images[np.asarray(rows)][:, 0, : round(_MAX_SECONDS * rate), 0]
    return [
        (_name(dataset, int(row)), encode_wav(clip, rate))
        for row, clip in zip(rows, clips, strict=True)
    ]


def sound_of(name: str, wav: str) -> Sound:
    """Return a sound, a WAV file in base64, with its spectrogram."""
    samples, rate = decode_wav(wav)
    front_end = FrontEnd(rate=rate, samples=len(samples))
    x = image_batch(samples.reshape(1, 1, -1, 1), torch.device("cpu"))
    return Sound(
        name=name,
        wav=wav,
        spectrogram=LogMel(front_end)(x)[0, 0].numpy(),
        hertz=mel_frequencies(rate=rate, bands=front_end.bands),
        seconds=len(samples) / rate,
    )


def _name(dataset: Dataset, row: int) -> str:
    labels = [f"{task} {dataset.classes[task][ids[row]]}" for task, ids in dataset.labels.items()]
    return f"{dataset.paths[row]}: {', '.join(labels)}" if labels else dataset.paths[row]


def render_views(x: Tensor, kind: Kind, rate: int | None) -> NDArray[np.uint8]:
    """Return images of examples or views x[B, C, H, W], uint8 [B, h, w, C]."""
    if kind == "images":
        pixels = x.permute(0, 2, 3, 1).clamp(0, 1)
        pixels = pixels if pixels.shape[-1] == 1 else pixels[..., :3]
        return np.asarray((255 * pixels).round().to(torch.uint8).numpy())
    if kind == "windows":
        return np.stack([window_image(window.T) for window in x[:, :, 0].numpy()])
    if x.shape[2] == 1:
        assert rate is not None
        x = LogMel(FrontEnd(rate=rate, samples=x.shape[3]))(x)
    return np.stack([spectrogram_image(image) for image in x[:, 0].numpy()])
