"""Wide readouts fitted on the images of a data set."""

import numpy as np
import torch
from torch import nn

from widefield.core.devices import device_of, on_device
from widefield.core.types import ProgressCallback
from widefield.data import Dataset
from widefield.data.select import spread_rows
from widefield.encoders import FIT_EXAMPLES, Readout, Wide, fit_readout
from widefield.encoders.stages import NoStagesError, find_stages
from widefield.probes.features import batches, image_batch
from widefield.probes.kept import kept_readout

# 2,000 and 5,000 examples are whole numbers of batches, so that the last one is no smaller.
_BATCH = 250
# Fewer than the 5,000 of a trained encoder: a floor has up to ten networks, each with a readout of
# its own. Chosen by hand; what the floor loses by it was not measured.
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
    """
    source = dataset.spec.rstrip("/").rpartition("/")[2]  # files of a readout are published
    images = dataset.subset(dataset.spread_rows(FIT_EXAMPLES)).first_read().images

    def fit() -> Readout:
        with on_device(encoder, device):
            parts = batches(images, _BATCH, device, progress)
            return fit_readout(encoder, parts, dim=dim, fitted_on=source).cpu()

    return kept_readout(fit, encoder, images, device=device, settings=(dim, source))


def wide_or_none(encoder: nn.Module, images: np.ndarray, *, device: torch.device) -> Wide | None:
    """Return an encoder with a readout fitted on some of `images`; None without stages."""
    if not has_stages(encoder, images):
        return None
    with on_device(encoder, device):
        sample = images[spread_rows(len(images), _UNTRAINED_EXAMPLES)]
        return Wide(encoder, fit_readout(encoder, batches(sample, _BATCH, device)).cpu())


def has_stages(encoder: nn.Module, images: np.ndarray) -> bool:
    """Return whether a readout of `encoder` can be fitted on `images`, [n, H, W, C]."""
    try:
        find_stages(encoder, image_batch(images[:2], device_of(encoder)))
    except NoStagesError:
        return False
    return len(images) > 1
