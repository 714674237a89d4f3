"""Tables of labels: which example has which, by its path, from a file or from memory."""

import csv
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from widefield.core.files import check_plain_file
from widefield.core.names import printable
from widefield.data.examples import Examples
from widefield.data.readers.recordings import Recordings

_LARGEST = 2**30
"""Bytes of a file of labels, at most."""
_PATH, _LABEL = "path", "label"
_KEYS = ("x", "windows", "sounds", "audio", "sample_rate")
"""Keys of arrays in memory that are no task."""
_NOTHING = ("NAType", "NaTType")
"""What pandas calls its values that are missing; they are compared with nothing."""
_FORMS = (
    "a .csv file, a table such as a pandas DataFrame with the columns path and label, a Series of "
    "labels indexed by path, or a mapping path -> label"
)


@runtime_checkable
class Frame(Protocol):
    """A table in memory, as pandas and polars have them."""

    @property
    def columns(self) -> Any:
        """Names of the columns."""

    def __getitem__(self, name: Any, /) -> Any:
        """Return one column."""


@runtime_checkable
class Series(Protocol):
    """Labels indexed by path, as pandas has them."""

    def items(self) -> Iterable[tuple[Any, Any]]:
        """Return each path with its label."""


Labels = str | Path | Mapping[str, str] | Frame | Series
"""What `read_labels` reads."""


@dataclass(frozen=True, kw_only=True)
class LabelTable:
    """Labels of some examples, for one task or several."""

    source: str
    """What the table is called in messages."""
    tasks: Mapping[str, Mapping[str, str]]
    """Task -> path -> label; an example without a label of a task is not in its mapping."""

    def named_as(self, names: Sequence[str], base: str) -> "LabelTable":
        """Return the same labels under the `names` of the examples of the folder `base`.

        A path is that name, or leads to it: from the root, or from the working folder.

        Raises:
            ValueError: a path that is not among the examples, means two of them, or means the
                same as another one.

        Example:
            >>> table = read_labels({"photos/cat/0.png": "cat"})
            >>> table.named_as(["cat/0.png"], "./photos").tasks
            {'label': {'cat/0.png': 'cat'}}
        """
        known = set(names)
        paths = {path for given in self.tasks.values() for path in given}
        name_of = {path: path for path in paths}
        if not paths <= known:
            name_of = self._read_from(base, paths, known)
        unknown = sorted(paths - name_of.keys())
        if unknown:
            raise ValueError(
                f"{len(unknown)} labeled files are not in the data, such as {unknown[0]!r}: name "
                f"them as embed does, for example {names[0]!r}"
            )
        tasks = {}
        for task, given in self.tasks.items():
            tasks[task] = {name_of[path]: label for path, label in given.items()}
            if len(tasks[task]) < len(given):
                raise ValueError(f"{self.source} names one example by two paths: keep one of them")
        return replace(self, tasks=tasks)

    def _read_from(self, base: str, paths: Iterable[str], known: set[str]) -> dict[str, str]:
        """Return path -> name of those that mean one example, as such or on the way to `base`."""
        folder = os.path.expanduser(base)
        folders = (os.path.abspath(folder), os.path.realpath(folder))
        name_of: dict[str, str] = {}
        for path in paths:
            whole = os.path.abspath(os.path.expanduser(path))
            readings = [path, os.path.normpath(path)]
            readings += [os.path.relpath(whole, root) for root in folders]
            found = sorted(known.intersection(readings))
            if len(found) > 1:
                raise ValueError(
                    f"{self.source}: {path!r} means {found[0]!r} or {found[1]!r}: give paths "
                    "relative to the folder of the data"
                )
            if found:
                name_of[path] = found[0]
        return name_of

    def ids(self, names: Sequence[str]) -> dict[str, NDArray[np.int64]]:
        """Return the class ids of each task, int64 [n], -1 where there is no label.

        Example:
            >>> read_labels({"a": "cat", "c": "ant"}).ids(["a", "b", "c"])["label"].tolist()
            [1, -1, 0]
        """
        ids, classes = {}, self.classes()
        for task, given in self.tasks.items():
            number = {name: k for k, name in enumerate(classes[task])}
            found = [number[given[name]] if name in given else -1 for name in names]
            ids[task] = np.array(found, dtype=np.int64)
        return ids

    def classes(self) -> dict[str, tuple[str, ...]]:
        """Return the class names of each task, sorted."""
        return {task: tuple(sorted(set(given.values()))) for task, given in self.tasks.items()}


def read_labels(labels: Labels, only: str | None = None) -> LabelTable:
    """Read which path has which label; every column but `path` is a task.

    An empty cell is no label, and a column without a name, such as the row numbers that pandas
    writes, no task.

    Args:
        labels: a .csv file; a table with a column `path` and others; a Series indexed by path; or
            path -> label.
        only: the one column that is a task; what stands in others does not matter then.

    Raises:
        ValueError: it is none of these, cannot be read, lacks a column, or has a path twice.

    Example:
        >>> read_labels({"cat/0.png": "cat", "1.png": 7}).tasks
        {'label': {'cat/0.png': 'cat', '1.png': '7'}}
    """
    source, lines = "labels", None
    if isinstance(labels, str | Path):
        source = printable(str(labels))
        columns, lines = _of_file(Path(labels), source)
    elif isinstance(labels, Frame):
        given = list(getattr(labels, "column_names", labels.columns))  # pyarrow has its own word
        names = _checked_names([str(name).strip() for name in given], source)
        called = {str(name).strip(): name for name in given}
        columns = {name: _values(labels[called[name]]) for name in names}
    elif isinstance(labels, Mapping | Series):
        pairs = list(labels.items())
        columns = {_PATH: [path for path, _ in pairs], _LABEL: [label for _, label in pairs]}
    else:
        raise ValueError(f"cannot read labels from {type(labels).__name__}: give {_FORMS}")
    return _table(columns if only is None else _with_one(columns, only, source), source, lines)


def _with_one(columns: dict[str, list[Any]], task: str, source: str) -> dict[str, list[Any]]:
    """Return the paths and the column of one task.

    Raises:
        ValueError: there are others, and it is not among them.
    """
    others = [name for name in columns if name != _PATH]
    chosen = [name for name in others if printable(name) == task]
    if others and not chosen:
        told = ", ".join(map(printable, others))
        raise ValueError(f"{source} has no column {task!r}: beside path it has {told}")
    return {name: columns[name] for name in (_PATH, *chosen)}


def _values(column: Any) -> list[Any]:
    """Return the values of a column of a table in memory."""
    return list(column.to_pylist() if hasattr(column, "to_pylist") else column)


def _of_file(path: Path, source: str) -> tuple[dict[str, list[Any]], list[int]]:
    """Return the columns of a .csv file, and the line of each row."""
    check_plain_file(path, largest=_LARGEST)
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            reader.fieldnames = [name.strip() for name in reader.fieldnames or ()]
            names = _checked_names(reader.fieldnames, source)
            rows = [(reader.line_num, row) for row in reader]
    except OSError as error:
        raise ValueError(f"cannot read {source}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{source} is no CSV file in UTF-8: {error}") from error
    _refuse_surplus(rows, source)
    return {name: [row[name] for _, row in rows] for name in names}, [line for line, _ in rows]


def _refuse_surplus(rows: list[tuple[int, dict[Any, Any]]], source: str) -> None:
    """Refuse text beyond the last column, which would be cut off a label; empty cells may be there.

    Raises:
        ValueError: a row has such text.
    """
    for line, row in rows:
        surplus = row.get(None, ())  # where csv puts the cells that no column is for
        if any(cell.strip() for cell in surplus):
            raise ValueError(
                f"{source} line {line} has more cells than the header: put labels and paths that "
                "hold a comma in double quotes"
            )


def _checked_names(names: list[str], source: str) -> list[str]:
    """Return the columns that have a name, of which `path` is one and no two are the same."""
    named = [name for name in names if name.strip()]
    for name in named:
        if named.count(name) > 1:
            raise ValueError(f"{source} has two columns {name!r}: leave one of them out")
    if _PATH not in named:
        raise _no_column(source, _PATH)
    return named


def _no_column(source: str, name: str) -> ValueError:
    return ValueError(f"{source} has no column {name!r}: it needs path, and label or another task")


def _table(columns: dict[str, list[Any]], source: str, lines: list[int] | None) -> LabelTable:
    """Return the table of these columns; `lines` are those of a file."""

    def place(row: int) -> str:
        return f"{source} row {row}" if lines is None else f"{source} line {lines[row]}"

    paths = columns.pop(_PATH)
    if not columns:
        raise _no_column(source, _LABEL)
    for name in columns:
        if name in _KEYS:
            raise ValueError(
                f"{source} has a column {name!r}, which is what arrays of examples are called: "
                "rename it"
            )
    first: set[str] = set()
    for row, path in enumerate(paths):
        if not isinstance(path, str | os.PathLike) or not str(path):
            raise ValueError(f"{place(row)}: {path!r} is no path")
        paths[row] = str(path)
        if paths[row] in first:
            raise ValueError(f"{place(row)}: {paths[row]!r} stands twice")
        first.add(paths[row])
    tasks: dict[str, dict[str, str]] = {printable(name): {} for name in columns}
    for name, values in columns.items():
        for row, value in enumerate(values):
            label = _text(value)
            if label is None:
                raise ValueError(
                    f"{place(row)}: {paths[row]!r} has a {type(value).__name__} as its "
                    f"{printable(name)}: give {_FORMS}"
                )
            if label:
                tasks[printable(name)][paths[row]] = label
    return LabelTable(source=source, tasks=tasks)


def _text(value: object) -> str | None:
    """Return a label's text, "" for a missing one, None for what is no label."""
    value = value.item() if isinstance(value, np.generic) else value
    if value is None or type(value).__name__ in _NOTHING:
        return ""
    if isinstance(value, float):
        if math.isnan(value):
            return ""
        # Whole numbers become floats in a column of which some are missing.
        value = int(value) if value.is_integer() else value
    return printable(str(value).strip()) if isinstance(value, str | int | float) else None


def labeled(examples: Examples, table: LabelTable, base: str, *, unlabeled: bool) -> Examples:
    """Return the examples with the labels of a table, in place of their own.

    Args:
        examples: what a reader found.
        table: their labels.
        base: the folder that they were found in.
        unlabeled: keep those that lack a label of a task, as class -1; otherwise they are left
            out, and counted in a note.

    Raises:
        ValueError: a path that is not among the examples, or no example with every label.
    """
    table = table.named_as(examples.names, base)
    ids = table.ids(examples.names)
    told = replace(examples, labels=ids, classes=table.classes())
    rows = np.flatnonzero(np.all([y >= 0 for y in ids.values()], axis=0))
    if unlabeled or len(rows) == len(examples.names):
        return told
    what = " and ".join(map(repr, ids))
    if not len(rows):
        raise ValueError(f"{table.source} has no example with {what}: fill the empty cells")
    left = len(examples.names) - len(rows)
    note = f"{left} of {len(examples.names)} examples have no {what} in {table.source}: left out"
    return replace(_rows_of(told, rows), notes=(*examples.notes, note))


def _rows_of(examples: Examples, rows: NDArray[np.int64]) -> Examples:
    """Return these rows of what a reader found; pixels are copied."""
    few = rows.tolist()
    sounds, files = examples.recordings, examples.files
    return replace(
        examples,
        names=[examples.names[row] for row in few],
        labels={task: y[rows] for task, y in examples.labels.items()},
        pixels=None if examples.pixels is None else examples.pixels[rows],
        files=None if files is None else _picked(files, few),
        recordings=None
        if sounds is None
        else Recordings(
            files=None if sounds.files is None else _picked(sounds.files, few),
            clips=None if sounds.clips is None else _picked(sounds.clips, few),
            rate=sounds.rate,
        ),
    )


def _picked(items: Any, rows: list[int]) -> Any:
    return [items[row] for row in rows]
