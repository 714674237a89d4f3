"""What 10^5 to 10^7 examples cost before and between the steps, each in a process of its own.

    python benchmarks/scale.py --json benchmarks/results/scale.json

A table of paths stands for the files: none is opened. Shuffling is the order of an epoch. Seconds
are those of the processor, of all threads.
"""

import argparse
import json
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

from ratios.data import open_manifest, write_manifest
from widefield.core import rng
from widefield.core.hardware import choose_device, machine

SIZES = (10**5, 10**6, 10**7)


def shuffle_seconds(count: int) -> float:
    """Return the seconds in which the order of an epoch is made."""
    began = time.process_time()
    rng.shuffled(0, "epoch 0", np.arange(count))
    return time.process_time() - began


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
        "shuffle_seconds": shuffle_seconds(count),
    }


def main() -> None:
    """Measure every size, and write the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--json", type=Path, required=True)
    args = parser.parse_args()
    result = {"rows": [measure(n) for n in SIZES], "machine": machine(choose_device("cpu"))}
    args.json.write_text(json.dumps(result, indent=2) + "\n")
    print(args.json.read_text())


if __name__ == "__main__":
    main()
