"""Features of views of the examples scored, for diagnostics that ask what an encoder keeps."""

import torch
from torch import Tensor

from widefield.core.hardware import choose_device, choose_precision
from widefield.core.modes import eval_mode, on_device
from widefield.data import Dataset
from widefield.inference.features import FeatureExtractor
from widefield.probes.features import batches, features
from widefield.views import ViewSettings

_MAX_EXAMPLES, _VIEW_COUNT = 256, 8
"""Examples that views are drawn of, at most, and views of each."""
_BATCH = 64


def view_features(extractor: FeatureExtractor, data: Dataset, *, seed: int) -> Tensor:
    """Return the features [n, q, D] of q expert views of each of n examples from all over `data`.

    The views are the same for every encoder, whatever it was trained with.
    """
    images = data.images[data.spread_rows(_MAX_EXAMPLES)]
    device = choose_device("auto")
    precision = choose_precision("auto", device)
    draw = ViewSettings.named("expert").build(
        channels=images.shape[3], kind=data.kind, front_end=extractor.front_end
    )
    generator = torch.Generator(device).manual_seed(seed)
    encoder, rows = extractor.build(images), []
    with on_device(encoder, device), eval_mode(encoder):
        for batch in batches(images, _BATCH, device):
            seen = draw(batch, _VIEW_COUNT, generator)
            rows.append(torch.stack([features(encoder, x, precision) for x in seen], dim=1))
    return torch.cat(rows)
