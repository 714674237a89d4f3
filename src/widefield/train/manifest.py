"""Which example of a run has which index, and since when: `manifest.parquet`."""

import hashlib
import json
import os
from collections.abc import Collection
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from widefield.core.files import write_atomically
from widefield.core.memory import check_memory
from widefield.data import Dataset

_METADATA = b"widefield"


@dataclass(frozen=True, kw_only=True)
class Growth:
    """How many examples a run began with, and since when it has those of now."""

    first: int
    """Examples at the beginning; their mean and deviation stay the encoder's."""
    epoch: int = 0
    """Epochs that were finished before the others joined."""
    step: int = 0
    """Steps that had been taken by then."""
    warmup_steps: int | None = None
    """Steps of the warm-up as it was by then; None if nobody noted it."""


@dataclass(frozen=True)
class Manifest:
    """The file: index, path, digest and labels of every example, and which files were skipped."""

    file: Path

    def write(self, dataset: Dataset, growth: Growth) -> None:
        """Write which example has which index, and what was skipped."""
        n, absent = len(dataset), [None] * len(dataset.skipped)
        reasons = [*[None] * n, *[s.reason for s in dataset.skipped]]
        table = pa.table(
            {
                "index": pa.array([*range(n), *absent], pa.int64()),
                "path": [*dataset.paths, *[s.path for s in dataset.skipped]],
                "digest": pa.array([*dataset.digests().tolist(), *absent], pa.uint64()),
                "skipped": pa.array(reasons, pa.string()),
                **{
                    _column(task): pa.array([*y.tolist(), *absent], pa.int64())
                    for task, y in dataset.labels.items()
                },
            }
        ).replace_schema_metadata({_METADATA: json.dumps(asdict(growth))})
        write_atomically(self.file, lambda draft: pq.write_table(table, draft))

    def paths(self) -> list[str]:
        """Path of every example that the run is trained on, in order."""
        paths: list[str] = self._read("path")["path"].to_pylist()
        return paths

    def digests(self) -> NDArray[np.uint64]:
        """Digest of every example that the run is trained on, uint64 [n]."""
        return np.asarray(self._read("digest")["digest"].to_numpy())

    def growth(self) -> Growth:
        """Return since when the run has these examples.

        Raises:
            ValueError: the file is missing, or says it otherwise than a run writes it.
        """
        metadata = self._read("path").schema.metadata or {}
        try:
            growth = Growth(**json.loads(metadata[_METADATA]))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(CHANGED.format(self.file)) from error
        counts = [growth.first, growth.epoch, growth.step]
        if growth.warmup_steps is not None:
            counts.append(growth.warmup_steps)
        if any(type(count) is not int or count < 0 for count in counts) or growth.first < 1:
            raise ValueError(CHANGED.format(self.file))
        return growth

    def checksum(self) -> str:
        """Return the checksum of the file.

        Raises:
            ValueError: it is missing, or another one.
        """
        self._refuse_another()
        with self.file.open("rb") as file:
            return hashlib.file_digest(file, "blake2b").hexdigest()

    def in_order(self, dataset: Dataset) -> Dataset:
        """Return the same examples, those of the manifest first and in its order.

        Data that lack some of them come back as they are.

        Raises:
            ValueError: new examples stand among them, and a copy in order needs more memory than
                there is.
        """
        known = self.paths()
        row = {path: i for i, path in enumerate(dataset.paths)}
        moved = dataset.paths[: len(known)] != known
        if not moved or len(row) < len(dataset) or not row.keys() >= set(known):
            return dataset
        check_memory(dataset.images.nbytes, "a copy of the examples in the run's order")
        new = row.keys() - set(known)
        rows = [*(row[path] for path in known), *sorted(row[path] for path in new)]
        ordered = dataset.subset(np.array(rows, dtype=np.int64))
        return replace(ordered, skipped=dataset.skipped)

    def refuse_other(self, dataset: Dataset, *, may_grow: bool = False) -> int:
        """Make sure that every example and its labels are those of the manifest.

        Args:
            dataset: the examples, in the order of the manifest.
            may_grow: whether others may follow.

        Returns:
            how many others follow.

        Raises:
            ValueError: the data changed; the message names the first difference.
        """
        columns = {task: _column(task) for task in dataset.labels}
        used = self._read("path", "digest", labels=columns.values())
        n = len(used) if may_grow else len(dataset)
        change = _first_change(
            list(zip(used["path"].to_pylist(), used["digest"].to_pylist(), strict=True)),
            list(zip(dataset.paths, dataset.digests().tolist(), strict=True))[:n],
        )
        for task, column in columns.items():
            if change is None and column not in used.column_names:
                change = f"there are labels of a task {task!r} now"
            elif change is None and used[column].to_pylist() != dataset.labels[task][:n].tolist():
                change = f"labels of task {task!r} are others"
        if change:
            joins = not may_grow and set(used["path"].to_pylist()) < set(dataset.paths)
            remedy = "let new ones join with --resume and more --epochs" if joins else "restore it"
            raise ValueError(
                f"the data changed since the run began: {change}; "
                f"{remedy}, or start a new run with another --out"
            )
        return len(dataset) - n

    def _read(self, *columns: str, labels: Collection[str] = ()) -> pa.Table:
        """Return these columns of the examples that the run is trained on, with `labels` it has.

        Raises:
            ValueError: the manifest is missing, damaged or another file.
        """
        self._refuse_another()
        try:
            held = pq.read_schema(self.file).names
            columns = (*columns, *(column for column in labels if column in held))
            table = pq.read_table(self.file, columns=["index", *columns])
            used = table.filter(pc.fits(table["index"])).select(columns)
        except (pa.ArrowException, OSError, KeyError, ValueError) as error:
            reason = " ".join(str(error).split())[:80]
            raise ValueError(
                f"{self.file} is damaged or lacks a column ({reason}): restore it, or "
                "start a new run"
            ) from error
        kinds = {"path": pa.types.is_string, "digest": pa.types.is_uint64}
        for name in columns:
            column, fits = used[name], kinds.get(name, pa.types.is_int64)
            if not fits(column.type) or column.null_count:
                raise ValueError(
                    f"{self.file}: column {name!r} is not as a run writes it: restore it"
                )
        return used

    def _refuse_another(self) -> None:
        """Refuse what is no manifest, by its last bytes: quick, where a large file is another one.

        Raises:
            ValueError: it is missing, or does not end as a Parquet file.
        """
        if not self.file.is_file():
            raise ValueError(
                f"{self.file} is missing, which says what the run was trained on: restore it"
            )
        with self.file.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 4))
            if file.read() != b"PAR1":
                raise ValueError(CHANGED.format(self.file))


CHANGED = "{} was changed since the run began: restore it"

_OWN_COLUMNS = ("index", "path", "digest", "skipped")


def _column(task: str) -> str:
    """Return the manifest's column of a task: its name, if the manifest has no other use for it."""
    return f"label_{task}" if task in _OWN_COLUMNS or task.startswith("label_") else task


def _first_change(before: list[tuple[str, int]], now: list[tuple[str, int]]) -> str | None:
    """What differs first between two lists of (path, digest), in words."""
    gone = sorted({path for path, _ in before} - {path for path, _ in now})
    new = sorted({path for path, _ in now} - {path for path, _ in before})
    if gone or new:
        named = ", ".join([*(f"{p} is gone" for p in gone[:1]), *(f"{p} is new" for p in new[:1])])
        return f"{named} ({len(before)} examples then, {len(now)} now)"
    other = [path for (path, old), (_, digest) in zip(before, now, strict=True) if old != digest]
    return f"{other[0]} has other pixels" if other else None
