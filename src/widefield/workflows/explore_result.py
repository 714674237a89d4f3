"""Results of an exploration, and their tables."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from widefield.core.files import write_atomically
from widefield.data import Dataset
from widefield.metrics import Graph, Suspects, neighbor_distance
from widefield.report.tables import ResultTable, TabularResult, percent

TABLES = ("neighbors", "duplicates", "outliers", "clusters", "quality", "suspects")
TABLE_FORMATS = (".parquet", ".csv")
# As many as the distance of an outlier is the mean of (metrics/groups.py).
_TABLE_NEIGHBORS = 10
"""Neighbors of each image in the table."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Exploration(TabularResult):
    """Clusters, near-duplicates, outliers and suspected labels, as rows of `dataset`."""

    encoder: str
    dataset: Dataset
    graph: Graph
    places: NDArray[np.float32]
    """Coordinates of each image in the map, [n, 2]."""
    clusters: NDArray[np.int64]
    """Cluster of each image, 0 for the largest, -1 for none, [n]."""
    typical: list[NDArray[np.int64]]
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

    def commonest(self, task: str) -> float:
        """Return the share of the most frequent class among the labels of a task."""
        y = self.dataset.labels[task]
        return float(np.bincount(y[y >= 0]).max() / (y >= 0).sum())

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
                task: {
                    "count": len(found.rows),
                    "neighbors_agree": found.agreement,
                    "commonest_class": self.commonest(task),
                }
                for task, found in self.suspects.items()
            },
            "notes": list(self.notes),
        }

    def tables(self) -> list[ResultTable]:
        """Return the numbers of what was found."""
        found = {
            "clusters": len(self.typical),
            "groups of near-duplicates": len(self.duplicates),
            "outliers": len(self.outliers),
            **{f"{name} {self.dataset.kind}": len(rows) for name, rows in self.quality.items()},
            **{f"labels of {task} to check": len(s.rows) for task, s in self.suspects.items()},
        }
        return [
            ResultTable(
                title=f"{self.encoder} on {len(self.dataset):,} {self.dataset.kind}",
                columns=["found", "number"],
                rows=[[name, f"{count:,}"] for name, count in found.items()],
                lines=[
                    f"kNN accuracy of {task} {percent(suspects.agreement)} % on "
                    f"{self.checked(task)}, {percent(self.commonest(task))} % of the commonest "
                    "class: the lower, the weaker the evidence on its labels"
                    for task, suspects in self.suspects.items()
                ],
            )
        ]

    def data_tables(self) -> dict[str, pa.Table]:
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
        low_quality = [(name, row) for name, rows in self.quality.items() for row in rows]
        columns["quality"] = {
            "path": pa.array([paths[row] for _, row in low_quality], pa.string()),
            "kind": pa.array([name for name, _ in low_quality], pa.string()),
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
        tables = self.data_tables()
        for name, table in tables.items():
            write_atomically(Path(folder, f"{name}.parquet"), partial(pq.write_table, table))
            write_atomically(Path(folder, f"{name}.csv"), partial(pyarrow.csv.write_csv, table))
        for name, suffix in product(set(TABLES) - tables.keys(), TABLE_FORMATS):
            Path(folder, name + suffix).unlink(missing_ok=True)
