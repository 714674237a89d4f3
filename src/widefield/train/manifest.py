"""The file `manifest.parquet` of a run: index, path and labels of every example."""

import hashlib
import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from annotated_types import Ge
from numpy.typing import NDArray

from widefield.core.errors import option
from widefield.core.files import write_atomically
from widefield.core.hardware import check_memory
from widefield.core.settings import Settings
from widefield.data import Dataset
from widefield.data.spec import parse
from widefield.data.table import EXCLUDED

_METADATA = b"widefield"


@dataclass(frozen=True, kw_only=True)
class Growth(Settings):
    """When examples were added to a run."""

    first: Annotated[int, Ge(1)]
    """Examples at the start, whose mean and deviation the encoder keeps."""
    epoch: Annotated[int, Ge(0)] = 0
    """Finished epochs when the others were added."""
    step: Annotated[int, Ge(0)] = 0
    """Steps taken by then."""
    warmup_steps: Annotated[int | None, Ge(0)] = None
    """Steps of the warm-up at that time; None before."""
    warmup_epochs: Annotated[float | None, Ge(0)] = None
    """Epochs of the warm-up with which the run began; None if it is not in the file."""


@dataclass(frozen=True)
class Manifest:
    """Index, path, digest and labels of every example, and the skipped files."""

    file: Path

    def write(self, dataset: Dataset, growth: Growth) -> None:
        """Write the examples and the skipped files."""
        n, padding = len(dataset), [None] * len(dataset.skipped)
        reasons = [*[None] * n, *[s.reason for s in dataset.skipped]]
        table = pa.table(
            {
                "index": pa.array([*range(n), *padding], pa.int64()),
                "path": [*dataset.paths, *[s.path for s in dataset.skipped]],
                "digest": pa.array([*dataset.digests().tolist(), *padding], pa.uint64()),
                "skipped": pa.array(reasons, pa.string()),
                **{
                    _column(task): pa.array([*y.tolist(), *padding], pa.int64())
                    for task, y in dataset.labels.items()
                },
            }
        ).replace_schema_metadata({_METADATA: json.dumps(asdict(growth))})
        write_atomically(self.file, lambda tmp: pq.write_table(table, tmp))

    def paths(self) -> list[str]:
        """Path of every example that the run is trained on, in order."""
        return self._read("path")["path"].to_pylist()

    def excluded(self) -> tuple[str, ...]:
        """Path of every example that was left out of the run on request."""
        if not self.file.exists():  # a run that was killed at its start
            return ()
        table = self._table("path", "skipped")
        return tuple(table.filter(pc.equal(table["skipped"], EXCLUDED))["path"].to_pylist())

    def digests(self) -> NDArray[np.uint64]:
        """Digest of every example that the run is trained on, uint64 [n]."""
        return np.asarray(self._read("digest")["digest"].to_numpy())

    def growth(self) -> Growth:
        metadata = self._read("path").schema.metadata or {}
        try:
            return Growth(**json.loads(metadata[_METADATA]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(CHANGED_MESSAGE.format(self.file)) from error

    def checksum(self) -> str:
        self._check_file()
        with self.file.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()

    def in_order(self, dataset: Dataset) -> Dataset:
        """Return the same examples, those of the manifest first and in its order."""
        known = self.paths()
        row = {path: i for i, path in enumerate(dataset.paths)}
        is_reordered = dataset.paths[: len(known)] != known
        if not is_reordered or len(row) < len(dataset) or not row.keys() >= set(known):
            return dataset
        check_memory(dataset.images.nbytes, "a copy of the examples in the run's order")
        new = row.keys() - set(known)
        # Rows of heads and orders of epochs go by the index, so known examples keep theirs.
        rows = [*(row[path] for path in known), *sorted(row[path] for path in new)]
        ordered = dataset.subset(np.array(rows, dtype=np.int64))
        return replace(ordered, skipped=dataset.skipped)

    def check_data(self, dataset: Dataset, *, allow_new: bool = False) -> int:
        """Check examples and labels against the manifest; return the number of new ones after it.

        The data are in the order of the manifest; new examples need `allow_new`.
        """
        columns = {task: _column(task) for task in dataset.labels}
        used = self._read("path", "digest", labels=columns.values())
        n = len(used) if allow_new else len(dataset)
        change = _first_change(
            list(zip(used["path"].to_pylist(), used["digest"].to_pylist(), strict=True)),
            list(zip(dataset.paths, dataset.digests().tolist(), strict=True))[:n],
        )
        for task, column in columns.items():
            if change is None and column not in used.column_names:
                change = f"there are labels of a task {task!r} now"
            elif change is None and used[column].to_pylist() != dataset.labels[task][:n].tolist():
                change = f"labels of task {task!r} differ"
        if change:
            only_new = not allow_new and set(used["path"].to_pylist()) < set(dataset.paths)
            hint = "restore it"
            if only_new:
                hint = f"add new examples with {option('resume', True)} and more {option('epochs')}"
            elif dataset.groups is not None and parse(dataset.spec).split is not None:
                hint = (
                    "leave out new groups, which can move others to the test split, or restore it"
                )
            raise ValueError(
                f"the data changed since the run began: {change}; {hint}, or go on from its "
                f"encoder in a new run: {option('init', self.file.parent)} with another "
                f"{option('out')}"
            )
        return len(dataset) - n

    def _read(self, *columns: str, labels: Collection[str] = ()) -> pa.Table:
        """Return columns of the examples of the run, and those of `labels` that it has."""
        table = self._table("index", *columns, optional=labels)
        used = table.filter(pc.is_valid(table["index"])).drop_columns(["index"])
        kinds = {"path": pa.types.is_string, "digest": pa.types.is_uint64}
        for name in used.column_names:
            column, is_type = used[name], kinds.get(name, pa.types.is_int64)
            if not is_type(column.type) or column.null_count:
                raise ValueError(
                    f"{self.file}: column {name!r} has the wrong type: restore the file"
                )
        return used

    def _table(self, *columns: str, optional: Collection[str] = ()) -> pa.Table:
        self._check_file()
        try:
            known = pq.read_schema(self.file).names
            more = [column for column in optional if column in known]
            return pq.read_table(self.file, columns=[*columns, *more])
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            reason = " ".join(str(error).split())[:80]
            raise ValueError(
                f"{self.file} is damaged or lacks a column ({reason}): restore it, or start a new "
                "run"
            ) from error

    def _check_file(self) -> None:
        if not self.file.is_file():
            raise ValueError(f"{self.file} is missing, the list of the run's examples: restore it")
        with self.file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            # A Parquet file ends in PAR1, and one that was cut off does not.
            file.seek(max(0, size - 4))
            if file.read() != b"PAR1":
                raise ValueError(CHANGED_MESSAGE.format(self.file))


CHANGED_MESSAGE = "{} was changed since the run began: restore it"

_RESERVED_COLUMNS = ("index", "path", "digest", "skipped")


def _column(task: str) -> str:
    """Return the column of a task: its name, with a prefix if that is reserved."""
    return f"label_{task}" if task in _RESERVED_COLUMNS or task.startswith("label_") else task


def _first_change(before: list[tuple[str, int]], now: list[tuple[str, int]]) -> str | None:
    """Return the first difference of two lists of (path, digest) in words; None if equal."""
    removed = sorted({path for path, _ in before} - {path for path, _ in now})
    new = sorted({path for path, _ in now} - {path for path, _ in before})
    if removed or new:
        named = ", ".join(
            [*(f"{p} is gone" for p in removed[:1]), *(f"{p} is new" for p in new[:1])]
        )
        return f"{named} ({len(before)} examples then, {len(now)} now)"
    other = [path for (path, old), (_, value) in zip(before, now, strict=True) if old != value]
    return f"{other[0]} has other pixels" if other else None
