"""Windows as a source: time series with several channels."""

import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.files import check_plain_file
from widefield.core.names import printable

_SHORTEST = 16
"""Minimum length: an encoder halves it four times."""
_PANDAS_INDEX = re.compile(r"__index_level_\d+__")
"""Name of the index in files that pandas wrote."""
_COLUMN = "window"


def as_windows(x: NDArray[np.generic], key: str) -> NDArray[np.float32]:
    """Convert windows [n, channels, time] to float32 [n, 1, time, channels].

    [n, time] is one channel. Values keep their units: the encoder normalizes each channel.

    Raises:
        ValueError: another shape or type, fewer than 16 steps, or NaN or infinity.
    """
    x = x[:, None, :] if x.ndim == 2 else x
    if x.ndim != 3 or 0 in x.shape or x.dtype.kind not in "iuf":
        raise ValueError(
            f"key '{key}' is {x.dtype} {list(x.shape)}; expected numbers [n, channels, time]"
        )
    n, channels, steps = x.shape
    if steps < _SHORTEST:
        raise ValueError(
            f"key '{key}' has windows of {channels} channels and {steps} steps of time; expected "
            f"[n, channels, time] with at least {_SHORTEST} steps"
        )
    if channels > steps:
        raise ValueError(
            f"key '{key}' is {list(x.shape)}, with more channels than steps of time; expected "
            "[n, channels, time]: swap the last two axes"
        )
    out = np.empty((n, 1, steps, channels), dtype=np.float32)
    with np.errstate(over="ignore"):
        out[:, 0] = np.moveaxis(x, 1, 2)
    finite = np.isfinite(out).all((1, 2, 3))
    if not finite.all():
        raise ValueError(
            f"key '{key}' holds NaN or infinity in {int((~finite).sum())} of {n} windows "
            f"(first: row {int(np.flatnonzero(~finite)[0])}); leave them out or fill the gaps"
        )
    return out


def read_parquet(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read a Parquet file: column `window` [channels][time] a row; other columns are tasks.

    Raises:
        ValueError: not a Parquet file, the column is missing, or windows of unequal length.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    check_plain_file(path, largest=sys.maxsize)
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        reason = printable(str(error).splitlines()[0])
        raise ValueError(f"'{path}' is not a readable Parquet file: {reason}") from None
    if _COLUMN not in table.column_names:
        raise ValueError(
            f"'{path}' has no column '{_COLUMN}' of lists [channels][time]; "
            f"found {', '.join(map(repr, table.column_names)) or 'none'}"
        )
    arrays: dict[str, NDArray[np.generic]] = {
        "windows": _stacked(table.column(_COLUMN).to_pylist(), path)
    }
    for name in table.column_names:
        column = table.column(name)
        if name == _COLUMN or _PANDAS_INDEX.fullmatch(name):
            continue
        if column.null_count:
            raise ValueError(f"column '{printable(name)}' of '{path}' has gaps; fill them")
        arrays[printable(name)] = np.asarray(column.to_pylist())
    return arrays


def _stacked(rows: list[Any], path: Path) -> NDArray[np.float64]:
    """Return the windows as one array, [n, channels, time] or [n, time]."""
    shapes: dict[tuple[int, ...], int] = {}
    windows = []
    for number, row in enumerate(rows):
        try:
            window = np.asarray(row, dtype=np.float64)
        except (ValueError, TypeError):
            raise ValueError(
                f"row {number} of '{path}' is not a window of numbers [channels][time] with "
                "channels of one length"
            ) from None
        shapes.setdefault(window.shape, number)
        windows.append(window)
    if len(shapes) > 1:
        (one, first), (other, second), *_ = shapes.items()
        raise ValueError(
            f"'{path}' has windows of unequal length: {list(one)} in row {first}, {list(other)} "
            f"in row {second}; cut or pad them to one"
        )
    if not windows:
        raise ValueError(f"'{path}' has no rows; give at least one window")
    return np.stack(windows)
