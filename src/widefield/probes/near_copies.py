"""Near-copies among examples: frames of a video, crops and re-encoded files of one image.

Thumbnails of 8 x 8 pixels (of windows 64 steps, of sounds the spectrogram) are compared by the
distance of unit vectors, after the mean thumbnail was subtracted and a constant was appended, so
that their lengths count. With k neighbors, of which the farthest is at r_k, and m local dimensions,
a neighbor at r or less occurs by chance in k (r / r_k)^m of the examples, so

    near-copies:  r <= c r_k,    c = min(1/2, (0.001 / k)^(1/m)),    m = log 2 / log(r_k / r_{k/2}).

The dimension is that of the example or the median one, whichever is smaller (Levina and Bickel
2005, "Maximum likelihood estimation of intrinsic dimension"). Where all k are copies, half the
median of r_k is used in its place, as `explore` does for its groups.
"""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.nn import functional

from widefield.core.errors import option
from widefield.metrics.graph import neighbor_graph
from widefield.metrics.groups import COPY
from widefield.metrics.neighbors import nearest_rows
from widefield.probes.features import pixels
from widefield.probes.folds import GroupIds

MAX_POOLED = 5000
"""Largest number of examples whose groups of near-copies are searched for."""
# Chosen by hand.
COPIES_SHARE = 0.05
"""Smallest share of scored examples with near-copies that is reported."""
# Chosen by hand.
_SIDE = 8
_NEIGHBORS = 30
_CHANCE = 1e-3
"""Share of ordinary examples that are taken for near-copies."""
_SMALLEST = 1e-9
_EQUAL = 1e-6
"""Distance of equal thumbnails, which rounding leaves."""


def copies_text(found: str, scores: Sequence[str]) -> str:
    """Return the line on near-copies: what was found, and the score of each task without them."""
    values = "; ".join(scores) or "nothing is left to score"
    return (
        f"{found} among the examples that the probe was fitted on; accuracy without them: "
        f"{values}. Give {option('group')} for frames, slices or tiles of one source"
    )


def thumbnails(images: NDArray[np.generic]) -> Tensor:
    """Return the thumbnails of examples [n, H, W, C], float32 [n, D]."""
    return pixels(images, size=_SIDE)


def copy_groups(h: Tensor) -> GroupIds:
    """Return the group of each example, int64 [n]: near-copies, and copies of these, share one.

    Thumbnails h are [n, D].

    Example:
        >>> h = torch.randn(80, 16, generator=torch.Generator().manual_seed(0))
        >>> h[7] = h[3] + 0.01
        >>> groups = copy_groups(h)
        >>> bool(groups[7] == groups[3]), len(set(groups.tolist()))
        (True, 79)
    """
    n = len(h)
    if n < 4:
        return np.arange(n)
    graph = neighbor_graph(_centered(h, h), _count(n))
    first, place = np.nonzero(graph.distance <= _radius(graph.distance)[:, None])
    second = graph.index[first, place]
    pairs = coo_array((np.ones(len(first)), (first, second)), shape=(n, n))
    groups: GroupIds = connected_components(pairs, directed=False)[1].astype(np.int64)
    return groups


def has_near_copy(scored: Tensor, fitted: Tensor) -> NDArray[np.bool_]:
    """Return which thumbnails `scored` [n, D] have a near-copy among `fitted` [m, D], bool [n].

    Example:
        >>> h = torch.randn(200, 16, generator=torch.Generator().manual_seed(0))
        >>> has_near_copy(torch.cat([h[:1] + 0.01, h[100:]]), h[:100]).nonzero()[0].tolist()
        [0]
    """
    k = _count(len(fitted))
    if k < 2:
        return np.zeros(len(scored), dtype=bool)
    queries, keys = (functional.normalize(_centered(h, fitted)) for h in (scored, fitted))
    parts = []
    for rows, _, index in nearest_rows(queries, keys, k):
        # From a rounded cosine, small distances would be inexact.
        parts.append((keys[index] - queries[rows, None]).norm(dim=2))
    distance = torch.cat(parts).numpy()
    found: NDArray[np.bool_] = distance[:, 0] <= _radius(distance)
    return found


def _centered(h: Tensor, fitted: Tensor) -> Tensor:
    """Return h [n, D] minus the mean of `fitted`, with their root mean square as another column."""
    centered, spread = h - fitted.mean(0), fitted - fitted.mean(0)
    scale = spread.square().sum(1).mean().sqrt().clamp_min(_SMALLEST)
    return torch.cat([centered, scale.expand(len(h), 1)], dim=1)


def _count(examples: int) -> int:
    """Return k, at most a quarter of the examples."""
    return min(_NEIGHBORS, examples // 4)


def _radius(distance: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return the largest distance of a near-copy, [n], from sorted distances [n, k]."""
    k = distance.shape[1]
    if k < 2:
        return np.full(len(distance), _EQUAL)
    far, half = distance[:, -1], distance[:, k // 2 - 1]
    far = np.maximum(far, COPY * np.median(far))
    growth = np.log(np.maximum(far, _SMALLEST) / np.maximum(half, _SMALLEST))
    growth = np.maximum(growth, max(float(np.median(growth)), _SMALLEST))
    dimension = np.log(k / (k // 2)) / growth
    radius = far * np.minimum(COPY, (_CHANCE / k) ** (1 / dimension))
    return np.maximum(radius, _EQUAL)
