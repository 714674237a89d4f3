"""With few labels or none: are wide features better than pooled ones?

    python benchmarks/readout_few.py DATA_FOLDER --runs FOLDER \
        --json benchmarks/results/readout_few.json

Data and encoders of benchmarks/readout_floors.py: resnet-tiny trained without labels on CIFAR-10,
also with a planted digit, on MNIST and on spoken digits, three seeds; and on labels of CIFAR-100,
one seed. FOLDER is that of the command there. The readout is fitted on the training examples, as
by `classify` and `explore`. On these:

- few labels: five examples a class have a label, and the probe of `classify` predicts all others;
  mean of five draws of the labels;
- neighbors: share of examples whose label is the most frequent one of their 20 nearest neighbors,
  as `explore` reports it;
- clusters: adjusted mutual information of the labels and the clusters of `explore`, where examples
  in no cluster count as one.

The file of results is rewritten after every run, and runs that it already holds are not repeated.
"""

import argparse
import itertools
import statistics
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import adjusted_mutual_info_score
from torch import Tensor, nn

from readout_floors import CPU, LABELS, SEEDS, Study, has, open_sets
from study import Results
from widefield.data import Dataset
from widefield.encoders import Wide
from widefield.evaluation.wide import fit_on_dataset
from widefield.metrics import density_clusters, neighbor_graph, suspected_labels, tsne_map
from widefield.metrics.tsne import MAP_NEIGHBORS
from widefield.probes import extract, pixels
from widefield.probes.few_labels import fit_few_labels

DATA = ("cifar10", "cifar10+digits", "mnist", "spoken")
STARTS = ("view-contrast", LABELS)
PER_CLASS, DRAWS = 5, 5
COMMAND = "python benchmarks/readout_few.py DATA_FOLDER --runs FOLDER"


def scored(h: Tensor, dataset: Dataset) -> dict[str, dict[str, float]]:
    """Return the measures of each task, from features h [n, D]."""
    graph, values = neighbor_graph(h, min(MAP_NEIGHBORS, len(h) - 1)), h.numpy()
    clusters = density_clusters(tsne_map(h, graph=graph, seed=0).numpy())
    return {
        task: {
            "few labels": round(statistics.mean(_few(values, y, draw) for draw in range(DRAWS)), 4),
            "neighbors": round(suspected_labels(graph, y).agreement, 4),
            "clusters": round(float(adjusted_mutual_info_score(y, clusters)), 4),
        }
        for task, y in dataset.labels.items()
    }


def _few(h: NDArray[np.floating], y: NDArray[np.int64], draw: int) -> float:
    """Return the accuracy on the examples that have no label."""
    rng, classes = np.random.default_rng(draw), int(y.max()) + 1
    chosen = [rng.choice(np.flatnonzero(y == k), PER_CLASS, replace=False) for k in range(classes)]
    labeled = np.concatenate(chosen)
    guess = fit_few_labels(h, labeled, y[labeled], classes=classes).probabilities.argmax(1)
    rest = np.setdiff1d(np.arange(len(y)), labeled)
    return float((guess[rest] == y[rest]).mean())


def main() -> None:
    """Run what the results file lacks."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=Path, required=True)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    results = Results(args.json, lambda runs: {"command": COMMAND, "labels_per_class": PER_CLASS})
    encoders = Study(args.folder, args.runs, args.json)
    for seed, data, start in itertools.product(SEEDS, DATA, STARTS):
        key = f"{data} | {start} | seed {seed}"
        if key in results or not has(data, "resnet-tiny", start, seed):
            continue
        sets = open_sets(args.folder, data, seed)
        encoder = encoders.build(data, "resnet-tiny", start, seed, sets)
        shown = sets if data == "spoken" else sets.with_channels(encoder.config.channels)
        wide: nn.Module = Wide(encoder, fit_on_dataset(encoder, shown.train, device=CPU))
        features = {
            "pixels": pixels(sets.train.images),
            "pooled": extract(encoder, shown.train.images),
            "wide": extract(wide, shown.train.images),
        }
        run: dict[str, Any] = {"data": data, "start": start, "seed": seed}
        accuracy = {name: scored(h, sets.train) for name, h in features.items()}
        results.add(key, {**run, "accuracy": accuracy})


if __name__ == "__main__":
    main()
