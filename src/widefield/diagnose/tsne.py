"""A map of features in the plane: t-SNE."""

import numpy as np
import torch
from torch import Tensor

from widefield.diagnose.graph import Graph, neighbour_graph
from widefield.diagnose.spectrum import checked

PERPLEXITY = 30
MAP_NEIGHBOURS = 3 * PERPLEXITY
"""Neighbours of each example that a map is drawn from: further ones have no weight."""
_START = 1e-4
"""Spread of the places to begin with, as the authors recommend."""


def tsne_map(h: Tensor, *, graph: Graph | None = None, seed: int = 0) -> Tensor:
    """Return places in the plane, float32 [n, 2] on the CPU, that keep the neighbours of h [n, D].

    It is openTSNE's t-SNE from the two strongest directions, perplexity 30 or a third of the
    neighbours. `graph` has the neighbours of h, if they are known. Distances between far groups
    mean nothing. Van der Maaten and Hinton (2008); Poličar, Stražar and Zupan (2024). Raises
    `ValueError` for features that are not finite, and for fewer than 4 examples.

    Example:
        >>> tsne_map(torch.randn(20, 5, generator=torch.Generator().manual_seed(0))).shape
        torch.Size([20, 2])
    """
    from openTSNE import TSNEEmbedding
    from openTSNE.affinity import PerplexityBasedNN
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    h = checked(h)
    if len(h) < 4:
        raise ValueError(f"a map needs 4 examples at least, got {len(h)}")
    if graph is None:
        graph = neighbour_graph(h, min(MAP_NEIGHBOURS, len(h) - 1))
    k = min(MAP_NEIGHBOURS, graph.k)
    near = PrecomputedNeighbors(graph.index[:, :k], graph.distance[:, :k].astype(np.float64))
    weights = PerplexityBasedNN(knn_index=near, perplexity=k / 3)
    plane = TSNEEmbedding(_start(h, seed), weights, random_state=seed)
    plane = plane.optimize(n_iter=250, exaggeration=12, momentum=0.5)  # the authors' schedule
    plane = plane.optimize(n_iter=500, momentum=0.8)
    return torch.from_numpy(np.asarray(plane, dtype=np.float32))


def _start(h: Tensor, seed: int) -> np.ndarray:
    """Return the two strongest directions of h, float64 [n, 2], small, and none equal to another.

    Distances between groups then mean a little more than from a random start (Kobak and Linderman
    2021).
    """
    centred = (h - h.mean(0)).double()  # LAPACK may return NaN in single precision
    _, axes = torch.linalg.eigh(centred.T @ centred)  # the strongest last
    plane = (centred @ axes[:, -2:].flip(1)).cpu().numpy()
    plane = np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))
    noise = np.random.default_rng(seed).normal(size=plane.shape)
    return _START * (plane / max(plane.std(0).max(), np.finfo(float).tiny) + noise / 100)
