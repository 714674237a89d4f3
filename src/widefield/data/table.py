"""What is known of the examples of a source besides their content, and which files are none."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from widefield.core.names import count_text, printable

TargetKind = Literal["number", "labels"]

BY_FOLDER = "classes, by folder: "
"""Beginning of the note on the task `class` of folders."""
LEFT_OUT = "columns without classes, left out: "
"""Beginning of the note on columns that are no tasks."""
_MAX_NAMED = 8
"""Classes named in a note, chosen by hand."""
# Chosen by hand: Python objects of a chunk are in memory at once.
_CHUNK = 65_536
EXCLUDED = "excluded"
"""Reason of an example that was left out on request."""
# Chosen by hand: a few damaged files are normal, and a wrong folder or format has more.
_MAX_SKIPPED = 0.05


@dataclass(frozen=True, slots=True)
class Skipped:
    """A file that could not be read or was excluded, and why."""

    path: str
    reason: str


def skipped_note(skipped: Sequence[Skipped]) -> list[str]:
    """Return a note with the number of unreadable files and the first of them."""
    if not skipped:
        return []
    first = skipped[0]
    return [
        f"{count_text(len(skipped), 'unreadable file')} skipped, the first "
        f"'{printable(first.path)}': {first.reason}"
    ]


def check_skipped(failed: Collection[Skipped], files: int) -> None:
    """Check that at most 5 % of the files failed."""
    if len(failed) > _MAX_SKIPPED * files:
        first = min(failed, key=lambda skipped: skipped.path)
        raise ValueError(
            f"{len(failed)} of {files} files cannot be read, more than {_MAX_SKIPPED:.0%}; "
            f"remove or repair them (first: '{first.path}': {first.reason})"
        )


class Names(Sequence[str]):
    """A sequence of names that takes the bytes of its text and 8 more for each of them."""

    def __init__(self, names: Iterable[str] | pa.Array | pa.ChunkedArray) -> None:
        if isinstance(names, pa.ChunkedArray):
            names = pa.concat_arrays(names.cast(pa.large_string()).chunks or [pa.array([], "str")])
        column: Any = names if isinstance(names, pa.Array) else pa.array(names, pa.large_string())
        self.column: pa.LargeStringArray = column.cast(pa.large_string())

    @classmethod
    def of_rows(cls, count: int) -> "Names":
        """Return "row 0", "row 1", ..."""
        numbers = pa.array(np.arange(count)).cast(pa.large_string())
        prefix, separator = (pa.scalar(text, pa.large_string()) for text in ("row", " "))
        return cls(pc.binary_join_element_wise(prefix, numbers, separator))

    def take(self, rows: NDArray[np.int64]) -> "Names":
        return Names(self.column.take(pa.array(rows)))

    def __len__(self) -> int:
        return len(self.column)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> "Names": ...
    def __getitem__(self, index: int | slice) -> "str | Names":
        if isinstance(index, slice):
            return Names(self.column[index])
        return str(self.column[int(index)].as_py())

    def __iter__(self) -> Iterator[str]:
        for first in range(0, len(self), _CHUNK):
            yield from self.column[first : first + _CHUNK].to_pylist()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Names):
            return bool(self.column.equals(other.column))
        return isinstance(other, list) and list(self) == other

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Sequence[str]) -> list[str]:
        return [*self, *other]

    def __repr__(self) -> str:
        return repr(list(self))


def take(names: Sequence[str], rows: NDArray[np.int64]) -> Names:
    return (names if isinstance(names, Names) else Names(names)).take(rows)


@dataclass(frozen=True, kw_only=True)
class Target:
    """A number of each example, or which of L labels it has."""

    values: NDArray[np.float64]
    """[n, 1] numbers, or [n, L] of 0 and 1; a row of NaN for an example without a target."""
    labels: tuple[str, ...] = ()
    """Names of the L labels; empty for a number."""

    @property
    def kind(self) -> TargetKind:
        return "labels" if self.labels else "number"

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which examples have a target, bool [n]."""
        known: NDArray[np.bool_] = ~np.isnan(self.values[:, 0])
        return known

    def subset(self, rows: NDArray[np.int64] | slice) -> "Target":
        return replace(self, values=self.values[rows])

    def only(self, columns: NDArray[np.int64]) -> "Target":
        return replace(
            self, values=self.values[:, columns], labels=tuple(self.labels[k] for k in columns)
        )

    def note(self, task: str, *, in_table: bool) -> str:
        """Return what a column of a table, or an array, was taken for, and how to change that."""
        missing = int((~self.known).sum())
        end = f"; {missing} examples without one" if missing else ""
        change = "; for classes, "
        change += f"name the column '{task}:class'" if in_table else "give integers or strings"
        if self.kind == "number":
            low, middle, high = np.quantile(self.values[self.known], (0, 0.5, 1))
            span = f"from {low:.4g} to {high:.4g}, median {middle:.4g}"
            return f"{task!r} is a number of each example, {span}{change}{end}"
        counts = [np.full(int(count), k) for k, count in enumerate(np.nansum(self.values, 0))]
        named = listed_classes(np.concatenate(counts).astype(np.int64), self.labels)
        return f"{task!r} has several labels an example: {named}{change}{end}"


@dataclass(frozen=True, kw_only=True)
class Table:
    """One row for each of n examples, in a stable order."""

    names: Sequence[str]
    """[n]; a name does not depend on the other examples."""
    labels: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    """Task -> class ids, int64 [n]; -1 for no label."""
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Task -> class names."""
    targets: dict[str, Target] = field(default_factory=dict)
    """Task -> numbers, or several labels, of each example."""
    groups: NDArray[np.int64] | None = None
    """Group of each example, int64 [n]; None if they are not grouped."""
    skipped: tuple[Skipped, ...] = ()
    """Rows of the source that are no examples: without an image, repeated, or cut off."""
    notes: tuple[str, ...] = ()

    def columns(self, rows: NDArray[np.int64]) -> dict[str, Any]:
        """Return the fields that have a value for each example, of these rows."""
        return {
            "names": take(self.names, rows),
            "labels": {task: ids[rows] for task, ids in self.labels.items()},
            "targets": {task: target.subset(rows) for task, target in self.targets.items()},
            "groups": None if self.groups is None else self.groups[rows],
        }

    def known(self) -> NDArray[np.bool_]:
        """Return which rows have a label or target of each task, bool [tasks, n]."""
        known = [ids >= 0 for ids in self.labels.values()]
        known += [target.known for target in self.targets.values()]
        return np.array(known, dtype=np.bool_).reshape(len(known), len(self.names))

    def with_notes(self, *notes: str) -> Self:
        return replace(self, notes=(*self.notes, *notes))


def lists_classes(note: str, task: str) -> bool:
    """Return whether a note lists the classes of a task, such as that of `classes_note`."""
    by_folder = task == "class" and note.startswith(BY_FOLDER)
    return by_folder or f"classes of {task!r}: " in note


def classes_note(task: str, ids: NDArray[np.int64], classes: Sequence[str]) -> str:
    """Return a note with the classes of a task, their numbers of examples, and those without."""
    missing = int((ids < 0).sum())
    end = f"; {missing} examples without a label" if missing else ""
    return f"classes of {task!r}: {listed_classes(ids, classes)}{end}"


def listed_classes(ids: NDArray[np.int64], classes: Sequence[str]) -> str:
    """Return the classes with their numbers of examples, of class ids [n]; -1 is none."""
    counts = np.bincount(ids[ids >= 0], minlength=len(classes)).tolist()
    parts = [f"{name} {count}" for name, count in zip(classes, counts, strict=True)]
    more = f" and {len(parts) - _MAX_NAMED} more" if len(parts) > _MAX_NAMED else ""
    return ", ".join(parts[:_MAX_NAMED]) + more
