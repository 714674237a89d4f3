"""What 10^5 to 10^7 examples cost before and between the steps, each in a process of its own.

    python benchmarks/scale.py --json benchmarks/results/scale.json

A table of paths stands for the files: none is opened. Shuffling is the order of an epoch. Seconds
are those of the processor, of all threads.
"""

import resource
import tempfile
import time
from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ratios.command import Result, command
from widefield.core import rng
from widefield.data.readers.manifest import read_manifest

SIZES = (10**5, 10**6, 10**7)


def bench(*, sizes: tuple[int, ...] = SIZES) -> Result:
    """Measure seconds and bytes of opening and shuffling each number of examples."""
    return {"rows": [measure(size) for size in sizes]}


def measure(count: int) -> dict[str, Any]:
    """Return the costs of `count` examples: seconds and bytes."""
    with tempfile.TemporaryDirectory(prefix="widefield-scale-") as folder:
        file = write_manifest(Path(folder), count)
        size = file.stat().st_size
        with get_context("spawn").Pool(1, maxtasksperchild=1) as pool:
            seconds, memory = pool.apply(open_manifest, (file,))
    return {
        "examples": count,
        "open_seconds": seconds,
        "open_bytes": memory,
        "manifest_bytes": size,
        "shuffle_seconds": _seconds(lambda: rng.shuffled(0, "epoch 0", np.arange(count))),
    }


def write_manifest(folder: Path, rows: int) -> Path:
    """Write a table of paths with two columns of labels."""
    numbers = np.arange(rows)
    text = pa.array(numbers).cast(pa.string())
    paths = pc.binary_join_element_wise("images/photo-", text, ".jpg", "")
    classes = pa.array(np.char.add("class ", np.arange(1_000).astype(str)))
    columns = {
        "path": paths,
        "class": pa.DictionaryArray.from_arrays(pa.array(numbers % 1_000), classes),
        "site": pa.array(numbers % 7),
    }
    pq.write_table(pa.table(columns), folder / "manifest.parquet")
    return folder / "manifest.parquet"


def open_manifest(file: Path) -> tuple[float, int]:
    """Return seconds and additional peak memory in bytes of opening a manifest."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seconds = _seconds(lambda: read_manifest(file))
    return seconds, 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def main() -> None:
    """Measure as the command line says."""
    command(bench)


if __name__ == "__main__":
    main()
