"""Folders of files -> classes."""

import os
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from widefield.core.errors import option
from widefield.core.names import printable
from widefield.data.columns import Names
from widefield.data.table import Table, listed_classes

_SPLIT_WORDS = {"train", "training", "trn", "test", "testing", "val", "valid", "validation", "dev"}
_SPLIT_WORDS |= {"eval", "pred", "unlabeled", "unlabelled"}
"""Words in the names of folders that are splits rather than classes: `train2017`, `seg_test`."""
_BESIDE_SPLITS = {"seg", "image", "images", "img", "imgs", "data", "set", "photos", "extra"}
_BESIDE_SPLITS |= {"split"}
"""Further words of such names."""
_FOLD = re.compile(r"(fold|split|part|cv)[ _-]?\d+", re.IGNORECASE)


def read_folders(
    paths: Sequence[str], source: str, *, names: Sequence[str] | None = None, labels: bool = False
) -> Table:
    """Return files with the task `class`: the first-level folder of each; "." for none.

    Where all of them are folds, such as `fold1`, the classes are the subfolders of these.

    Args:
        paths: of the files, relative to one folder.
        source: name of this folder in messages.
        names: of the examples; default: the paths.
        labels: whether labels come from elsewhere, so that folders are no classes.
    """
    table = Table(names=Names(map(printable_path, paths)) if names is None else names)
    if labels:
        return table
    top = [parent_of(path) for path in paths]
    _check_not_splits(source, set(top) - {"."})
    if all(map(_FOLD.fullmatch, top)):
        folds = sorted(set(top))
        table = table.with_notes(f"{folds[0]} to {folds[-1]} are folds of the data and no classes")
        top = [parent_of(path.partition("/")[2]) for path in paths]
    if set(top) == {"."}:
        return table
    folders, ids = np.unique(top, return_inverse=True)
    classes = tuple(map(printable_path, folders.tolist()))
    repeated = [name for name, count in Counter(classes).items() if count > 1]
    if repeated:
        raise ValueError(f"two folders are shown as '{repeated[0]}'; rename one of them")
    table = replace(table, labels={"class": ids.astype(np.int64)}, classes={"class": classes})
    return table.with_notes(f"classes, by folder: {listed_classes(ids, classes)}")


def printable_path(path: str) -> str:
    """Return a printable form of a file name, which may be invalid text."""
    if path.isascii() and path.isprintable():
        return path
    return printable(os.fsencode(path).decode(errors="backslashreplace"))


def parent_of(path: str) -> str:
    """Return the first folder of a path; "." for a file outside folders."""
    return path.split("/", 1)[0] if "/" in path else "."


def _is_split(name: str) -> bool:
    words = set(re.findall(r"[a-z]+", name.lower()))
    return bool(words & _SPLIT_WORDS) and words <= _SPLIT_WORDS | _BESIDE_SPLITS


def _check_not_splits(source: str, top: set[str]) -> None:
    splits = sorted(filter(_is_split, top))
    if len(splits) > 1 or (splits and len(splits) == len(top)):
        training = next((name for name in splits if "train" in name.lower()), splits[0])
        raise ValueError(
            f"'{source}' holds {' and '.join(splits)}, which are splits, not classes; "
            f"name one of them, such as '{Path(source) / training}', or give the classes by "
            f"{option('labels')}"
        )
