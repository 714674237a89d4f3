"""Arrays of labels -> class ids, numbers, or several labels of each example."""

from collections import Counter
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from widefield.core.names import printable
from widefield.data.labels.text import MAX_CLASSES, present_labels
from widefield.data.table import Names, Table, Target, classes_note

_NEGATIVE, _IGNORED = (-1, -100), (255, 65_535)
"""Ids that stand for no label: `ignore_index` of torch, and the largest of 8 and 16 bits."""
_MAX_FREE_CLASSES, _MAX_UNUSED = 1_000, 10
"""Above this number of classes, at most this many unused ones for each used one."""


def read_label_arrays(
    n: int,
    arrays: Mapping[str, NDArray[np.generic]],
    tasks: Mapping[str, tuple[str, str]],
    notes: tuple[str, ...] = (),
) -> Table:
    """Return n rows with the labels and targets of `tasks`, and `notes` before theirs.

    `tasks` are task -> key of its labels in `arrays`, and key of its class names, which may be
    absent.
    """
    table = Table(names=Names.of_rows(n), notes=notes)
    for task, (key, names_key) in tasks.items():
        values, names = arrays[key], arrays.get(names_key)
        if values.shape[:1] == (n,) and (values.dtype.kind == "f" or values.ndim == 2):
            target = _as_target(values, key, names, names_key)
            table.targets[task] = target
            table = table.with_notes(target.note(task, in_table=False))
        else:
            notes_on: list[str] = []
            ids, classes = as_labels(values, key, n, names, names_key, notes_on)
            table.labels[task], table.classes[task] = ids, classes
            table = table.with_notes(*notes_on, classes_note(task, ids, classes))
    return table


def as_labels(
    values: NDArray[np.generic],
    key: str,
    n: int,
    names: NDArray[np.generic] | None,
    names_key: str,
    notes: list[str],
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Convert a label array to class ids int64 [n], -1 for no label, and class names.

    Integers are class ids, named by `names` or their digits, so that two files of one data set
    agree. Integers beyond 65,535, such as those of patients, are names, and no positions. Strings
    are numbered in sorted order, or in the order of `names`. What is taken for a missing label goes
    to `notes`.
    """
    if values.ndim != 1 or len(values) != n:
        raise ValueError(
            f"key '{key}' is {describe(values)}; expected one label for each of {n} examples"
        )
    known = None if names is None else _class_names(names, names_key)
    if known is not None and len(known) > MAX_CLASSES:
        raise ValueError(f"key '{names_key}' lists {len(known)} classes; at most {MAX_CLASSES}")
    if values.dtype.kind in "US":
        return _from_strings(_as_text(values, key), key, known, names_key, notes)
    if values.dtype.kind not in "iub":
        raise ValueError(f"key '{key}' is {describe(values)}; expected integers or strings")
    missing = _are_missing(values, 0 if known is None else len(known))
    present = values[~missing]
    if not len(present):
        raise ValueError(f"key '{key}' has no label: write some, or leave it out")
    if missing.any():
        text = " and ".join(map(str, np.unique(values[missing]).tolist()))
        notes.append(
            f"{int(missing.sum())} labels of {key!r} are {text}: missing, not a class; to make "
            f"it one, name all classes under {names_key!r}, or give strings"
        )
    low, high = int(present.min()), int(present.max())
    limit = MAX_CLASSES if known is None else len(known)
    if known is None and low >= 0 and high >= limit and 1 < len(np.unique(present)) <= n / 2:
        digits = np.where(missing, "", values.astype(str))  # exact, where floats would round
        return _from_strings(digits, key, None, names_key, notes)
    if low < 0 or high >= limit:
        raise ValueError(
            f"key '{key}' holds class ids from {low} to {high}; "
            f"expected 0 to {limit - 1}, strings, or floats for numbers"
        )
    _check_class_count(present, key, high + 1 if known is None else len(known))
    ids = np.where(missing, -1, values.astype(np.int64))
    return ids, known or tuple(map(str, range(high + 1)))


def _are_missing(values: NDArray[np.generic], named: int) -> NDArray[np.bool_]:
    """Return which ids stand for no label, as in masks: negative ones, or 255 beyond the others.

    `named` is the number of classes that have names.
    """
    unique = np.unique(values)
    others = unique[~np.isin(unique, (*_NEGATIVE, *_IGNORED))]
    found = [x for x in _NEGATIVE if (unique == x).any() and len(others) > 1]
    # Others that leave out more than half of the ids up to the largest may leave out any number.
    are_dense = len(others) > 1 and len(others) > (int(others[-1]) + 1) // 2
    for x in _IGNORED:
        if are_dense and x >= named and int(others[-1]) + 1 < x:
            found.append(x)
    missing: NDArray[np.bool_] = np.isin(values, found)
    return missing


def _check_class_count(ids: NDArray[np.generic], key: str, count: int) -> None:
    """Check that most classes occur: probes would have an output for each unused class."""
    used = len(np.unique(ids))
    if count > _MAX_FREE_CLASSES and count > _MAX_UNUSED * used:
        raise ValueError(
            f"key '{key}' uses {used} of {count} classes; number those that occur from 0 on, "
            "or give strings"
        )


def _class_names(names: NDArray[np.generic], key: str) -> tuple[str, ...]:
    if names.ndim != 1 or names.dtype.kind not in "USiu":
        raise ValueError(f"key '{key}' is {describe(names)}; expected one name for each class")
    return _unique_names(_as_text(names, key).tolist(), key)


def _unique_names(names: list[str], key: str) -> tuple[str, ...]:
    printable_names = tuple(map(printable, names))
    repeated = [name for name, count in Counter(printable_names).items() if count > 1]
    if repeated:
        raise ValueError(f"key '{key}' has two classes named '{repeated[0]}'; rename one of them")
    return printable_names


def _as_text(values: NDArray[np.generic], key: str) -> NDArray[np.str_]:
    if values.dtype.kind != "S":
        return values.astype(str)
    try:
        return np.char.decode(values.astype(np.bytes_), "utf-8")
    except UnicodeDecodeError:
        raise ValueError(
            f"key '{key}' holds bytes that are not UTF-8; save it as text, by astype(str)"
        ) from None


def _from_strings(
    values: NDArray[np.str_],
    key: str,
    known: tuple[str, ...] | None,
    names_key: str,
    notes: list[str],
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    texts, positions, counts = np.unique(values, return_inverse=True, return_counts=True)
    printed = [printable(text) for text in texts.tolist()]
    named = set(known or ())
    text_counts = Counter({x: int(k) for x, k in zip(printed, counts, strict=True) if x.strip()})
    present = {*present_labels(text_counts, key, notes, named)}
    if not present:
        raise ValueError(f"key '{key}' has no label: write some, or leave it out")
    if known is None:
        known = _unique_names([text for text in printed if text in present], key)
    position = {name: i for i, name in enumerate(known)}
    unknown = sorted(present - position.keys())
    if unknown:
        raise ValueError(f"key '{key}' holds '{unknown[0]}', which '{names_key}' does not list")
    labels = np.array([position.get(text, -1) for text in printed], dtype=np.int64)[positions]
    _check_class_count(labels[labels >= 0], key, len(known))
    return labels, known


def describe(array: NDArray[np.generic]) -> str:
    """Return the type and the shape of an array, for messages."""
    return f"{array.dtype} {list(array.shape)}"


def _as_target(
    values: NDArray[np.generic], key: str, names: NDArray[np.generic] | None, names_key: str
) -> Target:
    """Return floats [n] as a number of each example, 0 and 1 [n, L] as several labels of each."""
    if values.ndim == 1:
        if not np.isfinite(values).all():
            raise ValueError(
                f"key '{key}' holds NaN or infinity: leave these examples out, or give the "
                "numbers of the others as labels by path"
            )
        return Target(values=values[:, None].astype(np.float64))
    if values.ndim != 2 or values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
        raise ValueError(
            f"key '{key}' is {describe(values)}; expected integers or strings [n] for classes, "
            "floats [n] for numbers, or 0 and 1 [n, L] for several labels an example"
        )
    count = values.shape[1]
    labels = tuple(map(str, range(count))) if names is None else _class_names(names, names_key)
    if len(labels) != count or not count:
        raise ValueError(f"key '{names_key}' lists {len(labels)} labels for {count} columns")
    return Target(values=values.astype(np.float64), labels=labels)
