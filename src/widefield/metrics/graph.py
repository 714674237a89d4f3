"""Nearest-neighbor graph of up to tens of millions of examples."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.core.scale import unit_rows
from widefield.metrics.neighbors import check_k
from widefield.metrics.spectrum import check_features

EXACT = 1_000_000
"""Maximum number of examples for which all pairs are compared; above it an index is used."""
_SIMILARITIES = 2**25
"""Maximum number of products in memory: 128 MiB."""
_CELL_FRACTION = 0.02
"""Fraction of the cells that faiss searches for each row."""
_MIN_CANDIDATES = 20
"""Minimum number of rows in the searched cells for each neighbor."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """The k nearest neighbors of each example, the nearest first, without itself.

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


def neighbor_graph(h: Tensor, k: int, *, exact: int = EXACT) -> Graph:
    """Return the k rows of highest cosine to each row of h [n, D], k at most n - 1.

    Up to `exact` rows all pairs are compared, in single precision, on the device of h. For more, an
    approximate index of faiss (Douze et al. 2024) is used. A row of zeros has cosine 1 to other
    rows of zeros, and 0 to all others.

    Raises:
        ValueError: features that are not finite [n, D] with n >= 2, k outside 1..n-1, or too many
            rows without faiss.

    Example:
        >>> graph = neighbor_graph(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), 1)
        >>> graph.index[:, 0].tolist()
        [1, 0, 1]
    """
    unit = unit_rows(check_features(h))
    check_k(k, len(h))
    zero = ~unit.any(1)
    if zero.any():  # an extra dimension: the center of the sphere would be nearest to all rows
        unit = torch.cat([unit, zero[:, None].to(unit)], dim=1)
    # Translation keeps distances; centered points have smaller errors in single precision.
    points = (unit - unit.mean(0)).float()
    every = torch.arange(len(points), device=points.device)
    index = _exact_search(points, every, k) if len(h) <= exact else _faiss_search(points, k)
    distance, order = _distances(points, index).sort(dim=1, stable=True)
    index = index.gather(1, order)
    return Graph(index=index.cpu().numpy(), distance=distance.cpu().numpy())


def _exact_search(points: Tensor, rows: Tensor, k: int) -> Tensor:
    """Return the neighbors of these rows, compared with all others."""
    half_squares = points.square().sum(1) / 2
    chunks = []
    for rows_chunk in torch.split(rows, max(1, _SIMILARITIES // len(points))):
        similarity = points[rows_chunk] @ points.T - half_squares  # |u|^2 / 2 - |u - v|^2 / 2
        similarity.scatter_(1, rows_chunk[:, None], -torch.inf)
        chunks.append(similarity.topk(k, dim=1).indices)
    return torch.cat(chunks)


def _distances(points: Tensor, index: Tensor) -> Tensor:
    """Return |u_i - u_j| of each pair; from a rounded cosine, small distances would be inexact."""
    rows = max(1, _SIMILARITIES // (index.shape[1] * points.shape[1]))
    return torch.cat(
        [
            (points[neighbors] - points[start : start + rows, None]).norm(dim=2)
            for start, neighbors in zip(
                range(0, len(points), rows), torch.split(index, rows), strict=True
            )
        ]
    )


def _faiss_search(points: Tensor, k: int) -> Tensor:
    """Return approximate neighbors from an inverted-file index."""
    faiss = load_faiss()
    rows = np.ascontiguousarray(points.cpu().numpy())
    cells = round(4 * len(rows) ** 0.5)
    index = faiss.index_factory(rows.shape[1], f"IVF{cells},Flat", faiss.METRIC_L2)
    index.train(rows)
    index.add(rows)
    enough = -(-_MIN_CANDIDATES * k * cells // len(rows))  # cells with this many rows on average
    index.nprobe = min(cells, max(round(_CELL_FRACTION * cells), enough))
    _, found = index.search(rows, k + 1)  # one more, for each row finds itself
    is_self = found == np.arange(len(rows))[:, None]
    is_self[~is_self.any(1), k] = True  # not found among its copies: drop the last one instead
    neighbors = torch.from_numpy(found[~is_self].reshape(len(rows), k)).to(points.device)
    (missing,) = torch.where((neighbors < 0).any(1))  # too few rows in its cells
    if len(missing):
        neighbors[missing] = _exact_search(points, missing, k)
    return neighbors


def load_faiss() -> Any:
    """Return the module faiss.

    Raises:
        ValueError: it is not installed.
    """
    try:
        import faiss
    except ImportError as error:
        raise ValueError(
            "this needs faiss, which is not installed: pip install 'widefield[faiss]'"
        ) from error
    return faiss
