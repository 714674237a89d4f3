"""Tables of labels by path, from a CSV file or from memory.

The file `decisions.csv`, as the pages of `explore` and `classify` save it, has the columns path,
decision (keep, exclude or empty) and one for each task, with the labels after all changes.
`read_labels` takes the labels of the examples that are not excluded, `read_excluded` the others.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np

from widefield.core.names import printable
from widefield.data.examples import Examples
from widefield.data.labels.columns import TextColumn
from widefield.data.labels.files import (
    LABEL,
    PATH,
    checked_names,
    match_paths,
    no_column,
    path_column,
    read_csv,
)
from widefield.data.labels.text import (
    LARGEST_EXACT,
    kind_of_cells,
    merged_spellings,
    numbers_of,
    present_labels,
    text_of,
)
from widefield.data.table import Table, TargetKind, classes_note

DECISION, EXCLUDE = "decision", "exclude"
"""Column of a saved decision on each example, and the decision that leaves it out."""
_DECISIONS = ("keep", EXCLUDE)
_MAX_UNHINTED = 10
"""Distinct numbers among classes from which a note says how to take them for numbers, chosen by
hand."""
ColumnKind = Literal["class"] | TargetKind
"""What a column is taken for."""
_SUFFIXES: Mapping[str, ColumnKind] = {":class": "class", ":number": "number", ":labels": "labels"}
"""Ends of names of columns, which say what these are."""
_KEYS = ("x", "windows", "sounds", "audio", "sample_rate")
"""Keys of arrays in memory that are not tasks."""
_NO_CLASSES = {
    "number": "holds numbers, not classes, which only probe, audit and classify take",
    "labels": "holds several labels a cell, which only probe, audit and classify take",
}
_FORMATS = (
    "a .csv file, a table such as a pandas DataFrame with the columns path and label, a Series of "
    "labels indexed by path, or a mapping path -> label"
)


@runtime_checkable
class Frame(Protocol):
    """A table in memory, such as a pandas or polars DataFrame."""

    @property
    def columns(self) -> Any: ...
    def __getitem__(self, name: Any, /) -> Any: ...


@runtime_checkable
class Series(Protocol):
    """Labels indexed by path, such as a pandas Series."""

    def items(self) -> Iterable[tuple[Any, Any]]: ...


Labels = str | Path | Mapping[str, str] | Frame | Series
"""Input of `read_labels`."""


@dataclass(frozen=True, kw_only=True)
class LabelTable(Table):
    """The examples with a label, by their paths."""

    source: str
    """Name of the table in messages."""

    def of_examples(self, names: Sequence[str], base: str) -> Table:
        """Return the examples `names` of the folder `base` with their labels, -1 for none.

        A path is a name, an absolute path, relative to the working folder, or the last part of one
        name only, in any Unicode form and with slashes of either kind.
        """
        rows = np.flatnonzero(self.known().any(0)).tolist()
        paths = [self.names[row] for row in rows]
        name_of = match_paths(paths, names, base, self.source)
        unknown = sorted(set(paths) - name_of.keys())
        if unknown:
            raise ValueError(
                f"{len(unknown)} labeled files are not in the data, such as {unknown[0]!r}: name "
                f"them as embed does, for example {names[0]!r}, or delete the rows of files that "
                "are gone"
            )
        row_of = {name_of[path]: row for path, row in zip(paths, rows, strict=True)}
        if len(row_of) < len(paths):
            raise ValueError(f"{self.source} names one example by two paths: keep one of them")
        # An example without a label takes the row -1, the one that is appended.
        index = np.array([row_of.get(name, -1) for name in names], dtype=np.int64)
        labels = {task: np.append(ids, -1)[index] for task, ids in self.labels.items()}
        one_row = ((0, 1), (0, 0))
        targets = {
            task: replace(
                target, values=np.pad(target.values, one_row, constant_values=np.nan)[index]
            )
            for task, target in self.targets.items()
        }
        notes = [classes_note(task, ids, self.classes[task]) for task, ids in labels.items()]
        notes += [target.note(task, in_table=True) for task, target in targets.items()]
        table = Table(names=names, labels=labels, classes=self.classes, targets=targets)
        return table.with_notes(*self.notes, *notes)


def read_labels(
    labels: Labels, only: str | None = None, *, group: str | None = None, targets: bool = False
) -> LabelTable:
    """Read a table of labels; each column except `path` is a task.

    Empty cells, NA, nan, None, null and the like are missing labels, and so is -1 among integers
    from 0. Spellings that differ by spaces, case, Unicode form or a decimal .0 are one label.
    Columns without a name, such as the index that pandas writes, are ignored.

    Columns of numbers, and of cells such as a|b or ["a", "b"], are no classes, but can be groups;
    see `kind_of_cells` in `data.labels.text`. A name that ends in :class, :number or :labels says
    what the column is; this end is no part of the task.

    Args:
        labels: a .csv file; a table with a column `path` and others; a Series indexed by path; or
            path -> label.
        only: read only this task.
        group: read this column too, if there is one; see `data.groups`.
        targets: read numbers and several labels too, instead of leaving them out with a note.
    """
    source, columns, location = _read_columns(labels)
    # Suffixes first: `only`, `group` and the column of decisions are named without them.
    columns, kinds = _without_suffixes(columns, source)
    if only != DECISION:
        columns = _without_excluded(columns, only)
    if only is not None:
        columns = _select_columns(columns, only, group, source)
    if len(columns) == 1:
        raise no_column(source, LABEL)
    conflict = next((name for name in columns if name in _KEYS), None)
    if conflict is not None:
        raise ValueError(
            f"{source} has a column {conflict!r}, which is reserved for arrays of examples: "
            "rename it"
        )
    paths = _checked_paths(columns.pop(PATH), location)
    table, notes = LabelTable(source=source, names=paths), list[str]()
    for name, values in columns.items():
        column = _text_column(name, values, paths, location)
        task = column.task
        present = present_labels(column.counts(), task, notes)
        kind = "class" if task == group else kinds.get(task) or kind_of_cells(present) or "class"
        if kind == "class":
            class_of = merged_spellings(present, task, notes)
            _check_exact(values, task, location)
            table.labels[task], table.classes[task] = column.classes(class_of)
            if targets and task not in (group, *kinds) and _may_be_numbers(class_of):
                notes.append(
                    f"{task!r} is taken for classes; for numbers, name the column '{task}:number'"
                )
        elif targets and kind == "number":
            table.targets[task] = column.numbers(present)
        elif targets:
            table.targets[task] = column.label_sets(present, notes)
        elif task == only or len(columns) == 1:
            raise ValueError(f"{source}: {task!r} {_NO_CLASSES[kind]}: write classes")
        else:
            notes.append(f"{task!r} {_NO_CLASSES[kind]}: left out")
    are_left_out = len(table.labels) < len(columns)
    if not table.targets and (not table.labels or (are_left_out and [*table.labels] == [group])):
        raise ValueError(f"{source}: no column holds classes: write some")
    return table.with_notes(*(f"{source}: {note}" for note in notes))


def _read_columns(labels: Labels) -> tuple[str, dict[str, list[Any]], Callable[[int], str]]:
    """Return the name of a table, its columns, and a function that says where a row is."""
    if isinstance(labels, str | Path):
        source = printable(str(labels))
        columns, lines = read_csv(Path(labels), source)
        return source, columns, lambda row: f"{source} line {lines[row]}"
    return "labels", _columns_in_memory(labels), lambda row: f"labels row {row}"


def _columns_in_memory(labels: Frame | Series | Mapping[str, str]) -> dict[str, list[Any]]:
    if isinstance(labels, Frame):
        header = list(getattr(labels, "column_names", labels.columns))  # the name in pyarrow
        raw_names = {str(name).strip(): name for name in header}
        names = checked_names([str(name).strip() for name in header], "labels")
        path = path_column(names)
        if path is None:
            raise no_column("labels", PATH)
        return {PATH if name == path else name: _cells(labels[raw_names[name]]) for name in names}
    if not isinstance(labels, Mapping | Series):
        raise ValueError(f"cannot read labels from {type(labels).__name__}: give {_FORMATS}")
    if isinstance(labels, Mapping) and not isinstance(labels.get(PATH, ""), str):
        raise ValueError(f"labels are columns by their names, not labels by path: give {_FORMATS}")
    pairs = list(labels.items())
    return {PATH: [path for path, _ in pairs], LABEL: [label for _, label in pairs]}


def _cells(column: Any) -> list[Any]:
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


def _without_suffixes(
    columns: dict[str, list[Any]], source: str
) -> tuple[dict[str, list[Any]], dict[str, ColumnKind]]:
    """Return the columns without the suffixes of their names, and task -> kind for those."""
    kinds: dict[str, ColumnKind] = {}
    plain: dict[str, list[Any]] = {}
    for name, cells in columns.items():
        suffix = next((x for x in _SUFFIXES if name.endswith(x) and name != x), "")
        task = name.removesuffix(suffix)
        if task in plain:
            raise ValueError(f"{source} has two columns {task!r}: leave one of them out")
        plain[task] = cells
        if suffix:
            kinds[printable(task)] = _SUFFIXES[suffix]
    return plain, kinds


def is_decision(value: object) -> bool:
    """Return whether a cell of a column `decision` is keep, exclude or empty."""
    return value in _DECISIONS or text_of(value) == ""


def _without_excluded(columns: dict[str, list[Any]], only: str | None) -> dict[str, list[Any]]:
    """Return the columns without saved decisions, and without labels of excluded examples.

    The only task of such a table is the task `only`, whatever its name.
    """
    decisions = columns.get(DECISION)
    if decisions is None or not all(map(is_decision, decisions)):
        return columns  # there may be a task of this name
    kept = {
        name: [
            cell if name == PATH or decision != EXCLUDE else ""
            for cell, decision in zip(cells, decisions, strict=True)
        ]
        for name, cells in columns.items()
        if name != DECISION
    }
    if only is not None and only not in kept and len(kept) == 2:
        kept = {name if name == PATH else only: cells for name, cells in kept.items()}
    return kept


def _select_columns(
    columns: dict[str, list[Any]], task: str, group: str | None, source: str
) -> dict[str, list[Any]]:
    tasks = [name for name in columns if name != PATH]
    found = [name for name in tasks if printable(name) == task]
    found = found or [name for name in tasks if printable(name).lower() == task.lower()]  # Label
    if not tasks:
        return columns
    if len(found) != 1:
        named = ", ".join(map(printable, tasks))
        # The names of other tasks are the user's.
        hint = f"; rename one to {task!r}" if task == LABEL else ""
        raise ValueError(f"{source} has no column {task!r}: beside path it has {named}{hint}")
    kept = {PATH: columns[PATH], task: columns[found[0]]}
    return kept | {name: columns[name] for name in tasks if printable(name) == group}


def _checked_paths(paths: Iterable[Any], location: Callable[[int], str]) -> list[str]:
    found: dict[str, None] = {}
    for row, path in enumerate(paths):
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise ValueError(f"{location(row)}: {path!r} is not a path")
        if str(path) in found:
            raise ValueError(f"{location(row)}: {str(path)!r} is listed twice")
        found[str(path)] = None
    return list(found)


def _text_column(
    name: str, values: Iterable[Any], paths: Sequence[str], location: Callable[[int], str]
) -> TextColumn:
    texts = []
    for row, value in enumerate(values):
        text = text_of(value)
        if text is None:
            raise ValueError(
                f"{location(row)}: {paths[row]!r} has a {type(value).__name__} as its "
                f"{printable(name)}: give {_FORMATS}"
            )
        texts.append(text)
    return TextColumn.of(printable(name), texts)


def _check_exact(values: Iterable[Any], task: str, location: Callable[[int], str]) -> None:
    """Check that no class is a float so large that it may have been another whole number."""
    for row, value in enumerate(values):
        if isinstance(value, float) and LARGEST_EXACT <= abs(value) < np.inf:
            raise ValueError(
                f"{location(row)}: {task!r} is {value:.17g}, a float that may have been rounded to "
                "another id: give integers or text"
            )


def _may_be_numbers(labels: Iterable[str]) -> bool:
    """Return whether the classes are numbers, many of them or not whole ones, but for infinity."""
    finite = (text for text in labels if text.lstrip("+-").lower() not in ("inf", "infinity"))
    numbers = numbers_of(finite) or {}
    return len(numbers) > _MAX_UNHINTED or not all(map(float.is_integer, numbers.values()))


def read_excluded(decisions: Labels | None) -> tuple[str, ...]:
    """Return the paths that a table of decisions excludes; none without a table."""
    if decisions is None:
        return ()
    is_series = isinstance(decisions, Mapping | Series) and not isinstance(decisions, Frame)
    table = read_labels(decisions, only=None if is_series else DECISION)
    ((task, ids),) = table.labels.items()
    classes = table.classes[task]
    other = sorted(value for value in classes if not is_decision(value))
    if other:
        raise ValueError(
            f"{table.source}: {other[0]!r} is no decision: write keep or exclude, or leave it empty"
        )
    pairs = zip(table.names, ids.tolist(), strict=True)
    return tuple(path for path, k in pairs if k >= 0 and classes[k] == EXCLUDE)


def labeled(examples: Examples, table: LabelTable, base: str, *, unlabeled: bool) -> Examples:
    """Return the examples with their labels replaced by those of a table.

    `base` is the folder of the examples. Examples without a label of a task are kept as class -1
    if `unlabeled`, and dropped with a note otherwise.
    """
    found = table.of_examples(examples.names, base)
    old = {classes_note(task, ids, examples.classes[task]) for task, ids in examples.labels.items()}
    labeled_examples = replace(
        examples,
        labels=found.labels,
        classes=found.classes,
        targets=found.targets,
        notes=(*(note for note in examples.notes if note not in old), *found.notes),
    )
    rows = np.flatnonzero(found.known().all(0))
    n = len(examples.names)
    if unlabeled or len(rows) == n:
        return labeled_examples
    tasks = " and ".join(map(repr, (*found.labels, *found.targets)))
    if not len(rows):
        raise ValueError(f"{table.source} has no example with {tasks}: fill the empty cells")
    note = f"{n - len(rows)} of {n} examples have no {tasks} in {table.source}: left out"
    return labeled_examples.take(rows).with_notes(note)
