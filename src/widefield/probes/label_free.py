"""Scores of features without labels, in [0, 1] for each image.

Distances are those of whitened features, in which all strong directions have equal weight, as for
a linear probe.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from widefield.core.pixels import to_storage
from widefield.core.types import Inputs
from widefield.metrics import view_agreement, whitened
from widefield.probes.cross_fit import FOLDS, NEIGHBORS, fold_hits
from widefield.probes.features import batches
from widefield.probes.folds import GroupIds, random_folds
from widefield.views import build_views

FeatureFunction = Callable[[Inputs], Tensor]
"""Images [n, H, W, C] -> features [n, D]."""
Images = NDArray[Any]
Scores = NDArray[np.float64]

_VIEWS = "gentle"
"""Augmentations that preserve the content, independent of those of the run."""
# Chosen by hand on runs of other seeds than those of the test in docs/notebook.md. Cosines without
# whitening see the few strongest directions, and called encoders collapsed whose labels were
# predicted better than by untrained ones.
RIDGE = 0.1
"""The ridge of `metrics.whitened`."""
PAIRS = ((0, 3), (1, 2))
"""Opposite quadrants, of top left, top right, bottom left, bottom right."""
_BATCH = 256
_ROUNDING = 1e-12
"""Largest difference of equal cosines, which is due to the order of summation."""


def neighbor_consistency(h: Tensor, h_views: Tensor, *, whiten: bool = True) -> Scores:
    """Return the share of its nearest neighbors that each image keeps under augmentation, [n].

    Features of the images are h, those of one `augmented` view of each h_views, [n, D]. With
    `whiten` both are whitened by the images' covariance.
    """
    if whiten:
        h, h_views = whitened(h, h_views, ridge=RIDGE)
    return view_agreement(h, h_views, min(NEIGHBORS, len(h) - 1)).cpu().numpy()


def augmented(images: Images, seed: int) -> Images:
    """Return one view of each image, [n, H, W, C], stored as these are."""
    views = build_views(_VIEWS, channels=images.shape[3], seed=seed)
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for x in batches(images, _BATCH, torch.device("cpu")):
        (view,) = views(x, 1, generator)
        parts.append(to_storage(view.clamp(0, 1).permute(0, 2, 3, 1).numpy(), images.dtype))
    return np.concatenate(parts)


def rotation_accuracy(
    h: Tensor,
    features: FeatureFunction,
    images: Images,
    *,
    groups: GroupIds | None = None,
    seed: int,
) -> Scores:
    """Return for each image the share of its rotations that a linear probe predicts, [n].

    Images are rotated by multiples of 90 degrees, those that are not square by 180. The probe is
    fitted on the rotations of other images, and of other groups; h [n, D] are the features of the
    images as they are. The score is at chance for images without an upright orientation, such as
    cells. Gidaris et al. (2018), "Unsupervised representation learning by predicting image
    rotations"; as a linear probe, Reed et al. (2021), "SelfAugment".
    """
    _, height, width, _ = images.shape
    turns = (1, 2, 3) if height == width else (2,)
    rotated = [h, *(features(np.ascontiguousarray(np.rot90(images, k, (1, 2)))) for k in turns)]
    count, kinds = len(images), len(rotated)
    fold = random_folds(count, FOLDS, groups, seed=seed)
    hits = fold_hits(
        torch.cat(rotated),
        np.repeat(np.arange(kinds), count),
        np.tile(fold, kinds),
        groups=None if groups is None else np.tile(groups, kinds),
        seed=seed,
    )
    return hits.reshape(kinds, count).mean(0)


def quadrant_retrieval(features: FeatureFunction, images: Images, k: int = NEIGHBORS) -> Scores:
    """Return for each image the share of its quadrants that retrieve the opposite one, [n].

    A quadrant, enlarged to the size of the image, retrieves the opposite one if this is among its k
    nearest of the n at that position, by the cosine of whitened features. Chance is k / n, also if
    all features are equal. Two distant parts of an image share content, but no pixels: the context
    of Doersch et al. (2015), "Unsupervised visual representation learning by context prediction",
    as retrieval.
    """
    h = torch.cat([features(part) for part in _quadrants(images)])
    (white,) = whitened(h, ridge=RIDGE)
    unit = functional.normalize(white, dim=1).chunk(4)
    pairs = [*PAIRS, *((b, a) for a, b in PAIRS)]
    return torch.stack([_retrieved(unit[a], unit[b], k) for a, b in pairs]).mean(0).cpu().numpy()


def _quadrants(images: Images) -> list[Images]:
    _, height, width, _ = images.shape
    rows, columns = (np.arange(side) // 2 for side in (height, width))
    corners = [(0, 0), (0, width // 2), (height // 2, 0), (height // 2, width // 2)]
    return [
        np.ascontiguousarray(images[:, top + rows[:, None], left + columns])
        for top, left in corners
    ]


def _retrieved(queries: Tensor, keys: Tensor, k: int) -> Tensor:
    """Return the probability that row i of `keys` is among the k nearest to row i of `queries`.

    Keys of equal distance are in random order.
    """
    cosine = queries @ keys.T
    positive = cosine.diagonal()[:, None]
    greater = (cosine > positive + _ROUNDING).sum(1)
    equal = ((cosine - positive).abs() <= _ROUNDING).sum(1)  # including itself
    return ((k - greater) / equal).clamp(0, 1).double()
