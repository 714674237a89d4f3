"""A table of files as a source: a CSV or Parquet file with a column of paths."""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from widefield.core.files import check_plain_file
from widefield.core.names import printable, reason_of
from widefield.data.cache import digest_of_files
from widefield.data.examples import Examples
from widefield.data.labels.columns import read_split, read_tasks
from widefield.data.labels.files import checked_names, csv_format, path_column
from widefield.data.readers.images import FolderFiles
from widefield.data.readers.recordings import SUFFIXES as SOUND_SUFFIXES
from widefield.data.readers.recordings import Recordings
from widefield.data.readers.remote import remote_files
from widefield.data.readers.tables import read_columns
from widefield.data.spec import is_url
from widefield.data.table import Names, Skipped


def read_manifest(file: Path) -> Examples:
    """Read a table with a column `path`, a column `split` if there is one, and tasks.

    Paths are relative to the folder of the table, or URLs. No listed file is opened: those that are
    missing count as unreadable. Rows of one path must be equal, and count once.
    """
    source = f"'{printable(str(file))}'"
    table = read_columns(file) if file.suffix.lower() == ".parquet" else _read_csv(file)
    path = _path_column(table.column_names, source)
    table, skipped = _without_repeated(table, path, source)
    if not len(table):
        raise ValueError(f"{source} lists no files: give at least one")
    names = Names(table[path])
    rows = read_tasks(table, names, (path, "split"))
    notes = tuple(f"{source}: {note}" for note in rows.notes)
    are_remote = is_url(names[0])
    are_sounds = os.path.splitext(names[0])[1].lower() in SOUND_SUFFIXES
    if are_remote and are_sounds:
        raise ValueError(f"{source} lists URLs of sounds: download these, and list the files")
    files: Sequence[Any] = remote_files(names) if are_remote else FolderFiles(file.parent, names)
    return Examples(
        **vars(replace(rows, skipped=skipped, notes=notes)),
        files=None if are_sounds else files,
        recordings=Recordings(sounds=list(files)) if are_sounds else None,
        is_test=read_split(table, source),
        origin=partial(_digest, file, () if are_remote else files),
    )


def _path_column(names: Sequence[str], source: str) -> str:
    path = path_column(names)
    if path is None:
        raise ValueError(
            f"{source} has no column 'path': a table lists images or sounds by their paths; give "
            "values of sensors as windows [n, channels, time], key 'windows' of a .npz file"
        )
    return path


def _digest(file: Path, files: Sequence[Path]) -> bytes:
    return digest_of_files([file, *files])


def _read_csv(file: Path) -> pa.Table:
    source = printable(str(file))
    check_plain_file(file, largest=sys.maxsize)
    encoding, delimiter, names = csv_format(file, source)
    _path_column(names, source)
    checked_names(names, source)
    try:
        return pa.csv.read_csv(
            file,
            read_options=pa.csv.ReadOptions(encoding=encoding, column_names=names, skip_rows=1),
            parse_options=pa.csv.ParseOptions(delimiter=delimiter, newlines_in_values=True),
            convert_options=pa.csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.string()),
                include_columns=[name for name in names if name],
                strings_can_be_null=False,
            ),
        )
    except (pa.ArrowException, OSError) as error:
        reason = reason_of(error)
        raise ValueError(f"{source} is not a CSV file in UTF-8: {reason}; save it as one") from None


def _without_repeated(
    table: pa.Table, path: str, source: str
) -> tuple[pa.Table, tuple[Skipped, ...]]:
    """Return the first row of each path, and the rows that are left out."""
    column = pc.fill_null(table[path].cast(pa.large_string()), "")
    table = table.set_column(table.column_names.index(path), path, column)
    if len(column.unique()) == len(column) and not pc.any(pc.equal(column, "")).as_py():
        return table, ()
    rows = pa.table({"path": column, "row": np.arange(len(column))})
    first = np.sort(np.asarray(rows.group_by("path").aggregate([("row", "min")])["row_min"]))
    kept = first[np.asarray(pc.not_equal(column.take(pa.array(first)), ""))]
    left_out = np.setdiff1d(np.arange(len(column)), kept)
    names = column.take(pa.array(left_out)).to_pylist()
    _check_equal(table.take(pa.array(kept)), table.take(pa.array(left_out)), path, source)
    return table.take(pa.array(kept)), tuple(
        Skipped(printable(name) or f"row {row}", "listed twice" if name else "a row without a path")
        for name, row in zip(names, left_out.tolist(), strict=True)
    )


def _check_equal(first: pa.Table, repeated: pa.Table, path: str, source: str) -> None:
    """Check that repeated rows are equal to the first ones of their paths."""
    row_of = pc.index_in(repeated[path], value_set=first[path])
    are_known = pc.is_valid(row_of)
    before, after = first.take(row_of.filter(are_known)), repeated.filter(are_known)
    for name in first.column_names:
        pairs = zip(before[name].to_pylist(), after[name].to_pylist(), after[path], strict=True)
        conflict = next(((a, b, file) for a, b, file in pairs if a != b), None)
        if conflict is not None:
            a, b, file = conflict
            raise ValueError(
                f"{source} lists {file.as_py()!r} twice, with {printable(name)} {a!r} and {b!r}: "
                "keep one row of each path; several labels are one cell, such as a|b"
            )
