"""Processor seconds and preserved neighborhoods of the map of `explore`, by its iterations.

    python benchmarks/map_cost.py RUN DATA --json benchmarks/results/map_cost.json
    python benchmarks/map_cost.py pixels DATA --max-examples 20000 --json ...

For each number of iterations, all from the same exact neighbors: the mean percentage of the 10 and
of the 30 nearest neighbors that are among as many nearest ones of the map, and the accuracy of a
label from the 10 nearest labels of the map. A second call adds its data to the file.
"""

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from scipy.stats import mode

from widefield.core.hardware import choose_device, machine
from widefield.inference.open_encoder import open_encoder
from widefield.metrics import graph_overlap, neighbor_graph, tsne_map
from widefield.metrics.tsne import ITERATIONS, MAP_NEIGHBORS

COMMAND = "python benchmarks/map_cost.py ENCODER DATA --json benchmarks/results/map_cost.json"
SCHEDULES = ((250, 500), ITERATIONS, (60, 200))
"""Iterations with and without early exaggeration; the first are openTSNE's own."""
VOTERS, WIDER = 10, 30


def measured(h: torch.Tensor, y: NDArray[np.int64]) -> dict[str, dict[str, float]]:
    """Return cost and quality of the map of h [n, D] with labels [n], by its iterations."""
    graph = neighbor_graph(h, MAP_NEIGHBORS)
    found = {}
    for early, late in SCHEDULES:
        began = time.process_time()
        places = tsne_map(h, graph=graph, iterations=(early, late)).numpy()
        seconds = time.process_time() - began
        near = cKDTree(places).query(places, WIDER + 1)[1][:, 1:]
        found[f"{early} + {late}"] = {
            "cpu_seconds": round(seconds, 1),
            **{
                f"kept_of_{k}": _percent(
                    graph_overlap(*(torch.from_numpy(x[:, :k]) for x in (near, graph.index)))
                )
                for k in (VOTERS, WIDER)
            },
            "label_accuracy": _percent((mode(y[near[:, :VOTERS]], axis=1).mode == y).mean()),
        }
        print(early, late, found[f"{early} + {late}"], flush=True)
    return found


def _percent(share: float) -> float:
    return round(100 * float(share), 2)


def main() -> None:
    """Measure the map of one data set, and keep the numbers."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("encoder")
    parser.add_argument("data", type=Path)
    parser.add_argument("--max-examples", type=int)
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    result: dict[str, Any] = {"runs": {}}
    if args.json.exists():
        result = json.loads(args.json.read_text())
    result |= {"command": COMMAND, "machine": machine(choose_device("cpu"))}
    result["threads"] = torch.get_num_threads()
    extractor = open_encoder(args.encoder)
    dataset = extractor.open(args.data, max_examples=args.max_examples, quiet=True)
    (y,) = dataset.labels.values()
    h = extractor.features(dataset.inputs)
    features = "pixels" if args.encoder == "pixels" else "features of a run"
    name = f"{args.data.stem}, {features}"
    result["runs"][name] = {"examples": len(h), "maps": measured(h, y)}
    args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
