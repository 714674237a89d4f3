"""Groups of examples that belong together, such as the frames of a video or slices of a patient.

Probes and intervals treat a group as one: none is on both sides of a split.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from widefield.core.errors import option
from widefield.core.names import printable
from widefield.core.rng import hash_items
from widefield.data.examples import Examples
from widefield.data.table import LEFT_OUT, lists_classes

FOLDER, REGEX = "folder:", "regex:"
_EXPECTED = "name a column or a label array, a folder level as folder:1, or regex:PATTERN"


def grouped(examples: Examples, group: str) -> Examples:
    """Return the examples with the group of each, and without a task that names the groups.

    `group` is `folder:1` for the first folder of a name, `folder:-1` for the last; `regex:PATTERN`
    for the first parenthesized group of a pattern found in the name; otherwise a task, such as a
    column of a table. An example without any label is a group of its own.
    """
    labels, classes, notes = dict(examples.labels), dict(examples.classes), examples.notes
    if group.startswith(FOLDER):
        keys = _folders(examples.names, group)
    elif group.startswith(REGEX):
        keys = _matches(examples.names, group)
    else:
        keys = _column(examples, group)
        del labels[group], classes[group]
        # A column of groups is no task: its classes are not told.
        notes = tuple(note for note in notes if not lists_classes(note, group))
    sizes = np.unique(keys, return_counts=True)[1]
    count, n = len(sizes), len(keys)
    if count < 2:
        raise ValueError(
            f"group {printable(group)!r} gives one group, {keys[0]!r}, of all {n} examples: "
            f"{_EXPECTED} that tells them apart"
        )
    note = f"group {printable(group)}: {count} groups of {n} examples, at most {sizes.max()} in one"
    # Hashes, not positions: the split and two data sets of one source must agree on a group.
    ids = hash_items(key.encode("utf-8", "surrogateescape") for key in keys).view(np.int64)
    found = replace(examples, labels=labels, classes=classes, groups=ids, notes=notes)
    return found.with_notes(note)


def held_out_groups(groups: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which examples are test data, bool [n]: a fifth of the groups, and two at least.

    They are those of the smallest ids, which are hashes.
    """
    ids = np.unique(groups)
    if len(ids) < 4:
        raise ValueError(
            f"{len(ids)} groups are too few to split: give four or more, or other data to fit on, "
            f"{option('train_data', 'DATA')}"
        )
    selected: NDArray[np.bool_] = np.isin(groups, ids[: max(2, round(len(ids) / 5))])
    return selected


def _folders(names: Sequence[str], group: str) -> list[str]:
    text = group.removeprefix(FOLDER)
    if not re.fullmatch(r"-?[1-9]\d{0,3}", text):
        raise ValueError(
            f"{printable(group)!r} is no folder level: folder:1 is the first one, folder:-1 the "
            "last"
        )
    level = int(text)
    keys = []
    for name in names:
        folders = name.split("/")[:-1]
        if not -len(folders) <= level - (level > 0) < len(folders):
            raise ValueError(
                f"{group}: {name!r} has {len(folders)} folders in its name: choose a level that "
                "all examples have"
            )
        keys.append(folders[level - (level > 0)])
    return keys


def _matches(names: Sequence[str], group: str) -> list[str]:
    try:
        pattern = re.compile(group.removeprefix(REGEX))
    except re.error as error:
        raise ValueError(f"{printable(group)!r} is no regular expression: {error}") from error
    if not pattern.groups:
        raise ValueError(
            f"{printable(group)!r} has no parenthesized group, which is the key: put what names "
            "the group in ( )"
        )
    found = [pattern.search(name) for name in names]
    keys = [None if match is None else match[1] for match in found]
    missing = [name for name, key in zip(names, keys, strict=True) if key is None]
    if missing:
        raise ValueError(
            f"{printable(group)!r} matches {len(names) - len(missing)} of {len(names)} names, and "
            f"not {missing[0]!r}: give a pattern that all match"
        )
    return [str(key) for key in keys]


def _column(examples: Examples, group: str) -> list[str]:
    left_out = [note.partition(LEFT_OUT)[2].split(", ") for note in examples.notes]
    if group not in examples.labels and any(group in names for names in left_out):
        raise ValueError(
            f"column {printable(group)!r} to group by holds numbers and no names: write them as "
            "text, such as p7 for 7"
        )
    if group not in examples.labels:
        known = ", ".join(map(printable, examples.labels)) or "no labels"
        raise ValueError(
            f"no column {printable(group)!r} to group by, the data have {known}; {_EXPECTED}"
        )
    ids, names = examples.labels[group], examples.classes[group]
    missing = np.flatnonzero((ids < 0) & examples.known().any(0))
    if len(missing):
        raise ValueError(
            f"{len(missing)} labeled examples have no {printable(group)!r}, such as "
            f"{examples.names[missing[0]]!r}: fill these cells, or leave their labels out"
        )
    pairs = zip(ids.tolist(), examples.names, strict=True)
    return [f"group {names[k]}" if k >= 0 else f"example {name}" for k, name in pairs]
