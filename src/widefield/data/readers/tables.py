"""Parquet and Arrow files of encoded images or windows, saved Hugging Face data sets."""

import json
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from widefield.core.files import check_plain_file
from widefield.core.names import printable, reason_of
from widefield.data.examples import Encoded, Examples
from widefield.data.labels.columns import read_split, read_tasks
from widefield.data.labels.files import path_column
from widefield.data.table import Names

_IMAGE_NAMES = ("image", "img", "images", "picture", "bytes", "jpg", "png")
"""Columns that are taken if several hold bytes."""
_KEPT_GROUPS = 4
"""Row groups of Parquet files in memory, chosen by hand: threads read neighboring rows."""
_WINDOW = "window"
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""Name of the index in files that pandas wrote."""


class ArrowImages(Sequence[Encoded]):
    """A column of encoded images in memory or in a memory map, read without a copy."""

    def __init__(self, column: pa.ChunkedArray) -> None:
        self._chunks = column.chunks
        self._starts = np.cumsum([0, *map(len, self._chunks)])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: Any) -> Any:
        chunk = int(np.searchsorted(self._starts, index, side="right")) - 1
        return _encoded(self._chunks[chunk][int(index) - int(self._starts[chunk])])


class ParquetImages(Sequence[Encoded]):
    """A column of encoded images in Parquet files; a few row groups at a time are in memory."""

    def __init__(self, files: Sequence[Path], column: str) -> None:
        self._files, self._column = files, column
        self._groups: list[tuple[int, int]] = []
        counts = [0]
        for number, file in enumerate(files):
            metadata = pq.read_metadata(file)
            for group in range(metadata.num_row_groups):
                self._groups.append((number, group))
                counts.append(metadata.row_group(group).num_rows)
        self._starts = np.cumsum(counts)
        self._kept: OrderedDict[int, ArrowImages] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return int(self._starts[-1])

    def __getitem__(self, index: Any) -> Any:
        group = int(np.searchsorted(self._starts, index, side="right")) - 1
        return self._read(group)[int(index) - int(self._starts[group])]

    def _read(self, group: int) -> ArrowImages:
        # Locked while it reads: threads that ask for neighboring rows would each decode the group.
        with self._lock:
            if group not in self._kept:
                number, part = self._groups[group]
                file = pq.ParquetFile(self._files[number])
                column = file.read_row_group(part, columns=[self._column])[self._column]
                self._kept[group] = ArrowImages(column)
                if len(self._kept) > _KEPT_GROUPS:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(group)
            return self._kept[group]


def _encoded(value: pa.Scalar) -> Encoded:
    """Return an image of a cell: bytes, or Hugging Face's record of bytes and path."""
    path = None
    if isinstance(value, pa.StructScalar) and value.is_valid:
        fields = dict(value.items())
        value, path = fields["bytes"], fields.get("path")
    if value.is_valid:
        return memoryview(value.as_buffer())
    if path is not None and path.is_valid:
        return Path(path.as_py())
    raise ValueError("a row without an image")


def read_tables(files: Sequence[Path], source: str) -> Examples:
    """Read Parquet files, or Arrow files and streams, whose columns are equal.

    One column holds the encoded images, a column `path` their names, `split` their split; the other
    columns are tasks.
    """
    if files[0].suffix.lower() != ".parquet":
        tables = [_read_arrow(file) for file in files]
        _check_equal([table.schema for table in tables], files)
        return read_table(pa.concat_tables(tables), source)
    schemas = [read_schema(file) for file in files]
    _check_equal(schemas, files)
    image = _image_column(schemas[0], source)
    rest = [name for name in schemas[0].names if name != image]
    columns = pa.concat_tables([read_columns(file, rest) for file in files])
    return _examples(columns, ParquetImages(files, image), schemas[0], source)


def read_table(table: pa.Table, source: str) -> Examples:
    """Read a table in memory, or one that is memory-mapped."""
    image = _image_column(table.schema, source)
    return _examples(table.drop_columns([image]), ArrowImages(table[image]), table.schema, source)


def saved_files(folder: Path) -> list[Path] | None:
    """Return the Arrow files of a folder that `datasets.Dataset.save_to_disk` wrote; else None."""
    if (folder / "dataset_dict.json").is_file():
        splits = _json(folder / "dataset_dict.json").get("splits", [])
        example = next((split for split in splits if "train" in split), "train")
        raise ValueError(
            f"'{folder}' holds the splits {' and '.join(map(str, splits))}: name one of them, such "
            f"as '{folder / example}'"
        )
    if not (folder / "state.json").is_file():
        return None
    parts = _json(folder / "state.json").get("_data_files", [])
    files = [folder / str(part.get("filename")) for part in parts]
    if not files:
        raise ValueError(f"'{folder}' is a saved data set without files of data: save it again")
    return files


def read_schema(file: Path) -> pa.Schema:
    check_plain_file(file, largest=sys.maxsize)
    try:
        return pq.read_schema(file)
    except (pa.ArrowException, OSError) as error:
        raise _read_error(file, "Parquet", error) from None


def read_columns(file: Path, names: list[str] | None = None) -> pa.Table:
    """Read the columns `names` of a Parquet file, or all of them."""
    try:
        return pq.read_table(file, columns=names)
    except (pa.ArrowException, OSError) as error:
        raise _read_error(file, "Parquet", error) from None


def _image_column(schema: pa.Schema, source: str) -> str:
    found = image_columns(schema)
    if not found:
        raise ValueError(
            f"{source} has no column of encoded images: expected bytes of JPEG or PNG files; found "
            f"{', '.join(map(repr, map(printable, schema.names))) or 'no column'}"
        )
    named = [name for common in _IMAGE_NAMES for name in found if name.lower() == common]
    if len(found) > 1 and not named:
        raise ValueError(
            f"{source} has several columns of bytes, {' and '.join(map(printable, found))}: name "
            "the one with the images 'image', or leave the others out"
        )
    return (named or found)[0]


def image_columns(schema: pa.Schema) -> list[str]:
    """Return the columns of a table that can hold encoded images."""
    names = [name for name, kind in _features(schema).items() if kind.get("_type") == "Image"]
    return names or [each.name for each in schema if _has_bytes(each.type)]


def _has_bytes(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.get_field_index("bytes") >= 0
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)


def _examples(
    columns: pa.Table, images: Sequence[Encoded], schema: pa.Schema, source: str
) -> Examples:
    """Return `images` with the names and tasks of their other columns."""
    if not len(images):
        raise ValueError(f"{source} has no rows: give at least one image")
    path = path_column(columns.column_names)
    is_name = path is not None and _is_unique_text(columns[path])
    names = Names(columns[path]) if is_name else Names.of_rows(len(images))
    return Examples(
        **vars(read_tasks(columns, names, ("split", path or ""), _class_labels(schema))),
        files=images,
        is_test=read_split(columns, source),
    )


def _is_unique_text(column: pa.ChunkedArray) -> bool:
    is_text = pa.types.is_string(column.type) or pa.types.is_large_string(column.type)
    return is_text and not column.null_count and len(column.unique()) == len(column)


def _features(schema: pa.Schema) -> dict[str, dict[str, Any]]:
    """Return the features by which `datasets` describes columns; empty if there are none."""
    try:
        features = json.loads((schema.metadata or {})[b"huggingface"])["info"]["features"]
    except (KeyError, TypeError, ValueError):
        return {}
    names = set(schema.names)
    return {n: kind for n, kind in features.items() if n in names and isinstance(kind, dict)}


def _class_labels(schema: pa.Schema) -> dict[str, tuple[str, ...]]:
    """Return column -> names of its classes, of columns that `datasets` describes."""
    return {
        name: tuple(kind["names"])
        for name, kind in _features(schema).items()
        if kind.get("_type") == "ClassLabel"
    }


def _check_equal(schemas: Sequence[pa.Schema], files: Sequence[Path]) -> None:
    for schema, file in zip(schemas, files, strict=True):
        if not schema.equals(schemas[0]):
            raise ValueError(
                f"'{file}' has other columns than '{files[0]}': give shards of one table"
            )
        known = _class_labels(schemas[0])
        for name, classes in _class_labels(schema).items():
            if classes != known.get(name, classes):
                raise ValueError(
                    f"'{file}' names the classes of {printable(name)!r} otherwise than "
                    f"'{files[0]}': write both with one list of names, in one order"
                )


def _read_arrow(file: Path) -> pa.Table:
    """Map an Arrow file or stream into memory."""
    check_plain_file(file, largest=sys.maxsize)
    try:
        source = pa.memory_map(str(file))
        try:  # `datasets` writes streams, other programs files
            return pa.ipc.open_stream(source).read_all()
        except pa.ArrowInvalid:
            source.seek(0)
            return pa.ipc.open_file(source).read_all()
    except (pa.ArrowException, OSError) as error:
        raise _read_error(file, "Arrow", error) from None


def read_windows(file: Path) -> dict[str, NDArray[np.generic]]:
    """Read a Parquet file: `window` [channels][time] a row; columns but `split` are tasks."""
    table = read_columns(file)
    arrays: dict[str, NDArray[np.generic]] = {}
    for name in table.column_names:
        column = table.column(name)
        if name == _WINDOW:
            arrays["windows"] = _stacked(column.to_pylist(), file)
        elif name == "split" or _PANDAS_INDEX.fullmatch(name):
            continue
        elif column.null_count:
            raise ValueError(f"column '{printable(name)}' of '{file}' has gaps; fill them")
        else:
            arrays[printable(name)] = np.asarray(column.to_pylist())
    return arrays


def _stacked(rows: list[Any], file: Path) -> NDArray[np.float64]:
    """Return the windows as one array, [n, channels, time] or [n, time]."""
    shapes: dict[tuple[int, ...], int] = {}
    windows = []
    for number, row in enumerate(rows):
        try:
            window = np.asarray(row, dtype=np.float64)
        except (ValueError, TypeError):
            raise ValueError(
                f"row {number} of '{file}' is not a window of numbers [channels][time] with "
                "channels of one length"
            ) from None
        shapes.setdefault(window.shape, number)
        windows.append(window)
    if len(shapes) > 1:
        (one, first), (other, second), *_ = shapes.items()
        raise ValueError(
            f"'{file}' has windows of unequal length: {list(one)} in row {first}, {list(other)} "
            f"in row {second}; cut or pad them to one"
        )
    if not windows:
        raise ValueError(f"'{file}' has no rows; give at least one window")
    return np.stack(windows)


def _read_error(file: Path, kind: str, error: Exception) -> ValueError:
    return ValueError(f"'{file}' is not a readable {kind} file: {reason_of(error)}")


def _json(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"'{file}' cannot be read: save the data set again") from error
    if not isinstance(value, dict):
        raise ValueError(f"'{file}' cannot be read: save the data set again")
    return value
