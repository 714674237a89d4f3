"""Columns of a table as tasks: class ids without a Python object for each row."""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from widefield.core.names import printable
from widefield.data.label_names import class_names
from widefield.data.readers.arrays import as_labels
from widefield.data.targets import MOST_CLASSES

_SPLIT = "split"
_TEST_WORDS, _TRAIN_WORDS = {"test"}, {"train", "training"}


@dataclass
class Tasks:
    """The tasks of a table."""

    labels: dict[str, NDArray[np.int64]] = field(default_factory=dict)
    classes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def read_tasks(
    table: pa.Table, others: Collection[str], class_labels: dict[str, tuple[str, ...]]
) -> Tasks:
    """Return the columns of `table`, but for `others`, that hold classes.

    Integers are class ids, text is read as in a table of labels. A missing label is -1. Columns
    without classes, such as captions, numbers and lists, are left out with a note.

    Args:
        table: the columns.
        others: columns that are no tasks.
        class_labels: names of the classes of integer columns, where these are known.
    """
    tasks, left_out = Tasks(), []
    for name in table.column_names:
        if name in others:
            continue
        column, task = table[name], printable(name)
        if pa.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        read = None
        if name in class_labels or pa.types.is_integer(column.type):
            read = _from_integers(column, task, class_labels.get(name))
        elif pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
            read = _from_text(column, task, tasks.notes)
        elif pa.types.is_boolean(column.type):
            read = _from_integers(column.cast(pa.int64()), task, ("false", "true"))
        if read is None:
            left_out.append(task)
        else:
            tasks.labels[task], tasks.classes[task] = read
    if left_out:
        tasks.notes.append(f"columns without classes, left out: {', '.join(left_out)}")
    return tasks


def read_split(table: pa.Table, source: str) -> NDArray[np.bool_] | None:
    """Return which rows the column `split` assigns to the split `test`; None without such a column.

    Raises:
        ValueError: another word than `train` and `test`.
    """
    if _SPLIT not in table.column_names:
        return None
    words = [str(word).lower() for word in pc.unique(table[_SPLIT]).to_pylist()]
    unknown = sorted(set(words) - _TEST_WORDS - _TRAIN_WORDS)
    if unknown:
        raise ValueError(
            f"{source}: the column 'split' holds {printable(unknown[0])!r}: expected train and "
            "test; leave other rows out, or rename the column"
        )
    lower = pc.utf8_lower(table[_SPLIT])
    return np.asarray(pc.is_in(lower, pa.array(sorted(_TEST_WORDS), lower.type)))


def _from_integers(
    column: pa.ChunkedArray, task: str, names: Iterable[str] | None
) -> tuple[NDArray[np.int64], tuple[str, ...]] | None:
    """Return class ids, -1 for a missing one, and class names; None if these are no class ids."""
    ids = np.asarray(pc.fill_null(column, -1)).astype(np.int64)
    present = ids[ids >= 0]
    if not len(present):
        return None
    known = None if names is None else np.array(list(names))
    try:
        _, classes = as_labels(present, task, len(present), known, f"{task}_classes")
    except ValueError:
        return None
    return np.maximum(ids, -1), classes


def _from_text(
    column: pa.ChunkedArray, task: str, notes: list[str]
) -> tuple[NDArray[np.int64], tuple[str, ...]] | None:
    """Return class ids, -1 for a missing label, and class names; None if these are no classes."""
    coded = pa.concat_arrays(column.dictionary_encode().unify_dictionaries().chunks)
    if MOST_CLASSES < len(coded.dictionary) > len(column) // 2:
        return None  # captions, or names of the rows
    texts = [printable(text.strip()) for text in coded.dictionary.to_pylist()]
    codes = np.asarray(pc.fill_null(coded.indices.cast(pa.int64()), -1))
    numbers = np.bincount(codes[codes >= 0], minlength=len(texts)).tolist()
    counts: Counter[str] = Counter()
    for text, number in zip(texts, numbers, strict=True):
        counts[text] += number
    del counts[""]
    class_of = class_names(counts, task, notes)
    if not class_of:
        return None
    classes = tuple(sorted(set(class_of.values())))
    position = {name: k for k, name in enumerate(classes)}
    ids = [position[class_of[text]] if text in class_of else -1 for text in texts]
    return np.array([*ids, -1], dtype=np.int64)[codes], classes
