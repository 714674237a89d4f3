"""Nearest-neighbor graph of up to tens of millions of examples."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.core.scale import unit_rows
from widefield.metrics.neighbors import check_k, nearest_rows
from widefield.metrics.spectrum import check_features

# Chosen by hand: all pairs of more rows take hours on a CPU.
EXACT = 1_000_000
"""Maximum number of examples for which all pairs are compared; above it an index is used."""
_VALUES = 2**22
"""Number of values in memory at a time, 16 MiB: more exceed the cache of a processor."""
# Chosen by hand, as `_MIN_CANDIDATES`.
_CELL_FRACTION = 0.02
"""Fraction of the cells that faiss searches for each row."""
_MIN_CANDIDATES = 20
"""Minimum number of rows in the searched cells for each neighbor."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The k nearest neighbors of each example, the nearest first, without itself or its group.

    Example:
        >>> import torch
        >>> h = torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
        >>> neighbor_graph(h, k=1).index.tolist()
        [[1], [0], [1]]
    """

    index: NDArray[np.int64]
    """[n, k]."""
    distance: NDArray[np.float32]
    """Euclidean distance of the unit vectors, sqrt(2 - 2 cosine), [n, k]."""

    def __len__(self) -> int:
        """Number of examples n."""
        return len(self.index)

    @property
    def k(self) -> int:
        """Neighbors of each example."""
        return self.index.shape[1]


def count_others(n: int, groups: NDArray[np.int64] | None = None) -> int:
    """Return with how many others each of n examples can be compared: those outside its group.

    It is the smallest number, that of the largest of `groups`, int64 [n].

    Example:
        >>> count_others(3), count_others(3, np.array([7, 2, 7]))
        (2, 1)
    """
    if groups is None:
        return n - 1
    return n - int(np.unique(groups, return_counts=True)[1].max(initial=1))


def neighbor_graph(
    h: Tensor, k: int, *, groups: NDArray[np.int64] | None = None, exact: int = EXACT
) -> Graph:
    """Return the k rows of highest cosine to each row of h [n, D], k at most n - 1.

    With `groups`, int64 [n], rows of the same group are no neighbors, and k is at most n minus the
    size of the largest group.

    Up to `exact` rows all pairs are compared, in single precision, on the device of h. For more, an
    approximate index of faiss (Douze et al. 2024) is used. A row of zeros has cosine 1 to other
    rows of zeros, and 0 to all others.

    Raises:
        ValueError: features that are not finite [n, D] with n >= 2, k outside 1..n-1 or the rows of
            other groups, or too many rows without faiss.

    Example:
        >>> graph = neighbor_graph(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), 1)
        >>> graph.index[:, 0].tolist()
        [1, 0, 1]
    """
    unit = unit_rows(check_features(h))
    others = count_others(len(h), groups)
    check_k(k, others + 1)
    group = torch.arange(len(h)) if groups is None else torch.from_numpy(groups)
    zero = ~unit.any(1)
    if zero.any():  # an extra dimension: the center of the sphere would be nearest to all rows
        unit = torch.cat([unit, zero[:, None].to(unit)], dim=1)
    # Translation keeps distances; centered points have smaller errors in single precision.
    points = unit.sub_(unit.mean(0)).float()
    group = group.to(points.device)
    if len(h) <= exact:
        every = torch.arange(len(points), device=points.device)
        index = _exact_search(points, points, every, k, None if groups is None else group)
    else:
        index = _faiss_search(points, k, group, len(h) - others)
    distance, order = _distances(points, index).sort(dim=1, stable=True)
    index = index.gather(1, order)
    return Graph(index=index.cpu().numpy(), distance=distance.cpu().numpy())


def _exact_search(
    queries: Tensor, points: Tensor, self_index: Tensor, k: int, group: Tensor | None
) -> Tensor:
    """Return the neighbors of rows `self_index`, compared with all others, or with other groups."""
    nearest = torch.empty(len(queries), k, dtype=torch.long, device=points.device)
    half_squares = points.square().sum(1) / 2
    found = nearest_rows(
        queries,
        points,
        k,
        bias=-half_squares,
        self_index=self_index,
        groups=None if group is None else (group[self_index], group),
    )
    # u v - |v|^2 / 2 = |u|^2 / 2 - |u - v|^2 / 2 is largest for the nearest v
    for rows, _, index in found:
        nearest[rows] = index
    return nearest


def _distances(points: Tensor, index: Tensor) -> Tensor:
    """Return |u_i - u_j| of each pair; from a rounded cosine, small distances would be inexact."""
    rows = max(1, _VALUES // (index.shape[1] * points.shape[1]))
    distance = points.new_empty(index.shape)  # parts of it would leave holes in memory
    chunks = (torch.split(tensor, rows) for tensor in (distance, points, index))
    for chunk, point, neighbors in zip(*chunks, strict=True):
        chunk.copy_(points[neighbors].sub_(point[:, None]).norm(dim=2))
    return distance


def _faiss_search(points: Tensor, k: int, group: Tensor, largest: int) -> Tensor:
    """Return approximate neighbors by an inverted-file index; `largest` is the size of a group."""
    faiss = load_faiss()
    rows = np.ascontiguousarray(points.cpu().numpy())
    cells = round(4 * len(rows) ** 0.5)
    index = faiss.index_factory(rows.shape[1], f"IVF{cells},Flat", faiss.METRIC_L2)
    index.train(rows)
    index.add(rows)
    count = k + largest  # the group of a row is among the nearest ones, at least itself
    enough = -(
        -_MIN_CANDIDATES * (count - 1) * cells // len(rows)
    )  # cells with this many rows on average
    index.nprobe = min(cells, max(round(_CELL_FRACTION * cells), enough))
    _, found = index.search(rows, count)
    neighbors = torch.from_numpy(found).to(points.device)
    excluded = (neighbors < 0) | (group[neighbors] == group[:, None])
    first = excluded.sort(dim=1, stable=True).indices[:, :k]
    (missing,) = torch.where(excluded.gather(1, first).any(1))  # too few rows in its cells
    neighbors = neighbors.gather(1, first)
    if len(missing):
        neighbors[missing] = _exact_search(points[missing], points, missing, k, group)
    return neighbors


def load_faiss() -> Any:
    """Return the module faiss."""
    try:
        import faiss
    except ImportError as error:
        raise ValueError(
            "this needs faiss, which is not installed: pip install 'widefield[faiss]'"
        ) from error
    return faiss
