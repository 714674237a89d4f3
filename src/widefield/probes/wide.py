"""Wide readouts fitted on the images of a data set."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from widefield.core.modes import device_of, on_device
from widefield.core.types import ProgressCallback
from widefield.data import Dataset
from widefield.data.select import spread_rows
from widefield.encoders import FIT_EXAMPLES, Readout, Wide, fit_readout
from widefield.encoders.stages import NoStagesError, find_stages
from widefield.probes.features import image_batch

_BATCH = 250
_UNTRAINED_EXAMPLES = 2000
"""Examples that the readout of an untrained encoder, a floor, is fitted on."""


def fit_on_dataset(
    encoder: nn.Module,
    dataset: Dataset,
    *,
    dim: int | None = None,
    device: torch.device,
    progress: ProgressCallback | None = None,
) -> Readout:
    """Fit a readout on examples that are spread over all of `dataset`; the result is on the CPU.

    `dim` is the width of the wide features, by default that of `fit_readout`.

    Raises:
        ValueError: an encoder without stages or with fewer than `dim` features, or fewer than two
            examples.
    """
    source = dataset.spec.rstrip("/").rpartition("/")[2]  # files of a readout are published
    sample = dataset.subset(dataset.spread_rows(FIT_EXAMPLES)).first_read()
    with on_device(encoder, device):
        batches = _batches(sample.images, device, progress)
        return fit_readout(encoder, batches, dim=dim, fitted_on=source).cpu()


def wide_or_none(encoder: nn.Module, images: np.ndarray, *, device: torch.device) -> Wide | None:
    """Return an encoder with a readout fitted on some of `images`; None without stages."""
    if not has_stages(encoder, images):
        return None
    with on_device(encoder, device):
        batches = _batches(images[spread_rows(len(images), _UNTRAINED_EXAMPLES)], device, None)
        return Wide(encoder, fit_readout(encoder, batches).cpu())


def has_stages(encoder: nn.Module, images: np.ndarray) -> bool:
    """Return whether a readout of `encoder` can be fitted on `images`, [n, H, W, C]."""
    try:
        find_stages(encoder, image_batch(images[:2], device_of(encoder)))
    except NoStagesError:
        return False
    return len(images) > 1


def _batches(
    images: np.ndarray, device: torch.device, progress: ProgressCallback | None
) -> Iterator[Tensor]:
    for start in range(0, len(images), _BATCH):
        yield image_batch(images[start : start + _BATCH], device)
        if progress is not None:
            progress(min(start + _BATCH, len(images)), len(images))
