"""Which library draws the map of `explore`, and what its clusters are found in.

Each map is drawn from the same exact neighbors, where its library takes them. UMAP is not among
what `make install` installs: pip install umap-learn.
"""

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score
from sklearn.neighbors import NearestNeighbors
from torch.nn.functional import normalize

from studies.study import Arm, Measured, Scale, cpu_study, percent
from studies.trained import Trained
from widefield.data import open_dataset
from widefield.inference.open_encoder import load, open_encoder
from widefield.metrics import neighbor_graph, tsne_map
from widefield.metrics.graph import Graph
from widefield.probes import extract

NEIGHBORS, QUERIES, SMALLEST, SEED = 90, 5_000, 50, 0

Rows = NDArray[np.floating]


class Seen(NamedTuple):
    """Features of examples [n, D], their nearest neighbors and their classes [n]."""

    h: Rows
    graph: Graph
    y: NDArray[np.int64]
    seconds: float
    """Processor seconds to find the neighbors."""


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


@cache
def _seen(run: Path, spec: str) -> Seen:
    """Return what the encoder of a run sees; several measures take it."""
    images = open_dataset(spec)
    h = normalize(extract(load(run), images.inputs), dim=1).cpu()
    began = time.process_time()
    graph = neighbor_graph(h, min(NEIGHBORS, len(h) - 1))
    seconds = round(time.process_time() - began, 1)
    return Seen(h.numpy(), graph, images.labels["class"], seconds)


@cache
def _plane(name: str, run: Path, spec: str) -> tuple[Rows, float]:
    """Return a map, and its processor seconds."""
    seen, began = _seen(run, spec), time.process_time()
    plane = MAPS[name](seen.h, seen.graph)
    return plane, round(time.process_time() - began, 1)


def _where(trained: Trained) -> tuple[Path, str]:
    assert trained.folder is not None
    return trained.folder, trained.packs.spec("cifar10", "train")


def map_quality(trained: Trained) -> Measured:
    """Return how well a map keeps what is near and what is far.

    That is the share of the 10 nearest neighbors that are among the 10 nearest on the map; how
    often the nearest on the map has the same class; and how often the nearer of two random images
    is the nearer on the map.
    """
    where = _where(trained)
    h, graph, y, of_neighbors = _seen(*where)
    plane, seconds = _plane(trained.arm.about["map"], *where)
    rng = np.random.default_rng(SEED)
    rows = rng.choice(len(h), min(QUERIES, len(h)), replace=False)
    found = NearestNeighbors(n_neighbors=11).fit(plane).kneighbors(plane[rows])[1]
    near = np.array([[j for j in line if j != i][:10] for i, line in zip(rows, found, strict=True)])
    kept = [len(set(a) & set(b)) / 10 for a, b in zip(near, graph.index[rows, :10], strict=True)]
    a, b, c = rng.integers(0, len(h), (3, 100_000))
    order = [
        np.linalg.norm(x[a] - x[b], axis=1) < np.linalg.norm(x[a] - x[c], axis=1)
        for x in (h, plane)
    ]
    return {
        "neighbors: processor seconds": of_neighbors,
        "processor seconds": seconds,
        "neighbors kept (of ten), %": percent(np.mean(kept)),
        "1-NN accuracy (class), %": percent((y[near[:, 0]] == y[rows]).mean()),
        "order of far distances kept, %": percent((order[0] == order[1]).mean()),
    }


def clusters(trained: Trained) -> Measured:
    """Return time, number and agreement of clusters of a map, or of the features."""
    where = _where(trained)
    h, _, y, _ = _seen(*where)
    rows, method = h, HDBSCAN(min_cluster_size=SMALLEST, copy=True)
    match trained.arm.about["of"]:
        case "PCA of 10":
            rows = PCA(10, random_state=SEED).fit_transform(h)
        case "features":
            method = KMeans(len(set(y.tolist())), n_init=1, random_state=SEED)
        case name:
            rows, _ = _plane(name, *where)
    began = time.process_time()
    found = method.fit_predict(rows)
    return {
        "processor seconds": round(time.process_time() - began, 1),
        **agreement(found, y),
    }


def agreement(found: NDArray[np.int64], y: NDArray[np.int64]) -> Measured:
    """Return how many clusters there are, and what they share with the classes.

    Examples in no cluster count as one.
    """
    return {
        "count": len(set(found.tolist()) - {-1}),
        "in none, %": percent((found < 0).mean()),
        "mutual information": round(float(adjusted_mutual_info_score(y, found)), 4),
    }


def _arm(**about: str) -> Arm:
    return Arm(data="cifar10", settings={"method": "view-contrast"}, about=about)


CPU = Scale(images=10_000, epochs=10, seeds=(0,), minutes=30)
LIBRARIES = cpu_study(
    id="maps",
    question="Which library draws the map of `explore`?",
    cpu=CPU,
    arms={name: _arm(map=name) for name in MAPS},
    measure=map_quality,
)
CLUSTERS = cpu_study(
    id="clusters",
    question="What are the clusters of `explore` found in?",
    cpu=CPU,
    arms={
        **{f"HDBSCAN on the map by {name}": _arm(of=name) for name in MAPS},
        "HDBSCAN on 10 directions of PCA": _arm(of="PCA of 10"),
        "k-means on the features, as many as classes": _arm(of="features"),
    },
    measure=clusters,
)

WAYS: dict[str, tuple[str, int | None]] = {
    "eom": ("eom", None),
    "leaf": ("leaf", None),
    "eom, at most n / 4": ("eom", 4),
    "eom, at most n / 8": ("eom", 8),
}
"""Name -> selection of HDBSCAN, and the part of the examples that a cluster has at most."""


def smallest_cluster(trained: Trained) -> Measured:
    """Return the agreement of clusters of the map of a data set, by HDBSCAN's settings."""
    places, y = _places(trained.arm.data, trained.folder, trained.packs.folder)
    smallest, (how, part) = trained.arm.about["smallest"], WAYS[trained.arm.about["way"]]
    method = HDBSCAN(
        min_cluster_size=max(5, round(smallest * len(places) ** 0.5)),
        max_cluster_size=part and len(places) // part,
        cluster_selection_method=how,
        copy=True,
    )
    found = method.fit_predict(places)
    return {**agreement(found, y), "Rand index": round(float(adjusted_rand_score(y, found)), 4)}


@cache
def _places(data: str, run: Path | None, packs: Path) -> tuple[Rows, NDArray[np.int64]]:
    """Return the map of a data set, and the classes of its examples."""
    if data in FILES:
        file, examples = FILES[data]
        extractor = open_encoder(run or "pixels")
        dataset = extractor.open(packs / file, max_examples=examples, quiet=True)
        h, y = extractor.features(dataset.inputs, quiet=True).cpu(), dataset.labels["class"]
    else:
        digits = load_digits()
        h, y = torch.from_numpy(digits.data).float(), digits.target
    return tsne_map(h, graph=neighbor_graph(h, min(NEIGHBORS, len(h) - 1))).numpy(), y


FILES = {"cifar10+digits": ("cifar10_train.npz", 3000), "fsdd": ("fsdd.npz", 2000)}
"""Data of an arm -> file and number of the examples that are seen; scikit-learn's digits else."""
PIXELS = {"settings": None, "pixels": True}
SETS: dict[str, dict[str, Any]] = {
    "digits": {"data": "mnist", **PIXELS},
    "spoken digits": {"data": "fsdd", **PIXELS},
    "cifar10": {"data": "cifar10+digits", "settings": {"method": "view-contrast"}},
}
"""Name -> what sees it. Digits are scikit-learn's."""
SMALLEST_CLUSTER = cpu_study(
    id="smallest-cluster",
    question="How large should the smallest cluster of `explore` be?",
    cpu=Scale(images=5000, epochs=18, seeds=(0,), minutes=10),
    arms={
        f"{way}, {smallest} sqrt(n) @ {name}": Arm(about={"way": way, "smallest": smallest}, **arm)
        for smallest in (0.25, 0.5, 1.0, 2.0)
        for way in WAYS
        for name, arm in SETS.items()
    },
    measure=smallest_cluster,
)

STUDIES = [LIBRARIES, CLUSTERS, SMALLEST_CLUSTER]
