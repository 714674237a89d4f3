"""Which clusters of the map of `explore` agree best with the classes of five data sets?

    python benchmarks/clusters.py DATA_FOLDER --run RUN --json FILE [--set NAME]

HDBSCAN on the map with excess-of-mass or leaf selection, at several smallest clusters c sqrt(n),
and EVoC on the features, each layer (pip install evoc). Scored is the agreement with
the classes; examples in no cluster count as one. RUN, an encoder trained without labels, is for
CIFAR; the others are seen by their pixels or spectrograms. DATA_FOLDER holds cifar10_train.npz,
cifar100_train.npz, mnist_train.npz and fsdd.npz.
"""

import argparse
import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_mutual_info_score, adjusted_rand_score

from widefield.core.hardware import choose_device, machine
from widefield.inference.open_encoder import open_encoder
from widefield.metrics import neighbor_graph, tsne_map

SETS = {
    "digits": (None, "pixels", None),
    "mnist": ("mnist_train.npz", "pixels", 2_000),
    "spoken digits": ("fsdd.npz", "pixels", 2_000),
    "cifar100": ("cifar100_train.npz", "RUN", 2_000),
    "cifar10": ("cifar10_train.npz", "RUN", 3_000),
}
"""Name -> file, encoder, examples."""
SIZES = (0.25, 0.5, 1.0, 2.0)
"""Smallest clusters, as multiples of sqrt(n)."""


def features(name: str, folder: Path, run: str) -> tuple[torch.Tensor, NDArray[np.int64]]:
    """Return the features and classes of a data set."""
    file, encoder, examples = SETS[name]
    if file is None:
        digits = load_digits()
        return torch.from_numpy(digits.data).float(), digits.target
    extractor = open_encoder(run if encoder == "RUN" else encoder)
    dataset = extractor.open(str(folder / file), max_examples=examples, quiet=True)
    return extractor.features(dataset.inputs, quiet=True).cpu(), dataset.labels["class"]


def candidates(h: torch.Tensor) -> dict[str, NDArray[np.int64]]:
    """Return what each method finds."""
    places = tsne_map(h, graph=neighbor_graph(h, min(90, len(h) - 1))).numpy()
    found, ways = {}, {"eom": ("eom", None), "leaf": ("leaf", None)}
    ways |= {f"eom, at most n / {part}": ("eom", len(h) // part) for part in (4, 8)}
    for c, (name, (how, largest)) in product(SIZES, ways.items()):
        method = HDBSCAN(
            min_cluster_size=max(5, round(c * len(h) ** 0.5)),
            max_cluster_size=largest,
            cluster_selection_method=how,
            copy=True,
        )
        found[f"HDBSCAN {name}, {c} sqrt(n)"] = method.fit_predict(places)
    try:
        from evoc import EVoC
    except ImportError:
        return found
    evoc = EVoC(random_state=0)
    found["EVoC"] = evoc.fit_predict(h.numpy())
    layers = enumerate(evoc.cluster_layers_)
    return found | {f"EVoC, layer {i}": np.asarray(layer) for i, layer in layers}


def main() -> None:
    """Compare, print and add the results to the file."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--run", required=True)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--set", choices=SETS, action="append")
    args = parser.parse_args()
    kept: dict[str, Any] = json.loads(args.json.read_text()) if args.json.exists() else {}
    kept |= {"machine": machine(choose_device("auto")), "seed": 0}
    for name in args.set or SETS:
        h, y = features(name, args.folder, args.run)
        kept[name] = {"examples": len(h), "classes": len(set(y.tolist())), "found": {}}
        for method, labels in candidates(h).items():
            kept[name]["found"][method] = {
                "clusters": len(set(labels.tolist()) - {-1}),
                "in_none": round(float((labels < 0).mean()), 4),
                "ami": round(float(adjusted_mutual_info_score(y, labels)), 4),
                "ari": round(float(adjusted_rand_score(y, labels)), 4),
            }
            print(name, method, kept[name]["found"][method], flush=True)
        args.json.write_text(json.dumps(kept, indent=1) + "\n")


if __name__ == "__main__":
    main()
