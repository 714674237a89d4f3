"""Write the features of every example, with index, path and labels."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from widefield.core.errors import input_errors
from widefield.core.files import check_folder_name, checked_output, write_atomically
from widefield.core.shared_arguments import describe_arguments
from widefield.core.types import ImageSize, OnNote
from widefield.data.open_options import OpenOptions
from widefield.data.source import Data
from widefield.data.table import Target
from widefield.inference.features import FeatureKind
from widefield.inference.frozen import opened
from widefield.inference.open_encoder import EncoderSpec
from widefield.metrics.graph import load_faiss
from widefield.report.tables import ResultTable, TabularResult

_FORMATS = (".npz", ".parquet")
INDEX_FILES = ("index.faiss", "rows.parquet")


@dataclass(frozen=True, kw_only=True, repr=False)
class Embedding(TabularResult):
    """Features of every example, in the data's stable order."""

    features: np.ndarray
    """float32 [n, D]."""
    index: np.ndarray
    """int64 [n], 0 .. n-1."""
    paths: list[str]
    labels: dict[str, np.ndarray]
    """Class ids of each task, int64 [n]; -1 for no label."""
    classes: dict[str, tuple[str, ...]]
    targets: dict[str, Target] = field(default_factory=dict)
    """Numbers, or several labels, of each example."""
    notes: tuple[str, ...] = ()
    """Which weights these are, and what was skipped in reading the images."""

    def __dlpack__(self, **options: Any) -> Any:
        """Return the features as DLPack, for `torch.from_dlpack`, without a copy.

        Example:
            >>> import torch
            >>> torch.from_dlpack(embed("random", "photos:test", max_examples=4)).shape
            torch.Size([4, 128])
        """
        return self.features.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[Any, int]:
        """Return the device, which is the CPU."""
        return self.features.__dlpack_device__()

    def tables(self) -> list[ResultTable]:
        """Return the shape and the tasks."""
        n, dim = self.features.shape
        rows = [[task, str(len(names))] for task, names in self.classes.items()]
        for task, target in self.targets.items():
            rows.append([task, f"{len(target.labels)} labels" if target.labels else "a number"])
        columns = ["task", "classes"] if rows else []
        return [ResultTable(title=f"{n:,} x {dim} features", columns=columns, rows=rows)]

    def to_json(self) -> dict[str, Any]:
        """Return the shape, the tasks and the notes."""
        n, dim = self.features.shape
        tasks = [*self.labels, *self.targets]
        return {"examples": n, "dim": dim, "tasks": tasks, "notes": [*self.notes]}

    def save(self, path: str | Path) -> None:
        """Write `.npz` (features, index, path, one array a task) or `.parquet` (a row each).

        A task of classes is `label_TASK`, one of numbers `number_TASK`, and one of several labels
        `labels_TASK`: lists of names, or, in a `.npz` file, 0 and 1 of each of `classes_TASK`.
        Missing ones are null, or -1 and NaN.

        A name without suffix is a folder: `index.faiss` has the normalized features, for search by
        inner product, and `rows.parquet` the other columns of each row.
        """
        path = Path(path)
        _check_output(path, overwrite=True)
        if path.suffix:
            write = self._write_npz if path.suffix == ".npz" else self._write_parquet
            write_atomically(path, write)
        else:
            self._write_index(path)

    def _write_npz(self, path: Path) -> None:
        labels = {f"label_{task}": y for task, y in self.labels.items()}
        names = {f"classes_{task}": np.array(c) for task, c in self.classes.items()}
        for task, target in self.targets.items():
            if target.kind == "number":
                labels[f"number_{task}"] = target.values[:, 0]
            else:
                labels[f"labels_{task}"] = target.values
                names[f"classes_{task}"] = np.array(target.labels)
        columns = {"features": self.features, "index": self.index, "path": np.array(self.paths)}
        with path.open("wb") as f:
            np.savez(f, **columns, **labels, **names)  # type: ignore[arg-type]

    def _write_parquet(self, path: Path) -> None:
        features = pa.FixedSizeListArray.from_arrays(
            pa.array(self.features.ravel()), self.features.shape[1]
        )
        pq.write_table(pa.table({**self._columns(), "features": features}), path)

    def _columns(self) -> dict[str, Any]:
        columns: dict[str, Any] = {"index": self.index, "path": self.paths}
        for task, y in self.labels.items():
            names = self.classes[task]
            columns[f"label_{task}"] = pa.array(
                [None if k < 0 else names[k] for k in y.tolist()], pa.string()
            )
        for task, target in self.targets.items():
            if target.kind == "number":
                columns[f"number_{task}"] = pa.array(target.values[:, 0], from_pandas=True)
            else:
                columns[f"labels_{task}"] = pa.array(_names(target), pa.list_(pa.string()))
        return columns

    def _write_index(self, folder: Path) -> None:
        faiss = load_faiss()
        # A copy, because faiss normalizes in place.
        unit = self.features.copy()
        faiss.normalize_L2(unit)
        index = faiss.IndexFlatIP(unit.shape[1])
        index.add(unit)
        rows = pa.table(self._columns())
        index_file, rows_file = (folder / name for name in INDEX_FILES)
        # The index last: a folder with one is complete.
        write_atomically(rows_file, lambda path: pq.write_table(rows, path))
        write_atomically(index_file, lambda path: faiss.write_index(index, str(path)))


def _names(target: Target) -> list[list[str] | None]:
    """Return the labels of each example; None where they are missing."""
    labels = np.array(target.labels, dtype=object)
    return [
        labels[has > 0].tolist() if known else None
        for has, known in zip(target.values, target.known, strict=True)
    ]


@input_errors
@describe_arguments
def embed(
    encoder: EncoderSpec,
    data: Data,
    *,
    features: FeatureKind = "pooled",
    dim: int | None = None,
    max_examples: int | None = None,
    image_size: ImageSize | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    quiet: bool = False,
    on_note: OnNote | None = None,
) -> Embedding:
    """Compute the features of every example, and write them with index, path and labels.

    They are computed in float32, whatever the precision of training.

    Args:
        out: a `.npz` or `.parquet` file, or, without a suffix, a folder for an index of faiss
            (pip install 'widefield[faiss]').

    Example:
        >>> embed("random", "photos:test", max_examples=4).features.shape
        (4, 128)
    """
    if out is not None:
        _check_output(Path(out), overwrite=overwrite)
    extractor, dataset = opened(
        encoder,
        data,
        OpenOptions(max_examples=max_examples, unlabeled=True),
        features=features,
        dim=dim,
        image_size=image_size,
        quiet=quiet,
    )
    extractor = extractor.ready(dataset, on_note=on_note, quiet=quiet)
    embedding = Embedding(
        features=extractor.features(dataset.inputs, quiet=quiet, precision="32").cpu().numpy(),
        index=np.arange(len(dataset)),
        paths=list(dataset.paths),
        labels=dataset.labels,
        classes=dataset.classes,
        targets=dataset.targets,
        notes=extractor.notes + dataset.notes,
    )
    if out is not None:
        embedding.save(out)
    return embedding


def _check_output(path: Path, *, overwrite: bool) -> None:
    if path.suffix not in ("", *_FORMATS):
        raise ValueError(
            f"cannot write {path.name}: its suffix must be .npz or .parquet, or none for a folder "
            "with an index of faiss"
        )
    if path.suffix:
        checked_output(path, _FORMATS, overwrite=overwrite)
        return
    check_folder_name(path)
    load_faiss()
    for name in INDEX_FILES:
        checked_output(path / name, (Path(name).suffix,), overwrite=overwrite)
