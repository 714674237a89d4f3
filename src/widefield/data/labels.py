"""Tables of labels by path, from a CSV file or from memory."""

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from widefield.core.names import printable
from widefield.data.examples import Examples
from widefield.data.label_files import LABEL, PATH, checked_names, no_column, path_column, read_csv
from widefield.data.label_names import merged_spellings, nfc, present_labels, text_of
from widefield.data.notes import listed_classes
from widefield.data.targets import (
    Cell,
    Target,
    TargetKind,
    kind_of_cells,
    numbers_of,
    separator_of,
    target_of,
)

DECISION, EXCLUDE = "decision", "exclude"
"""Column of a saved decision on each example, and the decision that leaves it out."""
_DECISIONS = ("keep", EXCLUDE)
_HINTED = 10
"""Distinct numbers among classes from which a note says how to take them for numbers."""
_SUFFIXES: Mapping[str, Literal["class"] | TargetKind] = {
    ":class": "class",
    ":number": "number",
    ":labels": "labels",
}
"""End of the name of a column -> what it is taken for."""
_KEYS = ("x", "windows", "sounds", "audio", "sample_rate")
"""Keys of arrays in memory that are not tasks."""
_FORMATS = (
    "a .csv file, a table such as a pandas DataFrame with the columns path and label, a Series of "
    "labels indexed by path, or a mapping path -> label"
)


@runtime_checkable
class Frame(Protocol):
    """A table in memory, such as a pandas or polars DataFrame."""

    @property
    def columns(self) -> Any:
        """Names of the columns."""

    def __getitem__(self, name: Any, /) -> Any:
        """Return one column."""


@runtime_checkable
class Series(Protocol):
    """Labels indexed by path, such as a pandas Series."""

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return each path with its label."""


Labels = str | Path | Mapping[str, str] | Frame | Series
"""Input of `read_labels`."""


@dataclass(frozen=True, kw_only=True)
class LabelTable:
    """Labels of some examples, for one or several tasks."""

    source: str
    """Name of the table in messages."""
    tasks: Mapping[str, Mapping[str, str]]
    """Task -> path -> label; unlabeled examples are missing."""
    targets: Mapping[str, Mapping[str, Cell]] = field(default_factory=dict)
    """Task -> path -> number or labels of an example, for what is not one class of each."""
    notes: tuple[str, ...] = ()
    """What was read as missing, merged or left out."""

    def with_names(self, names: Sequence[str], base: str) -> "LabelTable":
        """Return the same labels, each path replaced by one of the `names` of the folder `base`.

        A path is a name, an absolute path, relative to the working folder, or the last part of one
        name only, in any Unicode form and with slashes of either kind.

        Raises:
            ValueError: a path matches no example or two, or two paths match the same one.

        Example:
            >>> table = read_labels({"photos/cat/0.png": "cat"})
            >>> table.with_names(["cat/0.png"], "./photos").tasks
            {'label': {'cat/0.png': 'cat'}}
        """
        name_of = self.names_in(names, base)
        unknown = sorted(self._paths() - name_of.keys())
        if unknown:
            raise ValueError(
                f"{len(unknown)} labeled files are not in the data, such as {unknown[0]!r}: name "
                f"them as embed does, for example {names[0]!r}, or delete the rows of files that "
                "are gone"
            )

        def renamed(columns: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
            return {t: {name_of[path]: x for path, x in c.items()} for t, c in columns.items()}

        table = replace(self, tasks=renamed(self.tasks), targets=renamed(self.targets))
        for task, by_path in {**self.tasks, **self.targets}.items():
            if len({**table.tasks, **table.targets}[task]) < len(by_path):
                raise ValueError(f"{self.source} names one example by two paths: keep one of them")
        return table

    def names_in(self, names: Sequence[str], base: str) -> dict[str, str]:
        """Return path -> name of the examples `names` of the folder `base` for paths with one."""
        known, paths = set(names), self._paths()
        if paths <= known:
            return {path: path for path in paths}
        return self._match_paths(base, paths, known)

    def _paths(self) -> set[str]:
        """Return the paths with a label or a target."""
        columns = (*self.tasks.values(), *self.targets.values())
        return {path for by_path in columns for path in by_path}

    def _match_paths(self, base: str, paths: Iterable[str], known: set[str]) -> dict[str, str]:
        """Return path -> name for the paths that match an example."""
        folder = os.path.expanduser(base)
        folders = (os.path.abspath(folder), os.path.realpath(folder))
        name_of: dict[str, str] = {}
        forms: dict[str, set[str]] = defaultdict(set)
        last_parts: dict[str, set[str]] = defaultdict(set)
        for name in known:
            forms[nfc(name)].add(name)
            last_parts[nfc(name).rsplit("/", 1)[-1]].add(name)
        for given in paths:
            path = given if given in known else given.replace("\\", "/").strip()
            absolute_path = os.path.abspath(os.path.expanduser(path))
            candidates = [path, os.path.normpath(path)]
            candidates += [os.path.relpath(absolute_path, root) for root in folders]
            found = known.intersection(candidates)
            found = found or {name for text in candidates for name in forms.get(nfc(text), set())}
            matches = sorted(found or last_parts.get(nfc(path), set()))
            if len(matches) > 1:
                raise ValueError(
                    f"{self.source}: {path!r} means {matches[0]!r} or {matches[1]!r}: give paths "
                    "relative to the folder of the data"
                )
            if matches:
                name_of[given] = matches[0]
        return name_of

    def ids(self, names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
        """Return the class ids of each task, int64 [n]; -1 for no label.

        Example:
            >>> read_labels({"a": "cat", "c": "ant"}).ids(["a", "b", "c"])["label"].tolist()
            [1, -1, 0]
        """
        ids, classes = {}, self.classes()
        for task, by_path in self.tasks.items():
            number = {name: k for k, name in enumerate(classes[task])}
            task_ids = [number[by_path[name]] if name in by_path else -1 for name in names]
            ids[task] = np.array(task_ids, dtype=np.int64)
        return ids

    def target_values(self, names: Sequence[str]) -> dict[str, Target]:
        """Return the target of each task that has no classes, of the examples `names`."""
        return {task: target_of(cells, names) for task, cells in self.targets.items()}

    def notes_on(self, ids: Mapping[str, NDArray[np.int64]]) -> tuple[str, ...]:
        """Return the notes, and for each task its classes with counts; `ids` are those of `ids`."""
        notes = list(self.notes)
        for task, names in self.classes().items():
            missing = int((ids[task] < 0).sum())
            unlabeled = f"; {missing} examples without a label" if missing else ""
            notes.append(f"classes of {task!r}: {listed_classes(ids[task], names)}{unlabeled}")
        return tuple(notes)

    def classes(self) -> dict[str, tuple[str, ...]]:
        """Return the class names of each task, sorted."""
        return {task: tuple(sorted(set(by_path.values()))) for task, by_path in self.tasks.items()}


def read_labels(
    labels: Labels, only: str | None = None, *, group: str | None = None, targets: bool = False
) -> LabelTable:
    """Read a table of labels; each column except `path` is a task.

    Empty cells, NA, nan, None, null and the like are missing labels, and so is -1 among integers
    from 0. Spellings that differ by spaces, case, Unicode form or a decimal .0 are one label.
    Columns without a name, such as the index that pandas writes, are ignored.

    Columns of numbers, and of cells such as a|b or ["a", "b"], are no classes, but can be groups;
    see `data.targets`. A name that ends in :class, :number or :labels says what the column is; this
    end is no part of the task.

    Args:
        labels: a .csv file; a table with a column `path` and others; a Series indexed by path; or
            path -> label.
        only: read only this task.
        group: read this column too, if there is one; see `data.groups`.
        targets: read numbers and several labels too, instead of leaving them out with a note.

    Raises:
        ValueError: the input has another type, cannot be read, lacks a column, or repeats a path;
            without `targets` also where nothing else is left.

    Example:
        >>> read_labels({"cat/0.png": "cat", "1.png": 7}).tasks
        {'label': {'cat/0.png': 'cat', '1.png': '7'}}
    """
    source, lines = "labels", None
    if isinstance(labels, str | Path):
        source = printable(str(labels))
        columns, lines = read_csv(Path(labels), source)
    elif isinstance(labels, Frame):
        header = list(getattr(labels, "column_names", labels.columns))  # the name in pyarrow
        names = checked_names([str(name).strip() for name in header], source)
        originals = {str(name).strip(): name for name in header}
        columns = {}
        for name in names:
            column = labels[originals[name]]
            columns[PATH if name == path_column(names) else name] = list(
                column.to_pylist() if hasattr(column, "to_pylist") else column
            )
    elif isinstance(labels, Mapping | Series):
        if isinstance(labels, Mapping) and not isinstance(labels.get(PATH, ""), str):
            raise ValueError(
                f"labels are columns by their names, not labels by path: give {_FORMATS}"
            )
        pairs = list(labels.items())
        columns = {PATH: [path for path, _ in pairs], LABEL: [label for _, label in pairs]}
    else:
        raise ValueError(f"cannot read labels from {type(labels).__name__}: give {_FORMATS}")
    columns, kinds = _without_suffixes(columns, source)
    if only != DECISION:
        columns = _without_excluded(columns, only)
    if only is not None:
        columns = _select_columns(columns, only, group, source)
    return _table(columns, source, lines, only, group, kinds, targets)


def _without_suffixes(
    columns: dict[str, list[Any]], source: str
) -> tuple[dict[str, list[Any]], dict[str, str]]:
    """Return the columns without the suffixes of their names, and task -> kind for those."""
    kinds: dict[str, str] = {}
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
    """Return the columns `path` and `task`, and `group` if there is one."""
    tasks = [name for name in columns if name != PATH]
    selected = [name for name in tasks if printable(name) == task]
    similar = [name for name in tasks if printable(name).lower() == task.lower()]
    if not selected and len(similar) == 1:  # Label
        return _select_columns(
            {task if name in similar else name: cells for name, cells in columns.items()},
            task,
            group,
            source,
        )
    if tasks and not selected:
        found = ", ".join(map(printable, tasks))
        raise ValueError(f"{source} has no column {task!r}: beside path it has {found}")
    selected += [name for name in tasks if printable(name) == group and name not in selected]
    return {name: columns[name] for name in (PATH, *selected)}


def _table(
    columns: dict[str, list[Any]],
    source: str,
    lines: list[int] | None,
    only: str | None,
    group: str | None,
    kinds: Mapping[str, str],
    with_targets: bool,
) -> LabelTable:
    """Return the table of these columns; `lines` are line numbers of a file."""

    def location(row: int) -> str:
        return f"{source} row {row}" if lines is None else f"{source} line {lines[row]}"

    paths = columns.pop(PATH)
    if not columns:
        raise no_column(source, LABEL)
    for name in columns:
        if name in _KEYS:
            raise ValueError(
                f"{source} has a column {name!r}, which is reserved for arrays of examples: "
                "rename it"
            )
    first: set[str] = set()
    for row, path in enumerate(paths):
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise ValueError(f"{location(row)}: {path!r} is not a path")
        paths[row] = str(path)
        if paths[row] in first:
            raise ValueError(f"{location(row)}: {paths[row]!r} is listed twice")
        first.add(paths[row])
    tasks: dict[str, dict[str, str]] = {printable(name): {} for name in columns}
    for name, values in columns.items():
        for row, value in enumerate(values):
            label = text_of(value)
            if label is None:
                raise ValueError(
                    f"{location(row)}: {paths[row]!r} has a {type(value).__name__} as its "
                    f"{printable(name)}: give {_FORMATS}"
                )
            if label:
                tasks[printable(name)][paths[row]] = label
    notes: list[str] = []
    kept: dict[str, dict[str, str]] = {}
    targets: dict[str, Mapping[str, Cell]] = {}
    for task, by_path in tasks.items():
        present = present_labels(Counter(by_path.values()), task, notes)
        kind = kinds.get(task) or kind_of_cells(present)
        if task == group or kind in (None, "class"):
            class_of = merged_spellings(present, task, notes)
            kept[task] = {path: class_of[x] for path, x in by_path.items() if x in class_of}
            if with_targets and task != group and kind is None and _may_be_numbers(class_of):
                notes.append(
                    f"{task!r} is taken for classes; for numbers, name the column '{task}:number'"
                )
        elif with_targets:
            read = _numbers if kind == "number" else _label_sets
            cells = {path: label for path, label in by_path.items() if label in present}
            targets[task] = read(cells, task, notes)
        elif task == only or len(tasks) == 1:
            raise ValueError(f"{source}: {task!r} {_NO_CLASSES[kind or '']}: write classes")
        else:
            notes.append(f"{task!r} {_NO_CLASSES[kind or '']}: left out")
    if not targets and (not kept or (len(kept) < len(tasks) and [*kept] == [group])):
        raise ValueError(f"{source}: no column holds classes: write some")
    prefixed = tuple(f"{source}: {note}" for note in notes)
    return LabelTable(source=source, tasks=kept, targets=targets, notes=prefixed)


_NO_CLASSES = {
    "number": "holds numbers, not classes, which only probe, audit and classify take",
    "labels": "holds several labels a cell, which only probe, audit and classify take",
}


def _numbers(by_path: Mapping[str, str], task: str, notes: list[str]) -> dict[str, Cell]:
    """Return path -> number.

    Raises:
        ValueError: a cell holds none.
    """
    numbers = numbers_of(set(by_path.values()))
    if numbers is None:
        wrong = next(label for label in by_path.values() if numbers_of([label]) is None)
        raise ValueError(f"column '{task}:number': {wrong!r} is not a finite number: correct it")
    return {path: numbers[label] for path, label in by_path.items()}


def _label_sets(by_path: Mapping[str, str], task: str, notes: list[str]) -> dict[str, Cell]:
    """Return path -> labels, those between the separators; a separator alone is no label."""
    mark = separator_of(by_path.values())
    texts = {path: {x.strip() for x in cell.split(mark)} - {""} for path, cell in by_path.items()}
    labels = sorted(set().union(*texts.values()))
    if not labels:
        raise ValueError(f"column {task!r} has no label but separators: write some")
    class_of = merged_spellings(
        Counter(text for found in texts.values() for text in found), task, notes
    )
    return {path: frozenset(class_of[text] for text in found) for path, found in texts.items()}


def _may_be_numbers(labels: Iterable[str]) -> bool:
    """Return whether the classes are numbers, many of them or not whole ones."""
    numbers = numbers_of(labels) or {}
    return len(numbers) > _HINTED or not all(map(float.is_integer, numbers.values()))


def labeled(examples: Examples, table: LabelTable, base: str, *, unlabeled: bool) -> Examples:
    """Return the examples with their labels replaced by those of a table.

    `base` is the folder of the examples. Examples without a label of a task are kept as class -1
    if `unlabeled`, and dropped with a note otherwise.

    Raises:
        ValueError: a path matches no example, or no example has all labels.
    """
    table = table.with_names(examples.names, base)
    ids, targets = table.ids(examples.names), table.target_values(examples.names)
    notes = (
        *examples.notes,
        *table.notes_on(ids),
        *(target.note(task, in_table=True) for task, target in targets.items()),
    )
    labeled_examples = replace(
        examples, labels=ids, classes=table.classes(), targets=targets, notes=notes
    )
    known = [*(y >= 0 for y in ids.values()), *(target.known for target in targets.values())]
    rows = np.flatnonzero(np.all(known, axis=0))
    if unlabeled or len(rows) == len(examples.names):
        return labeled_examples
    what = " and ".join(map(repr, (*ids, *targets)))
    if not len(rows):
        raise ValueError(f"{table.source} has no example with {what}: fill the empty cells")
    left = len(examples.names) - len(rows)
    note = f"{left} of {len(examples.names)} examples have no {what} in {table.source}: left out"
    return labeled_examples.take(rows).with_notes(note)
