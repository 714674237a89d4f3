"""What wide features cost beside pooled ones, and the time to fit a readout.

Run by `python -m benchmarks.ratios.readout --json benchmarks/results/bench_readout.json`.
"""

import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from widefield.core.hardware import choose_device
from widefield.data import open_dataset
from widefield.inference.features import FeatureExtractor, build_untrained
from widefield.probes.wide import fit_on_dataset

from .command import Result, command
from .timing import TOLERANCE, steady_ratio, turn_by_turn


def bench(
    *,
    encoder: str = "resnet-tiny",
    examples: int = 50_000,
    embedded: int = 1024,
    image_size: int = 32,
    rounds: int = 10,
    tolerance: float = TOLERANCE,
) -> Result:
    """Measure images per second of `embed` with wide and with pooled features, turn by turn.

    The encoder is untrained, its readout is fitted once on random images, `examples` of them, and
    `embedded` of these are embedded in each round: from memory, and from a folder of PNG files.

    Returns:
        `ratios`: medians over the rounds of images per second, wide over pooled, by where the
        images are; `values`: the seconds to fit the readout, its width, images per second from
        memory and the settings.

    Raises:
        ValueError: the ratio differs by more than `tolerance` between the halves of the rounds.
    """
    device = choose_device("auto")
    shape = (examples, image_size, image_size, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    module = build_untrained(encoder, images, seed=0)
    dataset = open_dataset({"x": images})
    began = time.perf_counter()
    readout = fit_on_dataset(module, dataset, device=device)
    fit_seconds = time.perf_counter() - began
    pooled = FeatureExtractor(name=encoder, encoder=module, readout=readout)
    wide, few = replace(pooled, kind="wide"), images[:embedded]
    contestants = {
        "pooled": lambda: pooled.features(few, precision="32"),
        "wide": lambda: wide.features(few, precision="32"),
    }
    seconds = turn_by_turn(contestants, rounds, device, time.perf_counter)
    with tempfile.TemporaryDirectory(prefix="widefield-bench-") as folder:
        _write_png(few, Path(folder))
        readers = {
            "pooled": lambda: pooled.features(open_dataset(folder).images, precision="32"),
            "wide": lambda: wide.features(open_dataset(folder).images, precision="32"),
        }
        from_files = turn_by_turn(readers, rounds, device, time.perf_counter)
    return {
        "ratios": {
            name: steady_ratio(name, times["pooled"], times["wide"], tolerance)
            for name, times in (
                ("wide/pooled", seconds),
                ("wide/pooled, from files", from_files),
            )
        },
        "values": {
            "fit_seconds": fit_seconds,
            "dim": readout.dim,
            **{
                f"{name}_images_per_second": embedded / statistics.median(times)
                for name, times in seconds.items()
            },
            "encoder": encoder,
            "examples": examples,
            "embedded": embedded,
            "image_size": image_size,
            "threads": torch.get_num_threads(),
        },
    }


def _write_png(images: NDArray[np.uint8], folder: Path) -> None:
    for i, image in enumerate(images):
        Image.fromarray(image).save(folder / f"{i}.png")


if __name__ == "__main__":
    command(bench)
