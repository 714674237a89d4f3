"""Near-duplicates, outliers, clusters and suspected label errors from a neighbor graph."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from widefield.core.scale import unit_rows
from widefield.metrics.graph import Graph

# Chosen by hand.
COPY = 0.5
"""Near-duplicates are closer than this fraction of the distance to the sixth neighbor."""
_SCALE_NEIGHBOR = 5
"""Position of the neighbor whose distance is the local scale: nearer ones may be copies too."""
_MAX_DEVIATIONS = 3.5
"""Robust deviations from the median that make an outlier (Iglewicz and Hoaglin 1993)."""
# As many as in a kNN vote (probes/knn.py).
VOTERS = 20
"""Neighbors whose labels are compared with a label."""
# The default of HDBSCAN.
_SMALLEST = 5
"""Minimum size of a cluster."""
_LARGEST_SHARE = 0.8
"""Share of all points from which on a cluster is divided."""


def near_duplicates(graph: Graph) -> list[NDArray[np.int64]]:
    """Return groups of examples that are near-copies of each other, the closest group first.

    Two examples are near-copies if one is a neighbor of the other and their distance is at most
    half the distance of either to its sixth neighbor. Where the sixth is a copy too, half the
    median of these distances is used instead. Groups are the connected components of such pairs.

    Example:
        >>> import torch
        >>> from widefield.metrics import neighbor_graph
        >>> h = torch.randn(40, 8, generator=torch.Generator().manual_seed(0))
        >>> h[7] = h[3] + 0.01
        >>> [group.tolist() for group in near_duplicates(neighbor_graph(h, 10))]
        [[3, 7]]
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    local_scale = graph.distance[:, min(_SCALE_NEIGHBOR, graph.k - 1)]
    local_scale = np.maximum(local_scale, COPY * np.median(local_scale))
    first = np.repeat(np.arange(len(graph)), graph.k)
    second, distance = graph.index.ravel(), graph.distance.ravel()
    is_copy = distance <= COPY * np.minimum(local_scale[first], local_scale[second])
    first, second, distance = first[is_copy], second[is_copy], distance[is_copy]
    pairs = coo_array((np.ones(len(first)), (first, second)), shape=(len(graph), len(graph)))
    _, group_of = connected_components(pairs, directed=False)
    members = np.unique(first)
    order = members[np.argsort(group_of[members], kind="stable")]
    _, starts = np.unique(group_of[order], return_index=True)
    groups = np.split(order, starts[1:]) if len(order) else []
    closest = np.full(len(graph), np.inf)
    np.minimum.at(closest, first, distance)
    return sorted(groups, key=lambda group: (closest[group].mean(), group[0]))


def outliers(graph: Graph) -> NDArray[np.int64]:
    """Return the examples that are far from all others, the farthest first.

    The distance of an example is the mean to its ten nearest neighbors. It is an outlier if the
    logarithm is more than 3.5 robust deviations (1.4826 times the median absolute deviation) above
    the median; exact copies, at distance 0, are excluded from both.

    Example:
        >>> distance = np.float32([[1.0], [1.1], [0.9], [1.05], [0.95], [9.0]])
        >>> outliers(Graph(index=np.zeros((6, 1), np.int64), distance=distance)).tolist()
        [5]
    """
    distance = neighbor_distance(graph)
    nonzero = np.flatnonzero(distance)
    if len(nonzero) == 0:
        return nonzero
    level = np.log(distance[nonzero])
    middle = np.median(level)
    deviation = 1.4826 * np.median(np.abs(level - middle))
    selected = nonzero[level > middle + _MAX_DEVIATIONS * deviation]
    return selected[np.argsort(-distance[selected], kind="stable")]


def neighbor_distance(graph: Graph) -> NDArray[np.float32]:
    """Return the mean distance of each example to its ten nearest neighbors, [n].

    Example:
        >>> index = np.array([[1], [0], [1]])
        >>> scaled = Graph(index=index, distance=np.float32([[1], [1], [3]]))
        >>> neighbor_distance(scaled).tolist()
        [1.0, 1.0, 3.0]
    """
    mean: NDArray[np.float32] = graph.distance[:, :10].mean(1)
    return mean


def density_clusters(
    places: NDArray[np.floating], copies: Sequence[NDArray[np.int64]] = ()
) -> NDArray[np.int64]:
    """Return the cluster of each point of a map [n, 2], the largest 0, or -1 for none, int64 [n].

    It is HDBSCAN (Campello, Moulavi and Sander 2013) with a minimum cluster size of sqrt(n) / 4,
    so that number and size of clusters grow with n, and of at least five. A cluster of more than
    four fifths of all points is replaced by the clusters in it, of at most half of them, if there
    are any. Groups of `copies`, which a map spreads, are in one cluster: the one with most of
    them, or their own if they suffice.

    Example:
        >>> grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), 2).reshape(36, 2)
        >>> sorted(set(density_clusters(np.concatenate([grid, grid + 100])).tolist()))
        [0, 1]
    """
    # A quarter of the root: study smallest-cluster (docs/studies.md).
    smallest = max(_SMALLEST, round(math.sqrt(len(places)) / 4))
    if len(places) < 2 * smallest:
        return np.full(len(places), -1)
    found = _hdbscan(places, smallest, None)
    # Where a few points are far from all others, HDBSCAN divides these from the rest and stops.
    if np.bincount(found[found >= 0], minlength=1).max() > _LARGEST_SHARE * len(places):
        split = _hdbscan(places, smallest, len(places) // 2)
        found = split if split.max() > found.max() else found
    for group in copies:
        members = found[group][found[group] >= 0]
        if len(members):
            found[group] = np.bincount(members).argmax()
        elif len(group) >= smallest:
            found[group] = found.max() + 1
    left = np.unique(found[found >= 0])  # a cluster of copies may be part of another one now
    found = np.where(found < 0, -1, np.searchsorted(left, found))
    sizes = np.bincount(found[found >= 0])
    rank = np.empty(len(sizes) + 1, dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    rank[-1] = -1
    labels: NDArray[np.int64] = rank[found]
    return labels


def _hdbscan(places: NDArray[np.floating], smallest: int, largest: int | None) -> NDArray[np.int64]:
    """Return the cluster of each point, or -1, with the least and the greatest size of clusters."""
    from sklearn.cluster import HDBSCAN

    clusters = HDBSCAN(min_cluster_size=smallest, max_cluster_size=largest, copy=True)
    found: NDArray[np.int64] = clusters.fit_predict(places)
    return found


def typical(
    h: NDArray[np.floating], clusters: NDArray[np.int64], *, count: int
) -> list[NDArray[np.int64]]:
    """Return for each cluster the examples nearest to the mean of its normalized features [n, D].

    Example:
        >>> h = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> [rows.tolist() for rows in typical(h, np.zeros(3, np.int64), count=1)]
        [[1]]
    """
    unit = unit_rows(torch.from_numpy(h)).numpy()
    nearest = []
    for cluster in range(int(clusters.max(initial=-1)) + 1):
        rows = np.flatnonzero(clusters == cluster)
        cosine = unit[rows] @ unit[rows].mean(0)
        nearest.append(rows[np.argsort(-cosine, kind="stable")[:count]])
    return nearest


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """Examples whose label differs from those of their neighbors, the clearest first.

    Example:
        >>> rows, named, share = np.array([4]), np.array([1]), np.array([0.9])
        >>> suspects = Suspects(rows=rows, named=named, share=share, agreement=0.95)
        >>> suspects.rows[suspects.share > 0.5]
        array([4])
    """

    rows: NDArray[np.int64]
    """[s]."""
    named: NDArray[np.int64]
    """Most frequent class among the neighbors, [s]."""
    share: NDArray[np.floating]
    """Share of the neighbors with that class, [s]."""
    agreement: float
    """Share of all examples whose label is the most frequent class of the neighbors: where it is
    low, neighbors predict the classes poorly, and the suspicions are weak."""


def suspected_labels(graph: Graph, y: NDArray[np.int64]) -> Suspects:
    """Return the examples whose label none of 20 neighbors has, and half have another in common.

    Labels y are class ids, int64 [n].

    Example:
        >>> index = np.array([[j for j in range(30) if j != i][:20] for i in range(30)])
        >>> everybody = Graph(index=index, distance=np.ones((30, 20), np.float32))
        >>> suspected_labels(everybody, np.eye(30, dtype=np.int64)[29]).rows.tolist()
        [29]
    """
    neighbor_labels = y[graph.index[:, :VOTERS]]
    count = np.stack(
        [(neighbor_labels == column[:, None]).sum(1) for column in neighbor_labels.T], axis=1
    )
    max_count = count.max(1)
    named = neighbor_labels[np.arange(len(neighbor_labels)), count.argmax(1)]
    matches = (neighbor_labels == y[:, None]).sum(1)
    rows = np.flatnonzero((matches == 0) & (2 * max_count >= neighbor_labels.shape[1]))
    rows = rows[np.argsort(-max_count[rows], kind="stable")]
    return Suspects(
        rows=rows,
        named=named[rows],
        share=max_count[rows] / neighbor_labels.shape[1],
        agreement=float((named == y).mean()),
    )
