"""What opening and reading data costs, beside the bare calls of the system.

Run by `python -m benchmarks.ratios.data --json benchmarks/results/bench_data.json`.
"""

import io
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from PIL import Image

from widefield.data import Loader, open_dataset

from .command import Result, command
from .timing import steady_ratio, turn_by_turn

_FILES_IN_FOLDER = 500


def bench(
    *,
    files: int = 50_000,
    examples: int = 4_000,
    image_size: int = 96,
    rounds: int = 6,
    tolerance: float = 0.2,
) -> Result:
    """Measure the listing of files, the second opening, and the cache of pixels.

    Seconds are those of the processor, of all threads, which other programs do not change much.
    The caches of the file system do, so the tolerance is larger than that of other benches.

    Returns:
        `ratios`: medians over the rounds of `index/scandir`, the listing of a folder of `files`
        images over a bare scandir and stat of the same; and `cache/memmap`, examples per second of
        a loader over the cache on disk and of a plain memory map of `examples` images of
        `image_size` pixels in the same order;
        `values`: the seconds of the second opening of the folder, whose pixels are cached.

    Raises:
        ValueError: a ratio differs by more than `tolerance` between the halves of the rounds.
    """
    with (
        tempfile.TemporaryDirectory(prefix="widefield-bench-") as temp,
        mock.patch.dict(os.environ, XDG_CACHE_HOME=temp),
    ):
        folder = _folder(Path(temp) / "images", files)
        cpu, clock = torch.device("cpu"), time.process_time
        listing = {"bare": lambda: _bare(folder), "ours": lambda: _index(folder)}
        listed = turn_by_turn(listing, rounds, cpu, clock)
        open_dataset(folder, memory_budget=0)
        again = min(_seconds(lambda: open_dataset(folder, memory_budget=0)) for _ in range(3))
        reading = turn_by_turn(_readers(Path(temp), examples, image_size), rounds, cpu, clock)
    return {
        "ratios": {
            "index/scandir": steady_ratio("index", listed["ours"], listed["bare"], tolerance),
            "cache/memmap": steady_ratio("cache", reading["memmap"], reading["cache"], tolerance),
        },
        "values": {
            "files": files,
            "image_size": image_size,
            "index_seconds": statistics.median(listed["ours"]),
            "second_open_seconds": again,
        },
    }


def _folder(path: Path, count: int) -> Path:
    """Write `count` equal PNG files of 16 pixels, 500 in a folder."""
    content = io.BytesIO()
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    Image.fromarray(pixels).save(content, "PNG")
    for i in range(count):
        if i % _FILES_IN_FOLDER == 0:
            (path / f"{i // _FILES_IN_FOLDER:04d}").mkdir(parents=True)
        (path / f"{i // _FILES_IN_FOLDER:04d}" / f"{i:07d}.png").write_bytes(content.getvalue())
    return path


def _bare(folder: Path | str) -> int:
    count = 0
    for entry in os.scandir(folder):
        entry.stat()
        count += _bare(entry.path) if entry.is_dir() else 1
    return count


def _index(folder: Path) -> object:
    from widefield.data.readers.images import read_folder

    return read_folder(folder)


def _seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def _readers(folder: Path, count: int, side: int) -> dict[str, Callable[[], object]]:
    """Return an epoch of the loader over the cache on disk, and over a plain memory map."""
    x = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    np.savez(folder / "x.npz", x=x)
    dataset = open_dataset(folder / "x.npz", memory_budget=0)
    loader = Loader(dataset, batch_size=256, device=torch.device("cpu"))
    np.save(folder / "plain.npy", x)
    plain = np.load(folder / "plain.npy", mmap_mode="r")

    def epoch_of_loader() -> None:
        for _ in loader.epoch(0):
            pass

    def epoch_of_map() -> torch.Tensor:
        batch = torch.empty(0)
        for index in loader.order(0):  # keeps a batch until the next is there, as a training loop
            batch = torch.from_numpy(plain[index]).permute(0, 3, 1, 2).to(torch.float32).div_(255)
        return batch

    return {"cache": epoch_of_loader, "memmap": epoch_of_map}


if __name__ == "__main__":
    command(bench)
