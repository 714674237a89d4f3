"""Columns of text and of Arrow tables -> classes, numbers, or several labels of each row."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from widefield.core.names import printable
from widefield.data.labels.arrays import as_labels
from widefield.data.labels.text import (
    LARGEST_EXACT,
    MOST_CLASSES,
    are_names,
    kind_of_cells,
    merged_spellings,
    numbers_of,
    present_labels,
    separator_of,
)
from widefield.data.table import LEFT_OUT, Table, Target, classes_note

Classes = tuple[NDArray[np.int64], tuple[str, ...]]
"""Class ids, int64 [n], -1 for no label, and class names."""

_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}")
_SPLIT = "split"
_TEST_WORDS, _TRAIN_WORDS = {"test"}, {"train", "training"}


@dataclass(frozen=True)
class TextColumn:
    """A column of text, with a number for each cell."""

    task: str
    texts: Sequence[str]
    """The texts of the cells; "" is a missing label."""
    codes: NDArray[np.int64]
    """Position of each cell in `texts`, int64 [n]; -1 for a missing label."""

    @classmethod
    def of(cls, task: str, cells: Iterable[str]) -> "TextColumn":
        position: dict[str, int] = {}
        codes = [position.setdefault(cell, len(position)) for cell in cells]
        return cls(task, list(position), np.array(codes, dtype=np.int64))

    def counts(self) -> Counter[str]:
        """Return the number of cells of each text that is not empty."""
        numbers = np.bincount(self.codes[self.codes >= 0], minlength=len(self.texts))
        counts: Counter[str] = Counter()
        for text, number in zip(self.texts, numbers.tolist(), strict=True):
            counts[text] += number
        del counts[""]
        return counts

    def classes(self, class_of: Mapping[str, str]) -> Classes:
        """Return the classes of `class_of`, text -> class; other cells have no label."""
        names = tuple(sorted(set(class_of.values())))
        position = {name: k for k, name in enumerate(names)}
        ids = [position[class_of[text]] if text in class_of else -1 for text in self.texts]
        return np.array([*ids, -1], dtype=np.int64)[self.codes], names

    def numbers(self, present: Collection[str]) -> Target:
        """Return the number of each cell whose text is one of `present`."""
        if not present:
            raise ValueError(f"column '{self.task}:number' has no number: write some")
        numbers = numbers_of(present)
        if numbers is None:
            wrong = next(x for x in self.texts if x in present and numbers_of([x]) is None)
            raise ValueError(
                f"column '{self.task}:number': {wrong!r} is not a finite number: correct it"
            )
        with_comma = [text for text in present if "," in text]
        if with_comma and all(map(_THOUSANDS.fullmatch, with_comma)):
            raise ValueError(
                f"column {self.task!r}: the comma of {with_comma[0]!r} may be a decimal point or "
                "separate thousands: write the point, or no comma"
            )
        values = [numbers.get(text, np.nan) for text in self.texts]
        return Target(values=np.array([*values, np.nan])[self.codes, None])

    def label_sets(self, present: Counter[str], notes: list[str]) -> Target:
        """Return the labels of each cell whose text is one of `present`.

        They are between the separators; a separator alone is no label.
        """
        mark = separator_of(present)
        parts = {cell: {part.strip() for part in cell.split(mark)} - {""} for cell in present}
        counts: Counter[str] = Counter()
        for cell, number in present.items():
            counts.update(dict.fromkeys(parts[cell], number))
        if not counts:
            raise ValueError(f"column {self.task!r} has no label but separators: write some")
        class_of = merged_spellings(counts, self.task, notes)
        labels = tuple(sorted(set(class_of.values())))
        values = np.full((len(self.texts) + 1, len(labels)), np.nan)
        for row, text in enumerate(self.texts):
            if text in parts:
                found = {class_of[part] for part in parts[text]}
                values[row] = [label in found for label in labels]
        return Target(values=values[self.codes], labels=labels)


def read_tasks(
    columns: pa.Table,
    names: Sequence[str],
    others: Collection[str] = (),
    class_labels: Mapping[str, tuple[str, ...]] | None = None,
) -> Table:
    """Return the examples `names` with the columns, but for `others`, that hold classes.

    Integers are class ids, text is read as in a table of labels. A missing label is -1. Columns
    without classes, such as captions, numbers and lists, are left out with a note. `class_labels`
    are names of the classes of integer columns, where these are known.
    """
    known = class_labels or {}
    found: dict[str, Classes] = {}
    left_out: list[str] = []
    notes: list[str] = []
    for name in columns.column_names:
        if name in others:
            continue
        task = printable(name)
        read = _read_column(columns[name], task, known.get(name), notes)
        if read is None:
            left_out.append(task)
        else:
            found[task] = read
    notes += [classes_note(task, *read) for task, read in found.items()]
    if left_out:
        notes.append(f"{LEFT_OUT}{', '.join(left_out)}")
    return Table(
        names=names,
        labels={task: ids for task, (ids, _) in found.items()},
        classes={task: classes for task, (_, classes) in found.items()},
        notes=tuple(notes),
    )


def _read_column(
    column: pa.ChunkedArray, task: str, names: tuple[str, ...] | None, notes: list[str]
) -> Classes | None:
    """Return the classes of a column; None if it holds none."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        column = _whole(column)
    if names is not None or pa.types.is_integer(column.type):
        return _from_integers(column, task, names, notes)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return _from_text(column, task, notes)
    if pa.types.is_boolean(column.type):
        return _from_integers(column.cast(pa.int64()), task, ("false", "true"), notes)
    return None


def _whole(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return floats as integers if they are few different whole numbers.

    pandas converts integers to floats in a column with missing values.
    """
    numbers = pc.if_else(pc.is_nan(column), None, column)
    largest = pc.max(pc.abs(numbers)).as_py() or 0
    if len(numbers.unique()) > MOST_CLASSES or largest >= LARGEST_EXACT:
        return column
    try:
        return numbers.cast(pa.int64())
    except pa.ArrowInvalid:
        return column


def _from_integers(
    column: pa.ChunkedArray, task: str, names: tuple[str, ...] | None, notes: list[str]
) -> Classes | None:
    known, found = None if names is None else np.array(names), list[str]()
    numbers = pc.fill_null(column, pa.scalar(0, column.type)).to_numpy()
    is_label = np.asarray(column.is_valid()) & ((numbers >= 0) | (known is None))
    present = numbers[is_label]
    if not (present >= 0).any():
        return None
    try:
        read, classes = as_labels(present, task, len(present), known, f"{task}_classes", found)
    except ValueError:  # negative ones may be names, as in a table of labels
        is_signed = present.min() < 0
        return _from_text(column.cast(pa.string()), task, notes) if is_signed else None
    notes += found
    ids = np.full(len(column), -1, dtype=np.int64)
    ids[is_label] = read
    return ids, classes


def _from_text(column: pa.ChunkedArray, task: str, notes: list[str]) -> Classes | None:
    encoded = pa.concat_arrays(column.dictionary_encode().unify_dictionaries().chunks)
    # Texts of which most occur once are captions, or names of the rows.
    if MOST_CLASSES < len(encoded.dictionary) > len(column) // 2:
        return None
    texts = [printable(text.strip()) for text in encoded.dictionary.to_pylist()]
    codes = np.asarray(pc.fill_null(encoded.indices.cast(pa.int64()), -1))
    found = TextColumn(task, texts, codes)
    present = present_labels(found.counts(), task, notes)
    if not present or (kind_of_cells(present) is not None and not are_names(present)):
        return None
    return found.classes(merged_spellings(present, task, notes))


def read_split(columns: pa.Table, source: str) -> NDArray[np.bool_] | None:
    """Return which rows the column `split` assigns to `test`; None without such a column."""
    if _SPLIT not in columns.column_names:
        return None
    words = [str(word).lower() for word in pc.unique(columns[_SPLIT]).to_pylist()]
    unknown = sorted(set(words) - _TEST_WORDS - _TRAIN_WORDS)
    if unknown:
        raise ValueError(
            f"{source}: the column 'split' holds {printable(unknown[0])!r}: expected train and "
            "test; leave other rows out, or rename the column"
        )
    lower = pc.utf8_lower(columns[_SPLIT].cast(pa.large_string()))  # a category of pandas too
    return np.asarray(pc.is_in(lower, pa.array(sorted(_TEST_WORDS), lower.type)))
