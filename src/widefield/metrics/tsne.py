"""Two-dimensional maps of features by t-SNE."""

import numpy as np
import torch
from torch import Tensor

from widefield.metrics.graph import Graph, neighbor_graph
from widefield.metrics.spectrum import check_features

# The default of openTSNE.
PERPLEXITY = 30
MAP_NEIGHBORS = 3 * PERPLEXITY
"""Number of neighbors that a map uses; farther ones have no weight."""
ITERATIONS = (100, 250)
"""Iterations with and without early exaggeration. openTSNE's 250 and 500 cost nearly three times as
much and preserve no more neighborhoods of 30 (docs/explore.md)."""
_INIT_STD = 1e-4
"""Std of the initial positions, as the authors recommend."""
# Chosen by hand: eigenvectors of a matrix of this size take about a second.
_EXACT = 2048
"""Maximum of min(n, D) for an exact PCA."""
# Chosen by hand: two directions are wanted, and the others make these converge sooner.
_NUM_AXES, _ITERATIONS = 16, 8
"""Random directions and iterations of the subspace iteration above it."""


def tsne_map(
    h: Tensor,
    *,
    graph: Graph | None = None,
    seed: int = 0,
    iterations: tuple[int, int] = ITERATIONS,
) -> Tensor:
    """Return two-dimensional positions of features h [n, D], float32 [n, 2] on the CPU.

    It is openTSNE's t-SNE, initialized by PCA, with perplexity 30 or a third of the neighbors.
    `graph` has the neighbors of h, if they are known; `iterations` are those with and without early
    exaggeration. Distances between groups have no meaning. Van der Maaten and Hinton (2008);
    Poličar, Stražar and Zupan (2024). Raises `ValueError` for features that are not finite, and for
    fewer than 4 examples.

    Example:
        >>> tsne_map(torch.randn(20, 5, generator=torch.Generator().manual_seed(0))).shape
        torch.Size([20, 2])
    """
    from openTSNE import TSNEEmbedding
    from openTSNE.affinity import PerplexityBasedNN
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    if len(check_features(h)) < 4:
        raise ValueError(f"a map needs 4 examples at least, got {len(h)}")
    if graph is None:
        graph = neighbor_graph(h, min(MAP_NEIGHBORS, len(h) - 1))
    start = _start(h.detach().double(), seed)  # before the weights, which take much memory
    k = min(MAP_NEIGHBORS, graph.k)
    neighbors = PrecomputedNeighbors(graph.index[:, :k], graph.distance[:, :k])
    weights = PerplexityBasedNN(knn_index=neighbors, perplexity=k / 3)
    embedding = TSNEEmbedding(start, weights, random_state=seed)
    early, late = iterations
    # Momenta of van der Maaten and Hinton (2008), exaggeration of van der Maaten (2014).
    embedding = embedding.optimize(n_iter=early, exaggeration=12, momentum=0.5)
    embedding = embedding.optimize(n_iter=late, momentum=0.8)
    return torch.from_numpy(np.asarray(embedding, dtype=np.float32))


def _start(h: Tensor, seed: int) -> np.ndarray:
    """Return a small PCA projection of h with noise, so that points differ, float64 [n, 2].

    It preserves global structure better than a random start (Kobak and Linderman 2021).
    """
    centered = (h - h.mean(0)).double()  # LAPACK may return NaN in single precision
    embedding = pca_projection(centered, seed).cpu().numpy()
    embedding = np.pad(embedding, ((0, 0), (0, 2 - embedding.shape[1])))
    noise = np.random.default_rng(seed).normal(size=embedding.shape)
    return _INIT_STD * (embedding / max(embedding.std(0).max(), np.finfo(float).tiny) + noise / 100)


def pca_projection(centered: Tensor, seed: int) -> Tensor:
    """Return the first two principal components of centered features [n, D], [n, <= 2].

    They are exact where n or D is at most 2048, and otherwise found by subspace iteration from
    random directions: Halko, Martinsson and Tropp (2011), algorithm 4.4.
    """
    n, dim = centered.shape
    if n < dim and n <= _EXACT:
        values, vectors = torch.linalg.eigh(centered @ centered.T)  # the strongest last
        return (vectors * values.clamp(min=0).sqrt())[:, -2:].flip(1)
    if min(n, dim) > _EXACT:
        generator = torch.Generator().manual_seed(seed)
        axes = torch.randn(dim, _NUM_AXES, generator=generator, dtype=centered.dtype).to(centered)
        for _ in range(_ITERATIONS):
            axes, _ = torch.linalg.qr(centered.T @ (centered @ axes))
        centered = centered @ axes
    _, axes = torch.linalg.eigh(centered.T @ centered)
    return centered @ axes[:, -2:].flip(1)
