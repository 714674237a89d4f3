"""Files of labels: columns of a .csv file as text, and the examples that its paths mean."""

import codecs
import csv
import os
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from widefield.core.files import check_plain_file
from widefield.data.labels.text import nfc

_LARGEST = 2**30
"""Size limit of a file of labels, bytes, chosen by hand."""
PATH, LABEL = "path", "label"
"""Columns of paths, and of the labels of a task without a name."""
_PATH_NAMES = ("filename", "file_name", "file", "filepath", "file_path", "image", "image_path")
"""Other names of the column of paths, in any case."""
_DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab"}


def read_csv(path: Path, source: str) -> tuple[dict[str, list[Any]], list[int]]:
    """Return the columns of a .csv file and the line number of each row."""
    check_plain_file(path, largest=_LARGEST)
    encoding, delimiter, _ = csv_format(path, source)
    with _one_line(source), path.open(newline="", encoding=encoding) as file:
        reader = csv.reader(file, delimiter=delimiter)
        header = [name.strip() for name in next(reader)]
        rows = [(reader.line_num, row) for row in reader if row]
    for line, row in rows:
        # Cells without a column would be the end of a label.
        if any(cell.strip() for cell in row[len(header) :]):
            raise ValueError(
                f"{source} line {line} has more cells than the header: put labels and paths that "
                f"hold a {_DELIMITERS[delimiter]} in double quotes"
            )
    names = checked_names(header, source)
    if path_column(names) is None:
        raise no_column(source, PATH)
    columns: dict[str, list[Any]] = {}
    for name in names:
        k = header.index(name)
        cells = [row[k] if k < len(row) else None for _, row in rows]
        columns[PATH if name == path_column(names) else name] = cells
    return columns, [line for line, _ in rows]


def csv_format(path: Path, source: str) -> tuple[str, str, list[str]]:
    """Return the encoding, the delimiter and the columns of a .csv file."""
    with _one_line(source):
        # Excel saves Unicode text in UTF-16, and CSV in UTF-8 with a byte order mark.
        with path.open("rb") as raw:
            is_utf16 = raw.read(2) in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
        encoding = "utf-16" if is_utf16 else "utf-8-sig"
        with path.open(newline="", encoding=encoding) as file:
            header = file.readline(_LARGEST)

        def split(mark: str) -> list[str]:
            return [name.strip() for name in next(csv.reader([header], delimiter=mark), [])]

        found = (x for x in _DELIMITERS if len(split(x)) > 1 and path_column(split(x)) is not None)
        delimiter = next(found, ",")
        names = split(delimiter)
    return encoding, delimiter, names


@contextmanager
def _one_line(source: str) -> Iterator[None]:
    """Raise a ValueError of one line for what reading a .csv file raises."""
    try:
        yield
    except OSError as error:
        raise ValueError(f"cannot read {source}: {error.strerror}") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{source} is not a CSV file in UTF-8: {error}; save it as one") from error


def path_column(names: Sequence[str]) -> str | None:
    """Return the column of paths, None if there is none or it is ambiguous."""
    if PATH in names:
        return PATH
    found = [name for name in names if name.lower() == PATH]
    found = found or [name for name in names if name.lower() in _PATH_NAMES]
    return found[0] if len(found) == 1 else None


def checked_names(names: list[str], source: str) -> list[str]:
    """Return the columns with a name; check that none is repeated."""
    named = [name for name in names if name.strip()]
    for name in named:
        if named.count(name) > 1:
            raise ValueError(f"{source} has two columns {name!r}: leave one of them out")
    return named


def no_column(source: str, name: str) -> ValueError:
    return ValueError(f"{source} has no column {name!r}: it needs path, and label or another task")


def match_paths(
    paths: Collection[str], names: Sequence[str], base: str, source: str
) -> dict[str, str]:
    """Return path -> name of an example of the folder `base`, for the paths that match one.

    `source` is the name of the table of these paths in messages.
    """
    known = set(names)
    if known.issuperset(paths):
        return {path: path for path in paths}
    folder = os.path.expanduser(base)
    folders = (os.path.abspath(folder), os.path.realpath(folder))
    names_of: dict[str, set[str]] = defaultdict(set)
    last_parts: dict[str, set[str]] = defaultdict(set)
    for name in known:
        names_of[nfc(name)].add(name)
        last_parts[nfc(name).rsplit("/", 1)[-1]].add(name)
    name_of: dict[str, str] = {}
    # The exact path counts first, then other Unicode forms of it, then the last part alone: a
    # weaker match must not hide a stronger one.
    for provided in paths:
        path = provided if provided in known else provided.replace("\\", "/").strip()
        absolute = os.path.abspath(os.path.expanduser(path))
        candidates = [path, os.path.normpath(path)]
        candidates += [os.path.relpath(absolute, root) for root in folders]
        found = known.intersection(candidates)
        found = found or {name for text in candidates for name in names_of.get(nfc(text), set())}
        matches = sorted(found or last_parts.get(nfc(path), set()))
        if len(matches) > 1:
            raise ValueError(
                f"{source}: {path!r} means {matches[0]!r} or {matches[1]!r}: give paths "
                "relative to the folder of the data"
            )
        if matches:
            name_of[provided] = matches[0]
    return name_of
