"""Near-copies among examples: frames of a video, copies of other brightness, turned, or cropped.

Small forms of two examples are laid on one another: as they stand, under quarter turns and mirrors
in gray, and part on part, as crops and overlapping tiles are; windows and sounds as they stand, and
shifted in time. The distance r is the smallest one of unit vectors, without level and contrast.
With k neighbors, of which the farthest is at r_k, and m local dimensions, a neighbor at r or less
occurs by chance in k (r / r_k)^m of the examples, so

    near-copies:  r <= c r_k,  c = min(1/2, (0.003 / (F k))^(1/m)), m = log 2 / log(r_k / r_{k/2}),

for each of F families of placements. The dimension is that of the example or the median one,
whichever is smaller (Levina and Bickel 2005, "Maximum likelihood estimation of intrinsic
dimension"). Where all k are copies, half the median of r_k is used in its place, as `explore` does
for its groups.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby, product
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from widefield.core.errors import option
from widefield.core.types import Kind, kind_of
from widefield.metrics.groups import COPY
from widefield.metrics.neighbors import k_nearest
from widefield.probes.features import pixels
from widefield.probes.folds import GroupIds

MAX_POOLED = 5000
"""Largest number of examples whose groups of near-copies are searched for."""
# Chosen by hand, as the numbers below.
MIN_COPY_SHARE = 0.05
"""Smallest share of scored examples with near-copies that is reported."""
_CHECKED = (50, 2000)
"""Fewest and most examples whose near-copies are searched for."""
_COMPARISONS = 2**30
_NEIGHBORS = 30
_ALPHA = 3e-3
"""Share of ordinary examples that are taken for near-copies."""
_NEAREST = 1e-3
"""Smallest distance that is told from rounding."""
_BLOCK = 2**21
"""Similarities that are computed at a time, which a processor's cache holds."""
_SIZE = {"images": 16, "windows": 8, "sounds": 32}
"""Sides of small images and spectrograms; windows have its square as steps."""
_CROPS = (0.9, 0.81, 0.72, 0.64, 0.56, 0.5)
"""Sides of crops, as shares of that of the whole."""
_BINS, _CROP_BINS, _TIME_BINS = 8, 6, 32
"""Bins of a side that are compared."""
_EDGE = 1 / 16
"""Share of a sound at each end whose spectrum depends on what is beyond it."""
_FLAT = 0.03
"""Smallest deviation of what is compared, as a share of that of all examples."""

_Box = tuple[float, float, float, float]
"""Top, left, height and width of a part, as shares of the whole."""
_WHOLE: _Box = (0, 0, 1, 1)


class Placement(NamedTuple):
    """A part of a query, and the part of a key that it is laid on, each of so many bins."""

    query: _Box
    key: _Box
    bins: tuple[int, int]
    rotation: int | None = None
    """Quarter turns of the query in gray, and 4 for its mirror image; None in color."""


@dataclass(frozen=True)
class Sketches:
    """Small forms of examples [n, C, H, W]; the bands of sounds are channels."""

    values: Tensor
    kind: Kind

    @classmethod
    def of(cls, images: NDArray[np.generic]) -> "Sketches":
        """Return the small forms of examples [n, H, W, C]."""
        kind = kind_of(images)
        size, (n, height, width, channels) = _SIZE[kind], images.shape
        shape = {
            "images": (channels, min(height, size), min(width, size)),
            "windows": (channels, 1, min(width, size**2)),
            "sounds": (size, 1, size),
        }[kind]
        return cls(pixels(images, size=size).reshape(n, *shape), kind)

    def __len__(self) -> int:
        return len(self.values)

    def scaled(self, by: "Sketches") -> "Sketches":
        """Return them in units of the deviation of `by`, that of each channel of windows."""
        over = (0, 2, 3) if self.kind == "windows" else (0, 1, 2, 3)
        return Sketches(self.values / by.values.std(over, keepdim=True).clamp_min(1e-9), self.kind)

    def placements(self) -> tuple[list[Placement], ...]:
        """Return families of placements: as they stand, turned, and by how much is shared."""
        if self.kind != "images":
            bins = (1, _TIME_BINS)
            shifts = [sign * d / 32 for d in range(1, 25) for sign in (1, -1)]
            families = [[0.0], shifts[:16], shifts[16:32], shifts[32:]]
            edge = _EDGE if self.kind == "sounds" else 0
            return tuple([_shifted(0, d, bins, edge) for d in family] for family in families)
        bins = (_BINS, _BINS)
        rotated = [Placement(_WHOLE, _WHOLE, bins, rotation) for rotation in range(8)]
        crops = [[*_crops(size)] for size in _CROPS]
        return [_shifted(0, 0, bins)], rotated, [*_overlaps()], *crops

    def unit_parts(
        self, boxes: Iterable[_Box], bins: tuple[int, int], turns: Iterable[int | None]
    ) -> Tensor:
        """Return what parts show, turned, as unit rows [P, n, D] without level and contrast.

        Rows of zeros are flat.
        """
        turns = list(turns)
        values = self.values if turns[0] is None else self.values.mean(1, keepdim=True)
        size = (values.shape[2], values.shape[3])
        pooling = [_pooling(box, bins, k or 0, size) for box, k in zip(boxes, turns, strict=True)]
        x = values.flatten(2) @ torch.cat(pooling).T
        x = x.reshape(*x.shape[:2], len(turns), -1).permute(2, 0, 1, 3)  # [P, n, C, bins]
        x = x - x.mean(3 if self.kind == "windows" else (2, 3), keepdim=True)
        x = x.flatten(2)
        length = x.norm(dim=2, keepdim=True)
        return x / length.masked_fill(length <= _FLAT * x.shape[2] ** 0.5, torch.inf)


@cache
def _pooling(box: _Box, bins: tuple[int, int], rotation: int, size: tuple[int, int]) -> Tensor:
    """Return the weights of cells in the means of equal bins of a part, turned, [bins, cells]."""
    weights = []
    for start, length, count, cells in zip(box[:2], box[2:], bins, size, strict=True):
        edges = cells * torch.linspace(start, start + length, count + 1)
        cell = torch.arange(float(cells))
        shared = torch.minimum(edges[1:, None], cell + 1) - torch.maximum(edges[:-1, None], cell)
        weights.append(shared.clamp_min(0) * (count / (cells * length)))
    both = torch.einsum("ah,bw->abhw", *weights)
    both = both.flip(1) if rotation >= 4 else both
    return both.rot90(rotation % 4, (0, 1)).flatten(2).flatten(0, 1)


def _shifted(down: float, right: float, bins: tuple[int, int], edge: float = 0) -> Placement:
    """Return what two examples share, of which one is shifted, without `edge` at left and right.

    `bins` are those of the whole.
    """
    size = (1 - abs(down), 1 - abs(right) - 2 * edge)
    query = (max(down, 0), max(right, 0) + edge, *size)
    key = (max(-down, 0), max(-right, 0) + edge, *size)
    rows, columns = (max(1, round(side * n)) for side, n in zip(size, bins, strict=True))
    return Placement(query, key, (rows, columns))


def _overlaps() -> Iterator[Placement]:
    """Yield tiles that share a quarter or more of their area, in any step along one side."""
    along = [sign * d / 16 for d in range(1, 13) for sign in (1, -1)]
    both = product((-1 / 2, -1 / 4, 1 / 4, 1 / 2), repeat=2)
    every = [*product(along, [0.0]), *product([0.0], along), *both]
    tiles = (_shifted(down, right, (_BINS, _BINS)) for down, right in every)
    yield from sorted(tiles, key=lambda tile: tile.bins)


def _crops(size: float) -> Iterator[Placement]:
    """Yield crops an eighth apart, of the key and of the query."""
    # An odd number, for crops of the center.
    count = int(np.ceil(8 * (1 - size))) // 2 * 2 + 1
    for top, left in product(np.linspace(0, 1 - size, count).tolist(), repeat=2):
        for pair in (((top, left, size, size), _WHOLE), (_WHOLE, (top, left, size, size))):
            yield Placement(pair[0], pair[1], (_CROP_BINS, _CROP_BINS))


def copy_text(found: str, scores: Sequence[str]) -> str:
    """Return the line on near-copies: what was found, and the score of each task without them."""
    values = "; ".join(scores) or "nothing is left to score"
    return (
        f"{found} among the examples that the probe was fitted on; accuracy without them: "
        f"{values}, too high if other copies are left, such as some crops. Give {option('group')} "
        "for frames, slices or tiles of one source"
    )


def checked_count(count: int, keys: Sketches) -> int:
    """Return for how many of the examples to score near-copies are searched for."""
    each = len(keys) * sum(map(len, keys.placements()))
    return min(count, max(_CHECKED[0], min(_CHECKED[1], _COMPARISONS // each)))


def copy_groups(images: NDArray[np.generic]) -> GroupIds:
    """Return the group of each example, int64 [n]: near-copies, and copies of these, share one."""
    sketches = Sketches.of(images)
    n = len(sketches)
    first, second = _copy_pairs(sketches, sketches, exclude_self=True)
    # Flat examples, such as black frames, show nothing to compare: equal ones are copies.
    _, equal, row = np.unique(
        sketches.values.numpy().reshape(n, -1), axis=0, return_index=True, return_inverse=True
    )
    first, second = np.append(first, equal[row.ravel()]), np.append(second, np.arange(n))
    pairs = coo_array((np.ones(len(first)), (first, second)), shape=(n, n))
    groups: GroupIds = connected_components(pairs, directed=False)[1].astype(np.int64)
    return groups


def count_shared(ids: NDArray[Any]) -> int:
    """Return how many examples share their group, or another id, with another example."""
    _, index, sizes = np.unique(ids, return_inverse=True, return_counts=True)
    return int((sizes[index] > 1).sum())


def has_near_copy(queries: Sketches, keys: Sketches) -> NDArray[np.bool_]:
    """Return which examples `queries` have a near-copy among `keys`, bool [n]."""
    found = np.zeros(len(queries), dtype=bool)
    found[_copy_pairs(queries, keys)[0]] = True
    return found


def _copy_pairs(
    queries: Sketches, keys: Sketches, *, exclude_self: bool = False
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the row of each near-copy, and that of its copy, without itself if `exclude_self`."""
    # At most a quarter of the examples.
    k, pairs = min(_NEIGHBORS, len(keys) // 4), [(np.zeros(0, np.int64), np.zeros(0, np.int64))]
    families = keys.placements() if k >= 2 else ()
    queries, keys = queries.scaled(keys), keys.scaled(keys)
    for family in families:
        similarity = _similarities(queries, keys, family)
        if exclude_self:
            similarity.fill_diagonal_(-torch.inf)
        nearest, index = k_nearest(similarity, k)
        distance = (2 - 2 * nearest.double()).clamp_min(_NEAREST**2).sqrt().numpy()
        rows, column = np.nonzero(distance <= _radius(distance, _ALPHA / len(families))[:, None])
        pairs.append((rows, index.numpy()[rows, column]))
    first, second = (np.concatenate(column) for column in zip(*pairs, strict=True))
    return first, second


def _similarities(queries: Sketches, keys: Sketches, family: Sequence[Placement]) -> Tensor:
    """Return the largest cosine of each pair, [n, m]; -inf where the key is flat."""
    result = torch.full((len(queries), len(keys)), -torch.inf)
    rows = max(1, _BLOCK // len(keys))
    for bins, same in groupby(family, key=lambda placement: placement.bins):
        many = list(same)
        count = max(1, _BLOCK // (len(keys) * 4 * math.prod(bins)))
        for first in range(0, len(many), count):
            query, key, _, rotation = zip(*many[first : first + count], strict=True)
            q = queries.unit_parts(query, bins, rotation)
            k = keys.unit_parts(key, bins, [None if rotation[0] is None else 0] * len(key))
            # A cosine of 0 with what is flat is no similarity.
            flat = torch.where(k.any(2), 0.0, -torch.inf)[:, None]
            for start in range(0, len(queries), rows):
                cosine = torch.baddbmm(flat, q[:, start : start + rows], k.mT).amax(0)
                block = result[start : start + rows]
                torch.maximum(block, cosine, out=block)
    return result


def _radius(distance: NDArray[np.floating], alpha: float) -> NDArray[np.floating]:
    """Return the largest distance of a near-copy, [n], from sorted distances [n, k].

    It is negative where one of the k is infinite.
    """
    k = distance.shape[1]
    known = np.isfinite(distance[:, -1])
    radius = np.full(len(distance), -1.0)
    if not known.any():
        return radius
    last, half = distance[known, -1], distance[known, k // 2 - 1]
    last = np.maximum(last, COPY * np.median(last))
    growth = np.log(last / half)
    growth = np.maximum(growth, max(float(np.median(growth)), _NEAREST))
    dimension = np.log(k / (k // 2)) / growth
    radius[known] = last * np.minimum(COPY, (alpha / k) ** (1 / dimension))
    return radius
