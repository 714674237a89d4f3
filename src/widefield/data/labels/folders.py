"""Folders of files -> classes."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from widefield.core.errors import option
from widefield.core.names import printable
from widefield.data.labels.text import nfc
from widefield.data.table import BY_FOLDER, Names, Table, listed_classes

_SPLIT_WORDS = {"train", "training", "trn", "test", "testing", "val", "valid", "validation", "dev"}
_SPLIT_WORDS |= {"eval", "pred", "unlabeled", "unlabelled"}
"""Words in the names of folders that are splits rather than classes: `train2017`, `seg_test`."""
_BESIDE_SPLITS = {"seg", "image", "images", "img", "imgs", "data", "set", "photos", "extra"}
_BESIDE_SPLITS |= {"split"}
"""Further words of such names."""
_FOLD = re.compile(r"(fold|split|part|cv)[ _-]?\d+", re.IGNORECASE)


def read_folders(
    paths: Sequence[str],
    source: str,
    *,
    within: str | None = None,
    names: Sequence[str] | None = None,
    labels: bool = False,
    notes: tuple[str, ...] = (),
) -> Table:
    """Return files with the task `class`: the first-level folder of each; "." for none.

    Where one folder holds all others, or all are folds, such as `fold1`, the classes are the
    subfolders of these; with `labels` from elsewhere there are none. Paths are relative to the
    folder `within`, if data can be opened by the path of one in it. `names` of the examples are the
    paths by default, and `notes` stand before those on the folders.
    """
    names = Names(map(printable_path, paths)) if names is None else names
    table = Table(names=names, notes=notes)
    if labels:
        return table
    outer, rest = "", paths
    while True:
        top = [parent_of(path) for path in rest]
        _check_not_splits(source, within, outer, set(top) - {"."})
        inner = [path.partition("/")[2] for path in rest]
        if len(set(top)) > 1 or not all("/" in path for path in inner):
            break
        outer, rest = f"{outer}{top[0]}/", inner
    if outer:
        table = table.with_notes(f"all files are in {printable_path(outer)}, which is no class")
    if all(map(_FOLD.fullmatch, top)):
        folds = sorted(set(top))
        table = table.with_notes(f"{folds[0]} to {folds[-1]} are folds of the data and no classes")
        top = [parent_of(path) for path in inner]
    if set(top) == {"."}:
        return table
    folders, ids = np.unique(top, return_inverse=True)
    # A copy by way of another system may have its names in another Unicode form.
    classes = tuple(nfc(printable_path(folder)) for folder in folders.tolist())
    repeated = [name for name, count in Counter(classes).items() if count > 1]
    if repeated:
        raise ValueError(f"two folders are shown as '{repeated[0]}'; rename one of them")
    table = replace(table, labels={"class": ids.astype(np.int64)}, classes={"class": classes})
    return table.with_notes(f"{BY_FOLDER}{listed_classes(ids, classes)}")


def printable_path(path: str) -> str:
    """Return a printable form of a file name, which may be invalid text."""
    if path.isascii() and path.isprintable():
        return path
    return printable(os.fsencode(path).decode(errors="backslashreplace"))


def parent_of(path: str) -> str:
    """Return the first folder of a path; "." for a file outside folders."""
    return path.split("/", 1)[0] if "/" in path else "."


def is_split(name: str) -> bool:
    """Return whether a folder or file of this name is a split of the data."""
    words = set(re.findall(r"[a-z]+", name.lower()))
    return bool(words & _SPLIT_WORDS) and words <= _SPLIT_WORDS | _BESIDE_SPLITS


def _check_not_splits(source: str, within: str | None, outer: str, top: set[str]) -> None:
    splits = sorted(filter(is_split, top))
    if len(splits) > 1 or (splits and len(splits) == len(top)):
        training = next((name for name in splits if "train" in name.lower()), splits[0])
        example = "" if within is None else f", such as '{os.path.join(within, outer, training)}'"
        raise ValueError(
            f"{source} holds {' and '.join(splits)}, which are splits, not classes; "
            f"{'unpack it and ' if within is None else ''}name one of them{example}, or give the "
            f"classes by {option('labels')}"
        )
