"""Which library draws the map of `explore`, and what its clusters are found in?

    python benchmarks/explore_choices.py RUN DATA_FOLDER --json FILE

Features are those of RUN, an encoder that was trained without labels, on 50,000 CIFAR-10 images.
Each map is drawn from the same exact neighbors, where its library takes them. Of a map is told the
CPU time; the share of the 10 nearest neighbors that are among the 10 nearest on the map; how often
the nearest on the map has the same class; and how often the nearer of two random images is the
nearer on the map. Clusters, of the map or of the features, are compared with the classes (adjusted
mutual information; images in no cluster count as one).

UMAP is not among what `make install` installs: pip install umap-learn.
"""

import argparse
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_mutual_info_score
from sklearn.neighbors import NearestNeighbors
from torch.nn.functional import normalize

from study import Results
from widefield.data import open_dataset
from widefield.inference.open_encoder import load
from widefield.metrics.graph import Graph, neighbor_graph
from widefield.probes import extract

IMAGES, NEIGHBORS, QUERIES, SMALLEST, SEED = 50_000, 90, 5_000, 50, 0

FACTS = {
    "command": "python benchmarks/explore_choices.py RUN DATA_FOLDER",
    "images": IMAGES,
    "seed": SEED,
}

Rows = NDArray[np.floating]


def by_pca(h: Rows, graph: Graph) -> Rows:
    """Return the floor: the two strongest directions."""
    return PCA(2, random_state=SEED).fit_transform(h)


def by_opentsne(h: Rows, graph: Graph, *, perplexity: float) -> Rows:
    """Return the map of openTSNE."""
    from openTSNE import TSNEEmbedding, affinity, initialization
    from openTSNE.nearest_neighbors import PrecomputedNeighbors

    k = round(3 * perplexity)
    near = PrecomputedNeighbors(graph.index[:, :k], graph.distance[:, :k].astype(float))
    p = affinity.PerplexityBasedNN(knn_index=near, perplexity=perplexity)
    start = initialization.pca(h, random_state=SEED)
    plane = TSNEEmbedding(start, p, random_state=SEED)
    plane = plane.optimize(n_iter=250, exaggeration=12, momentum=0.5)
    return np.asarray(plane.optimize(n_iter=500, momentum=0.8))


def by_umap(h: Rows, graph: Graph) -> Rows:
    """Return the map of umap-learn."""
    import umap

    own = np.arange(len(h))[:, None]  # UMAP counts each row as its own nearest
    index = np.hstack([own, graph.index[:, :14]])
    distance = np.hstack([np.zeros((len(h), 1), np.float32), graph.distance[:, :14]])
    known = (index, distance, None)
    return umap.UMAP(n_neighbors=15, precomputed_knn=known, random_state=SEED).fit_transform(h)


MAPS: dict[str, Callable[[Rows, Graph], Rows]] = {
    "PCA": by_pca,
    "openTSNE, perplexity 30": lambda h, graph: by_opentsne(h, graph, perplexity=30),
    "UMAP, 15 neighbors": by_umap,
}


def timed(make: Callable[[], Any]) -> tuple[Any, dict[str, float]]:
    """Return what `make` returns, with CPU and wall seconds."""
    wall, used = time.perf_counter(), _cpu()
    made = make()
    seconds = {"cpu_seconds": _cpu() - used, "seconds": time.perf_counter() - wall}
    return made, {name: round(value, 1) for name, value in seconds.items()}


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def quality(plane: Rows, h: Rows, graph: Graph, y: NDArray[np.int64]) -> dict[str, float]:
    """Return how well a map keeps what is near and what is far."""
    rng = np.random.default_rng(SEED)
    rows = rng.choice(len(h), QUERIES, replace=False)
    found = NearestNeighbors(n_neighbors=11).fit(plane).kneighbors(plane[rows])[1]
    near = np.array([[j for j in line if j != i][:10] for i, line in zip(rows, found, strict=True)])
    kept = [len(set(a) & set(b)) / 10 for a, b in zip(near, graph.index[rows, :10], strict=True)]
    a, b, c = rng.integers(0, len(h), (3, 100_000))
    order = [
        np.linalg.norm(x[a] - x[b], axis=1) < np.linalg.norm(x[a] - x[c], axis=1)
        for x in (h, plane)
    ]
    return {
        "neighbors_kept": round(float(np.mean(kept)), 4),
        "nearest_has_class": round(float((y[near[:, 0]] == y[rows]).mean()), 4),
        "order_kept": round(float((order[0] == order[1]).mean()), 4),
    }


def cluster_methods(
    h: Rows, planes: dict[str, Rows], classes: int
) -> dict[str, tuple[Rows, HDBSCAN | KMeans]]:
    """Return places, of a map or of features, with what finds clusters in them."""
    dense = HDBSCAN(min_cluster_size=SMALLEST, copy=True)
    small = PCA(10, random_state=SEED).fit_transform(h)
    means = KMeans(classes, n_init=1, random_state=SEED)
    return {
        **{f"HDBSCAN on the map by {name}": (rows, dense) for name, rows in planes.items()},
        "HDBSCAN on 10 directions of PCA": (small, dense),
        "k-means on the features, as many as classes": (h, means),
    }


def agreement(found: NDArray[np.int64], y: NDArray[np.int64]) -> dict[str, float]:
    """Return how many clusters there are, and what they share with the classes."""
    return {
        "clusters": int(found.max()) + 1,
        "in_none": round(float((found < 0).mean()), 4),
        "ami": round(float(adjusted_mutual_info_score(y, found)), 4),
    }


def main() -> None:
    """Compare, and write each number as it is there."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    cifar = open_dataset(f"{args.folder}/cifar10_train.npz", max_examples=IMAGES)
    y = cifar.labels["class"]
    h = normalize(extract(load(args.run), cifar.images), dim=1).numpy()
    graph, seconds = timed(lambda: neighbor_graph(torch.from_numpy(h), NEIGHBORS))
    results = Results(args.json, lambda runs: FACTS)
    results.add("exact neighbors", seconds)
    planes: dict[str, Rows] = {}
    for name, draw in MAPS.items():
        planes[name], seconds = timed(lambda draw=draw: draw(h, graph))
        results.add(name, {**seconds, **quality(planes[name], h, graph, y)})
    for name, (rows, method) in cluster_methods(h, planes, len(set(y.tolist()))).items():
        found, seconds = timed(lambda rows=rows, method=method: method.fit_predict(rows))
        results.add(name, {**seconds, **agreement(found, y)})


if __name__ == "__main__":
    main()
