"""Exploration of data by features: neighbors, near-duplicates, outliers, clusters, labels."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.core.files import checked_output, write_atomically
from widefield.core.input_errors import input_errors
from widefield.core.types import ImageSize, OnNote
from widefield.data import Dataset
from widefield.data.decisions import read_excluded
from widefield.data.labels import Labels, read_labels
from widefield.data.quality import image_quality
from widefield.data.source import Data
from widefield.inference.features import FeatureKind, send_notes
from widefield.inference.open_encoder import EncoderSpec, open_encoder
from widefield.inference.splits import own_group
from widefield.metrics import (
    Graph,
    Suspects,
    count_others,
    density_clusters,
    near_duplicates,
    neighbor_distance,
    neighbor_graph,
    outliers,
    suspected_labels,
    tsne_map,
    typical,
)
from widefield.metrics.groups import VOTERS
from widefield.metrics.tsne import MAP_NEIGHBORS
from widefield.report import write_page
from widefield.report.notebook import notebook_html
from widefield.workflows.explore_page import explore_page, file_sizes

TABLES = ("neighbors", "duplicates", "outliers", "clusters", "quality", "suspects")
_FORMATS = (".parquet", ".csv")
_MIN_OTHERS = 3
"""Fewest examples that each one can be compared with."""
_CLUSTER_IMAGES = 12
"""Images that represent a cluster."""
_TABLE_NEIGHBORS = 10
"""Neighbors of each image in the table."""


@dataclass(frozen=True, kw_only=True)
class Exploration:
    """Clusters, near-duplicates, outliers and suspected labels, as rows of `dataset`."""

    encoder: str
    dataset: Dataset
    graph: Graph
    """The nearest neighbors of each image."""
    places: NDArray[np.float32]
    """Coordinates of each image in the map, [n, 2]."""
    clusters: NDArray[np.int64]
    """Cluster of each image, 0 for the largest, -1 for none, [n]."""
    typical: list[NDArray[np.int64]]
    """The most typical images of each cluster."""
    duplicates: list[NDArray[np.int64]]
    """Groups of near-duplicates, the closest first."""
    outliers: NDArray[np.int64]
    """Images far from all others, the farthest first."""
    quality: Mapping[str, NDArray[np.int64]]
    """Kind, such as dark -> images of poor quality; empty for sounds and windows."""
    suspects: Mapping[str, Suspects]
    """Task -> labels that differ from those of the neighbors."""
    notes: tuple[str, ...]

    def checked(self, task: str) -> str:
        """Return which examples of a task were compared with their neighbors."""
        y, kind = self.dataset.labels[task], self.dataset.kind
        count = int((y >= 0).sum())
        return f"all {kind}" if count == len(y) else f"the {count:,} labeled {kind}"

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield explore --json` prints them."""
        return {
            "encoder": self.encoder,
            "data": self.dataset.spec,
            "examples": len(self.dataset),
            "clusters": len(self.typical),
            "in_no_cluster": int((self.clusters < 0).sum()),
            "duplicate_groups": len(self.duplicates),
            "duplicates": sum(map(len, self.duplicates)),
            "outliers": len(self.outliers),
            "quality": {name: len(rows) for name, rows in self.quality.items()},
            "suspected_labels": {
                task: {"count": len(found.rows), "neighbors_agree": found.agreement}
                for task, found in self.suspects.items()
            },
            "notes": list(self.notes),
        }

    def tables(self) -> dict[str, pa.Table]:
        """Return each of `TABLES` by its name; `suspects` is left out without labels."""
        paths = np.array(self.dataset.paths, dtype=object)
        k = min(_TABLE_NEIGHBORS, self.graph.k)
        grouped = [(i + 1, row) for i, rows in enumerate(self.duplicates) for row in rows]
        rank = {row: i + 1 for rows in self.typical for i, row in enumerate(rows.tolist())}
        n = range(len(paths))
        columns: dict[str, dict[str, Any]] = {
            "neighbors": {
                "path": np.repeat(paths, k),
                "rank": np.tile(np.arange(1, k + 1), len(paths)),
                "neighbor": paths[self.graph.index[:, :k].ravel()],
                "cosine": 1 - self.graph.distance[:, :k].ravel() ** 2 / 2,
            },
            "duplicates": {
                "group": pa.array([group for group, _ in grouped], pa.int64()),
                "path": pa.array([paths[row] for _, row in grouped], pa.string()),
            },
            "outliers": {
                "path": pa.array(paths[self.outliers], pa.string()),
                "distance": neighbor_distance(self.graph)[self.outliers],
            },
            "clusters": {
                "path": paths,
                "cluster": pa.array(self.clusters + 1, mask=self.clusters < 0),
                "typical": pa.array([rank.get(i) for i in n], pa.int64()),
                "x": self.places[:, 0],
                "y": self.places[:, 1],
            },
        }
        poor = [(name, row) for name, rows in self.quality.items() for row in rows]
        columns["quality"] = {
            "path": pa.array([paths[row] for _, row in poor], pa.string()),
            "kind": pa.array([name for name, _ in poor], pa.string()),
        }
        if self.suspects:
            columns["suspects"] = self._suspect_columns(paths)
        return {name: pa.table(table) for name, table in columns.items()}

    def _suspect_columns(self, paths: NDArray[np.object_]) -> dict[str, Any]:
        rows = [
            (task, paths[row], classes[y[row]], classes[named], float(share))
            for task, found in self.suspects.items()
            for classes, y in [(self.dataset.classes[task], self.dataset.labels[task])]
            for row, named, share in zip(found.rows, found.named, found.share, strict=True)
        ]
        names = ("task", "path", "label", "neighbors_say", "share")
        kinds = [pa.string()] * 4 + [pa.float64()]
        return {
            name: pa.array([row[i] for row in rows], kind)
            for i, (name, kind) in enumerate(zip(names, kinds, strict=True))
        }

    def save_tables(self, folder: str | Path) -> None:
        """Write each table to `folder` as Parquet and CSV, and remove those of an earlier call."""
        tables = self.tables()
        for name, table in tables.items():
            write_atomically(Path(folder, f"{name}.parquet"), partial(pq.write_table, table))
            write_atomically(Path(folder, f"{name}.csv"), partial(pyarrow.csv.write_csv, table))
        for name, suffix in product(set(TABLES) - tables.keys(), _FORMATS):
            Path(folder, name + suffix).unlink(missing_ok=True)

    def _repr_html_(self) -> str:
        """Return the numbers of what was found as a table, for Jupyter."""
        found = self.to_json()
        names = ("clusters", "duplicate_groups", "outliers")
        rows = [[name.replace("_", " "), str(found[name])] for name in names]
        rows += [
            [f"labels of {task} to check", str(info["count"])]
            for task, info in found["suspected_labels"].items()
        ]
        title = f"{self.encoder} on {len(self.dataset):,} {self.dataset.kind}"
        return notebook_html(title, ["", "number"], rows, self.notes)


@input_errors
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
        encoder: a run's folder, a file of weights, `timm:NAME`, `torchvision:NAME`, `random` or
            `pixels`. In Python also a module; it is never changed.
        data: four or more images or sounds, as for `pretrain`.
        labels: a `.csv` file in place of the labels of the data: column path, and one for each
            task. Examples without a label are included. In Python also a table, as `classify`
            takes it.
        group: examples that belong together, such as frames of a video: a column of the labels, a
            label array, folder:1 for the first folder of a path, or regex:PATTERN for what its
            first ( ) matches. Each example is compared with those of other groups alone; by default
            as in the run, for its data.
        exclude: a `.csv` file with the columns path and decision, as the page saves it; examples
            with the decision exclude are left out. In Python also a table or path -> decision.
        features: pooled, wide for these and directions of earlier stages and of the input,
            feature-map for those before pooling, or projected for those after the projector of the
            run.
        dim: width of wide features; default: see `fit_readout`.
        max_examples: take a class-balanced first N examples.
        image_size: side of square images, or HEIGHTxWIDTH, for an encoder that no run trained; by
            default the size of the encoder, or of the data.
        out: an `.html` file, which loads no other files.
        tables: a folder for tables of the results, Parquet and CSV.
        overwrite: replace existing files.
        seed: seed of the map.
        quiet: show no progress.
        on_note: called before the work with each note on the data and the encoder, such as `print`.

    Raises:
        ValueError: invalid input; the message names the remedy.

    Example:
        >>> images = np.random.default_rng(0).integers(0, 256, (30, 8, 8, 3), dtype=np.uint8)
        >>> images[7] = images[3]
        >>> [group.tolist() for group in explore("pixels", {"x": images}).duplicates]
        [[3, 7]]
    """
    if out is not None:
        checked_output(out, (".html",), overwrite=overwrite)
    if tables is not None:
        for name, suffix in product(TABLES, _FORMATS):
            checked_output(Path(tables, name + suffix), _FORMATS, overwrite=overwrite)
    table = None if labels is None else read_labels(labels, group=group)
    excluded = read_excluded(exclude)
    extractor = open_encoder(encoder, features, dim=dim).at_size(image_size)
    group = own_group(extractor, data, group, labels=table)
    dataset = extractor.open(
        data,
        labels=table,
        exclude=excluded,
        unlabeled=True,
        group=group,
        max_examples=max_examples,
        quiet=quiet,
    )
    others = count_others(len(dataset), dataset.groups)
    if others < _MIN_OTHERS:
        needed = _MIN_OTHERS + 1 if dataset.groups is None else f"{_MIN_OTHERS} outside each group"
        raise ValueError(
            f"{dataset.spec} has {len(dataset)} {dataset.kind}: explore needs at least {needed}"
        )
    too_few = [
        f"{task!r} has {(y >= 0).sum()} labels, which are not checked: each needs {_MIN_OTHERS} "
        f"others{'' if dataset.groups is None else ' outside its group'}"
        for task, y in dataset.labels.items()
        if _labeled(y, dataset.groups)[1] < _MIN_OTHERS
    ]
    extractor.check(dataset)
    send_notes((*extractor.notes, *dataset.notes, *too_few), on_note)
    extractor = extractor.with_readout(dataset, quiet=quiet)
    h = extractor.features(dataset.inputs, quiet=quiet)
    graph = neighbor_graph(h, min(MAP_NEIGHBORS, others), groups=dataset.groups)
    places = tsne_map(h, graph=graph, seed=seed).numpy()
    duplicates = near_duplicates(graph)
    clusters = density_clusters(places, duplicates)
    suspects = _suspects(h, graph, dataset.labels, dataset.groups)
    found = Exploration(
        encoder=extractor.name,
        dataset=dataset,
        graph=graph,
        places=places,
        clusters=clusters,
        typical=typical(h.cpu().numpy(), clusters, count=_CLUSTER_IMAGES),
        duplicates=duplicates,
        outliers=outliers(graph),
        quality={}
        if dataset.kind != "images"
        else image_quality(dataset.images, file_sizes(dataset)),
        suspects=suspects,
        notes=(*extractor.notes, *dataset.notes, *too_few),
    )
    if out is not None:
        write_page(explore_page(found, seed=seed), out, overwrite=overwrite)
    if tables is not None:
        found.save_tables(tables)
    return found


def _labeled(
    y: NDArray[np.int64], groups: NDArray[np.int64] | None
) -> tuple[NDArray[np.int64], int]:
    """Return the labeled rows, and with how many others of them each can be compared."""
    rows = np.flatnonzero(y >= 0)
    return rows, count_others(len(rows), None if groups is None else groups[rows])


def _suspects(
    h: Tensor,
    graph: Graph,
    labels: Mapping[str, NDArray[np.int64]],
    groups: NDArray[np.int64] | None,
) -> dict[str, Suspects]:
    """Return the labels of each task that differ from those of labeled neighbors."""
    found = {}
    for task, y in labels.items():
        rows, others = _labeled(y, groups)
        if len(rows) == len(y):
            found[task] = suspected_labels(graph, y)
        elif others >= _MIN_OTHERS:
            labeled_h = h[torch.from_numpy(rows).to(h.device)]
            labeled_graph = neighbor_graph(
                labeled_h,
                min(VOTERS, others),
                groups=None if groups is None else groups[rows],
            )
            suspects = suspected_labels(labeled_graph, y[rows])
            found[task] = replace(suspects, rows=rows[suspects.rows])
    return found
