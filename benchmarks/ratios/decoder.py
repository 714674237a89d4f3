"""Reading encoded images with crops at full resolution, beside the bare decoder.

Its result is written by this command:

    python -m benchmarks.ratios.decoder --rounds 30 --json benchmarks/results/bench_decoder.json
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image
from torchvision.transforms import RandomResizedCrop

from widefield.core.cpus import available_cpus
from widefield.core.hardware import limited_threads
from widefield.core.types import Crop
from widefield.data import Loader, open_dataset

from .command import Result, command
from .timing import steady_ratio, turn_by_turn

_CROP = Crop((0.08, 1.0), (3 / 4, 4 / 3))
_BATCH = 32


def bench(
    *,
    files: int = 128,
    side: int = 500,
    sizes: tuple[int, ...] = (96, 128, 160, 224),
    rounds: int = 8,
    tolerance: float = 0.1,
) -> Result:
    """Measure a loader of encoded JPEG files, whose crops are taken at full resolution.

    The bare decoder is Pillow's, which only decodes each file to an array, in as many threads.
    Seconds are those of the processor, of all threads, which other programs do not change much.

    Returns:
        `ratios`: medians over the rounds of images per second of the loader, at one view of each
        of the `sizes`, over those of the bare decoder: `encoded@96/decoder`; and of the largest
        size over the decoder followed by torchvision's RandomResizedCrop:
        `encoded@224/torchvision`;
        `values`: images per processor second of each.

    Raises:
        ValueError: a ratio differs by more than `tolerance` between the halves of the rounds.
    """
    with (
        limited_threads(1),
        tempfile.TemporaryDirectory(prefix="widefield-bench-") as temp,
        mock.patch.dict(os.environ, XDG_CACHE_HOME=temp),
    ):
        paths = write_photos(Path(temp) / "images", files, side)
        largest = max(sizes)
        cut = RandomResizedCrop(largest, *_CROP)
        contestants = {
            "decoder": lambda: _in_threads(lambda image: image, paths),
            "torchvision": lambda: _in_threads(cut, paths),
            **{f"encoded@{size}": _epoch(Path(temp) / "images", size) for size in sizes},
        }
        seconds = turn_by_turn(contestants, rounds, torch.device("cpu"), time.process_time)
    pairs = [(f"encoded@{size}", "decoder") for size in sizes]
    pairs.append((f"encoded@{largest}", "torchvision"))
    return {
        "ratios": {
            f"{ours}/{other}": steady_ratio(ours, seconds[other], seconds[ours], tolerance)
            for ours, other in pairs
        },
        "values": {
            "files": files,
            "side": side,
            "threads": available_cpus(),
            **{
                f"{name}_images_per_second": files / statistics.median(times)
                for name, times in seconds.items()
            },
        },
    }


def write_photos(folder: Path, count: int, side: int) -> list[Path]:
    """Write mosaics of photographs as square JPEG files of quality 90."""
    crops, rng = open_dataset("photos").images, np.random.default_rng(0)
    folder.mkdir()
    paths = [folder / f"{i:04d}.jpg" for i in range(count)]
    for path in paths:
        tiles = crops[rng.choice(len(crops), 256)].reshape(16, 16, 32, 32, 3).swapaxes(1, 2)
        Image.fromarray(tiles.reshape(512, 512, 3)).resize((side, side)).save(path, quality=90)
    return paths


def _in_threads(change: Callable[[Image.Image], Image.Image], paths: Sequence[Path]) -> None:
    """Decode every file to an array, after a change."""

    def read(path: Path) -> np.ndarray:
        with Image.open(path) as image:
            return np.asarray(change(image.convert("RGB")))

    with ThreadPoolExecutor(available_cpus()) as pool:
        for _ in pool.map(read, paths):
            pass


def _epoch(folder: Path, size: int) -> Callable[[], None]:
    """Return an epoch of a loader of encoded images."""
    dataset = open_dataset(folder, image_size=size, pixels="encoded")
    batch_size = min(_BATCH, len(dataset))
    loader = Loader(dataset, batch_size=batch_size, device=torch.device("cpu"), crop=_CROP)

    def run() -> None:
        for _ in loader.epoch(0):
            pass

    return run


if __name__ == "__main__":
    command(bench)
