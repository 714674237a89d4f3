"""What the neighbors of every example say: copies, outliers, clusters and labels to check."""

import math
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from widefield.core.scale import scale_rows
from widefield.metrics.graph import Graph

COPY = 0.5
"""Copies are closer than this share of the distance to an ordinary neighbor."""
_ORDINARY = 5
"""Position of the neighbor that counts as ordinary: a few before it may be copies too."""
_OUTLYING = 3.5
"""Deviations from the median beyond which a distance is outlying (Iglewicz and Hoaglin 1993)."""
VOTERS = 20
"""Neighbors that judge a label."""
_SMALLEST = 5
"""Examples that make a cluster, at least."""


def near_duplicates(graph: Graph) -> list[NDArray[np.int64]]:
    """Return groups of examples that are near-copies of each other, the closest group first.

    Two examples are copies if each is among the neighbors of the other's side, and they are at
    most half as far apart as either is from an ordinary neighbor, its sixth. Where so many copies
    lie together that the sixth is one of them, half the usual distance stands in for it. Groups are
    connected by such pairs.

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

    ordinary = graph.distance[:, min(_ORDINARY, graph.k - 1)]
    ordinary = np.maximum(ordinary, COPY * np.median(ordinary))
    first = np.repeat(np.arange(len(graph)), graph.k)
    second, distance = graph.index.ravel(), graph.distance.ravel()
    copies = distance <= COPY * np.minimum(ordinary[first], ordinary[second])
    first, second, distance = first[copies], second[copies], distance[copies]
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

    An example's distance is the mean of those to its ten nearest neighbors. It is outlying if its
    logarithm is more than 3.5 robust deviations (1.4826 median absolute ones) above the median;
    exact copies, at distance 0, do not count for either.

    Example:
        >>> distance = np.float32([[1.0], [1.1], [0.9], [1.05], [0.95], [9.0]])
        >>> outliers(Graph(index=np.zeros((6, 1), np.int64), distance=distance)).tolist()
        [5]
    """
    distance = neighbor_distance(graph)
    apart = np.flatnonzero(distance)
    if len(apart) == 0:
        return apart
    level = np.log(distance[apart])
    middle = np.median(level)
    deviation = 1.4826 * np.median(np.abs(level - middle))
    far = apart[level > middle + _OUTLYING * deviation]
    return far[np.argsort(-distance[far], kind="stable")]


def neighbor_distance(graph: Graph) -> NDArray[np.float32]:
    """Return the mean distance of each example to its ten nearest neighbors, [n].

    Example:
        >>> index = np.array([[1], [0], [1]])
        >>> near = Graph(index=index, distance=np.float32([[1], [1], [3]]))
        >>> neighbor_distance(near).tolist()
        [1.0, 1.0, 3.0]
    """
    mean: NDArray[np.float32] = graph.distance[:, :10].mean(1)
    return mean


def density_clusters(places: NDArray[np.floating]) -> NDArray[np.int64]:
    """Return the cluster of each place of a map [n, 2], the largest 0, or -1 for none, int64 [n].

    It is HDBSCAN (Campello, Moulavi and Sander 2013) with clusters of sqrt(n) / 2 examples at
    least, so that there are more and larger ones of more examples, and of five.

    Example:
        >>> grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), 2).reshape(36, 2)
        >>> sorted(set(density_clusters(np.concatenate([grid, grid + 100])).tolist()))
        [0, 1]
    """
    from sklearn.cluster import HDBSCAN

    smallest = max(_SMALLEST, round(math.sqrt(len(places)) / 2))
    if len(places) < 2 * smallest:
        return np.full(len(places), -1)
    found = HDBSCAN(min_cluster_size=smallest, copy=True).fit_predict(places)
    sizes = np.bincount(found[found >= 0])
    rank = np.empty(len(sizes) + 1, dtype=np.int64)
    rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
    rank[-1] = -1
    ranked: NDArray[np.int64] = rank[found]
    return ranked


def typical(
    h: NDArray[np.floating], clusters: NDArray[np.int64], *, count: int
) -> list[NDArray[np.int64]]:
    """Return for each cluster the examples nearest to the mean of its unit features h [n, D].

    Example:
        >>> h = np.array([[1.0, 0.0], [0.8, 0.6], [0.0, 1.0]])
        >>> [rows.tolist() for rows in typical(h, np.zeros(3, np.int64), count=1)]
        [[1]]
    """
    near = scale_rows(torch.from_numpy(h)).numpy()
    unit = near / np.maximum(np.linalg.norm(near, axis=1, keepdims=True), 1)  # 0 only of zeros
    nearest = []
    for cluster in range(int(clusters.max(initial=-1)) + 1):
        rows = np.flatnonzero(clusters == cluster)
        cosine = unit[rows] @ unit[rows].mean(0)
        nearest.append(rows[np.argsort(-cosine, kind="stable")[:count]])
    return nearest


@dataclass(frozen=True, kw_only=True)
class Suspects:
    """Examples whose label the neighbors contradict, the clearest first."""

    rows: NDArray[np.int64]
    """[s]."""
    named: NDArray[np.int64]
    """The class that most neighbors have, [s]."""
    share: NDArray[np.floating]
    """Share of the neighbors that have it, [s]."""
    agreement: float
    """How often the neighbors' commonest class is the label, over all examples: where it is low,
    neighbors know little of the classes, and suspicions are weak."""


def suspected_labels(graph: Graph, y: NDArray[np.int64]) -> Suspects:
    """Return the examples none of whose 20 neighbors has their label, while half agree on another.

    Labels y are class ids, int64 [n].

    Example:
        >>> index = np.array([[j for j in range(30) if j != i][:20] for i in range(30)])
        >>> everybody = Graph(index=index, distance=np.ones((30, 20), np.float32))
        >>> suspected_labels(everybody, np.eye(30, dtype=np.int64)[29]).rows.tolist()
        [29]
    """
    votes = y[graph.index[:, :VOTERS]]
    count = np.stack([(votes == vote[:, None]).sum(1) for vote in votes.T], axis=1)
    most = count.max(1)
    named = votes[np.arange(len(votes)), count.argmax(1)]
    own = (votes == y[:, None]).sum(1)
    rows = np.flatnonzero((own == 0) & (2 * most >= votes.shape[1]))
    rows = rows[np.argsort(-most[rows], kind="stable")]
    return Suspects(
        rows=rows,
        named=named[rows],
        share=most[rows] / votes.shape[1],
        agreement=float((named == y).mean()),
    )
