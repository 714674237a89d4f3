"""Exploration of data by features: neighbors, near-duplicates, outliers, clusters, labels."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.core.errors import input_errors
from widefield.core.files import checked_output
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import ImageSize, OnNote
from widefield.data import Dataset
from widefield.data.labels import Labels, read_labels
from widefield.data.labels.read import read_excluded
from widefield.data.open_options import OpenOptions
from widefield.data.quality import image_quality
from widefield.data.source import Data
from widefield.inference.features import FeatureKind
from widefield.inference.frozen import opened
from widefield.inference.open_encoder import EncoderSpec
from widefield.metrics import (
    Graph,
    Suspects,
    count_others,
    density_clusters,
    near_duplicates,
    neighbor_graph,
    outliers,
    suspected_labels,
    tsne_map,
    typical,
)
from widefield.metrics.groups import VOTERS
from widefield.metrics.tsne import MAP_NEIGHBORS
from widefield.report import write_page
from widefield.workflows.explore_page import explore_page, file_sizes
from widefield.workflows.explore_result import TABLE_FORMATS, TABLES, Exploration

# Both chosen by hand.
_MIN_OTHERS = 3
"""Fewest examples that each one can be compared with."""
_CLUSTER_IMAGES = 12
"""Images that represent a cluster."""


@input_errors
@describe_arguments
def explore(
    encoder: EncoderSpec,
    data: Data,
    *,
    labels: Labels | None = None,
    group: str | None = None,
    exclude: Labels | None = None,
    features: FeatureKind = "pooled",
    dim: int | None = None,
    max_examples: int | None = None,
    image_size: ImageSize | None = None,
    out: str | Path | None = None,
    tables: str | Path | None = None,
    overwrite: bool = False,
    seed: int = 0,
    quiet: bool = False,
    on_note: OnNote | None = None,
) -> Exploration:
    """Find clusters, near-duplicates, outliers and suspected labels, and draw a page of them.

    Args:
        data: four or more images or sounds, as for `pretrain`.
        labels: a `.csv` file in place of the labels of the data: column path, and one for each
            task. Examples without a label are included. In Python also a table, as `classify`
            takes it.
        group: examples that belong together, such as frames of a video: a column of the labels, a
            label array, folder:1 for the first folder of a path, or regex:PATTERN for what its
            first ( ) matches. Each example is compared with those of other groups alone; by default
            as in the run, for its data.
        tables: a folder for tables of the results, Parquet and CSV.
        seed: seed of the map.

    Example:
        >>> images = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
        >>> images[7] = images[3]
        >>> [group.tolist() for group in explore("pixels", {"x": images}).duplicates]
        [[3, 7]]
    """
    if out is not None:
        checked_output(out, (".html",), overwrite=overwrite)
    # Also the tables that this call may leave out: those of an earlier call are removed.
    if tables is not None:
        for name, suffix in product(TABLES, TABLE_FORMATS):
            checked_output(Path(tables, name + suffix), TABLE_FORMATS, overwrite=overwrite)
    table = None if labels is None else read_labels(labels, group=group)
    options = OpenOptions(
        labels=table,
        unlabeled=True,
        exclude=read_excluded(exclude),
        group=group,
        max_examples=max_examples,
    )
    extractor, dataset = opened(
        encoder, data, options, features=features, dim=dim, image_size=image_size, quiet=quiet
    )
    others = count_others(len(dataset), dataset.groups)
    if others < _MIN_OTHERS:
        needed = _MIN_OTHERS + 1 if dataset.groups is None else f"{_MIN_OTHERS} outside each group"
        raise ValueError(
            f"{dataset.spec} has {len(dataset)} {dataset.kind}: explore needs at least {needed}"
        )
    too_few = _tasks_with_few_labels(dataset)
    notes = (*extractor.notes, *dataset.notes, *too_few)
    extractor = extractor.ready(dataset, notes=notes, on_note=on_note, quiet=quiet)
    h = extractor.features(dataset.inputs, quiet=quiet)
    found = _explored(extractor.name, dataset, h, seed=seed)
    found = replace(found, notes=(*extractor.notes, *dataset.notes, *too_few))
    if out is not None:
        write_page(explore_page(found, seed=seed), out, overwrite=overwrite)
    if tables is not None:
        found.save_tables(tables)
    return found


def _explored(encoder: str, dataset: Dataset, h: Tensor, *, seed: int) -> Exploration:
    k = min(MAP_NEIGHBORS, count_others(len(dataset), dataset.groups))
    graph = neighbor_graph(h, k, groups=dataset.groups)
    positions = tsne_map(h, graph=graph, seed=seed).numpy()
    # The map spreads copies of an image, which belong into one cluster.
    duplicates = near_duplicates(graph)
    clusters = density_clusters(positions, duplicates)
    is_image = dataset.kind == "images"
    return Exploration(
        encoder=encoder,
        dataset=dataset,
        graph=graph,
        places=positions,
        clusters=clusters,
        typical=typical(h.cpu().numpy(), clusters, count=_CLUSTER_IMAGES),
        duplicates=duplicates,
        outliers=outliers(graph),
        quality=image_quality(dataset.images, file_sizes(dataset)) if is_image else {},
        suspects=_suspects(h, graph, dataset),
        notes=(),
    )


def _tasks_with_few_labels(dataset: Dataset) -> list[str]:
    """Return a note on each task whose labels cannot be compared with others."""
    outside = "" if dataset.groups is None else " outside its group"
    return [
        f"{task!r} has {(y >= 0).sum()} labels, which are not checked: each needs {_MIN_OTHERS} "
        f"others{outside}"
        for task, y in dataset.labels.items()
        if _labeled(y, dataset.groups)[1] < _MIN_OTHERS
    ]


def _labeled(
    y: NDArray[np.int64], groups: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], int]:
    """Return the labeled rows, and with how many others of them each can be compared."""
    rows = np.flatnonzero(y >= 0)
    return rows, count_others(len(rows), None if groups is None else groups[rows])


def _suspects(h: Tensor, graph: Graph, dataset: Dataset) -> dict[str, Suspects]:
    found, groups = {}, dataset.groups
    for task, y in dataset.labels.items():
        rows, others = _labeled(y, groups)
        if len(rows) == len(y):
            found[task] = suspected_labels(graph, y)
        elif others >= _MIN_OTHERS:
            # Neighbors without a label have no vote: the labeled ones have a graph of their own.
            labeled_h = h[torch.from_numpy(rows).to(h.device)]
            labeled_groups = None if groups is None else groups[rows]
            labeled_graph = neighbor_graph(labeled_h, min(VOTERS, others), groups=labeled_groups)
            suspects = suspected_labels(labeled_graph, y[rows])
            found[task] = replace(suspects, rows=rows[suspects.rows])
    return found
