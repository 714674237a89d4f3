"""A map of features in the plane: t-SNE."""

import numpy as np
import torch
from torch import Tensor

from widefield.metrics.graph import Graph, neighbor_graph
from widefield.metrics.spectrum import checked

PERPLEXITY = 30
MAP_NEIGHBORS = 3 * PERPLEXITY
"""Neighbors of each example that a map is drawn from: further ones have no weight."""
_START = 1e-4
"""Spread of the places to begin with, as the authors recommend."""
_EXACT = 2048
"""Examples or dimensions, whichever are fewer, up to which directions are found exactly."""
_GUESSED, _ROUNDS = 16, 8
"""Directions that are guessed above that, and how often they are turned towards the strongest."""


def tsne_map(h: Tensor, *, graph: Graph | None = None, seed: int = 0) -> Tensor:
    """Return places in the plane, float32 [n, 2] on the CPU, that keep the neighbors of h [n, D].

    It is openTSNE's t-SNE from the two strongest directions, perplexity 30 or a third of the
    neighbors. `graph` has the neighbors of h, if they are known. Distances between far groups
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
        graph = neighbor_graph(h, min(MAP_NEIGHBORS, len(h) - 1))
    k = min(MAP_NEIGHBORS, graph.k)
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
    centered = (h - h.mean(0)).double()  # LAPACK may return NaN in single precision
    plane = strongest_plane(centered, seed).cpu().numpy()
    plane = np.pad(plane, ((0, 0), (0, 2 - plane.shape[1])))
    noise = np.random.default_rng(seed).normal(size=plane.shape)
    return _START * (plane / max(plane.std(0).max(), np.finfo(float).tiny) + noise / 100)


def strongest_plane(centered: Tensor, seed: int) -> Tensor:
    """Return places along the two strongest directions of centered features [n, D], [n, <= 2].

    They are exact where n or D is at most 2048, and else found by subspace iteration from a few
    directions drawn by `seed`: Halko, Martinsson and Tropp (2011), algorithm 4.4.
    """
    n, dim = centered.shape
    if n < dim and n <= _EXACT:
        values, places = torch.linalg.eigh(centered @ centered.T)  # the strongest last
        return (places * values.clamp(min=0).sqrt())[:, -2:].flip(1)
    if min(n, dim) > _EXACT:
        generator = torch.Generator().manual_seed(seed)
        axes = torch.randn(dim, _GUESSED, generator=generator, dtype=centered.dtype).to(centered)
        for _ in range(_ROUNDS):
            axes, _ = torch.linalg.qr(centered.T @ (centered @ axes))
        centered = centered @ axes
    _, axes = torch.linalg.eigh(centered.T @ centered)
    return centered @ axes[:, -2:].flip(1)
