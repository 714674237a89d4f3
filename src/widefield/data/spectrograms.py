"""Mean and deviation of log-mel spectrograms, for the normalization in the encoder."""

import numpy as np
import torch

from widefield.core.logmel import FrontEnd, LogMel
from widefield.core.types import to_floats
from widefield.data.dataset import Dataset

# Chosen by hand: as many as of encoded images (dataset.py).
_MAX_SOUNDS, _CHUNK = 2_000, 100


def spectrogram_mean_std(dataset: Dataset) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of the log-mel spectrograms of sounds, in [0, 1] units.

    Up to 2,000 sounds are used, evenly spaced.
    """
    assert dataset.rate is not None
    log_mel = LogMel(FrontEnd(rate=dataset.rate, samples=dataset.images.shape[2]))
    rows = dataset.images[:: -(-len(dataset) // _MAX_SOUNDS)]
    total, square, count = 0.0, 0.0, 0
    for first in range(0, len(rows), _CHUNK):
        x = torch.from_numpy(np.array(rows[first : first + _CHUNK])).permute(0, 3, 1, 2)
        image = log_mel(to_floats(x)).double()
        total += float(image.sum())
        square += float(image.square().sum())
        count += image.numel()
    mean = total / count
    return (mean,), (max(square / count - mean**2, 1e-6) ** 0.5,)
