"""The nearest neighbors of every example, from a handful to tens of millions."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.core.scale import unit_rows
from widefield.metrics.spectrum import checked

EXACT = 1_000_000
"""Every pair of so many examples or fewer is compared; of more, those that an index proposes."""
_SIMILARITIES = 2**25
"""Products held in memory together: 128 MiB."""
_PROBED = 0.02
"""Share of the cells that faiss searches for each row."""
_PROPOSED = 20
"""Rows in the searched cells for each neighbor that is wanted, at least."""


@dataclass(frozen=True, kw_only=True)
class Graph:
    """Each example's k nearest neighbors, the nearest first; none is its own."""

    index: NDArray[np.int64]
    """[n, k]."""
    distance: NDArray[np.float32]
    """Length of the chord between the two on the unit sphere, sqrt(2 - 2 cosine), [n, k]."""

    def __len__(self) -> int:
        """Number of examples n."""
        return len(self.index)

    @property
    def k(self) -> int:
        """Neighbors of each example."""
        return self.index.shape[1]


def neighbor_graph(h: Tensor, k: int, *, exact: int = EXACT) -> Graph:
    """Return the k rows of highest cosine to each row of h [n, D], k at most n - 1.

    Up to `exact` rows all pairs are compared, in single precision, on the device of h. More are
    looked up in an index of faiss (Douze et al. 2024), which may miss some. A row of zeros has
    cosine 1 to others of zeros, and 0 to all else.

    Raises:
        ValueError: features that are not finite [n, D] with n >= 2, k outside 1..n-1, or too many
            rows without faiss.

    Example:
        >>> graph = neighbor_graph(torch.tensor([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]]), 1)
        >>> graph.index[:, 0].tolist()
        [1, 0, 1]
    """
    unit = _with_place_for_zeros(unit_rows(checked(h)))
    if not 1 <= k < len(h):
        raise ValueError(f"k is {k} and there are {len(h)} examples: choose 1 to {len(h) - 1}")
    # Chords stay when all rows move alike; without the mean, single precision tells more apart.
    places = (unit - unit.mean(0)).float()
    every = torch.arange(len(places), device=places.device)
    index = _by_blocks(places, every, k) if len(h) <= exact else _by_faiss(places, k)
    distance, order = _chords(places, index).sort(dim=1, stable=True)
    index = index.gather(1, order)
    return Graph(index=index.cpu().numpy(), distance=distance.cpu().numpy())


def _with_place_for_zeros(unit: Tensor) -> Tensor:
    """Return the rows [n, D], with a direction of their own for those of zeros where there are any.

    In the middle of the sphere they would be nearer to all others than these are to each other.
    """
    zero = ~unit.any(1)
    return torch.cat([unit, zero[:, None].to(unit)], dim=1) if zero.any() else unit


def _by_blocks(places: Tensor, rows: Tensor, k: int) -> Tensor:
    """Return the neighbors of these rows, each compared with all others."""
    half_squares = places.square().sum(1) / 2
    chunks = []
    for own in torch.split(rows, max(1, _SIMILARITIES // len(places))):
        nearness = places[own] @ places.T - half_squares  # |u|^2 / 2 - |u - v|^2 / 2
        nearness.scatter_(1, own[:, None], -torch.inf)
        chunks.append(nearness.topk(k, dim=1).indices)
    return torch.cat(chunks)


def _chords(places: Tensor, index: Tensor) -> Tensor:
    """Return |u_i - u_j| of each pair; from a rounded cosine, small ones would be noise."""
    rows = max(1, _SIMILARITIES // (index.shape[1] * places.shape[1]))
    return torch.cat(
        [
            (places[near] - places[start : start + rows, None]).norm(dim=2)
            for start, near in zip(
                range(0, len(places), rows), torch.split(index, rows), strict=True
            )
        ]
    )


def _by_faiss(places: Tensor, k: int) -> Tensor:
    """Return neighbors that an index of cells proposes, each cell searched among its nearest."""
    faiss = load_faiss()
    rows = np.ascontiguousarray(places.cpu().numpy())
    cells = round(4 * len(rows) ** 0.5)
    index = faiss.index_factory(rows.shape[1], f"IVF{cells},Flat", faiss.METRIC_L2)
    index.train(rows)
    index.add(rows)
    enough = -(-_PROPOSED * k * cells // len(rows))  # cells that hold so many rows on average
    index.nprobe = min(cells, max(round(_PROBED * cells), enough))
    _, found = index.search(rows, k + 1)  # one more, for each row finds itself
    own = found == np.arange(len(rows))[:, None]
    own[~own.any(1), k] = True  # pushed out by its copies: the last one found goes instead
    near = torch.from_numpy(found[~own].reshape(len(rows), k)).to(places.device)
    (lacking,) = torch.where((near < 0).any(1))  # its cells held too few
    if len(lacking):
        near[lacking] = _by_blocks(places, lacking, k)
    return near


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
