"""The file of predictions, as `.parquet` or `.csv`."""

from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from widefield.core.files import checked_output, write_atomically

PREDICTION_FORMATS = (".parquet", ".csv")
"""Formats of a file of predictions."""


def write_predictions(table: pa.Table, path: str | Path) -> None:
    """Write a table with a row for each image, over a file that is there."""
    path = checked_output(path, PREDICTION_FORMATS, overwrite=True)
    write = pyarrow.csv.write_csv if path.suffix == ".csv" else pq.write_table
    write_atomically(path, lambda temp_path: write(table, temp_path))
