"""Decoded pixels: in memory where they fit, else in a cache file on disk, decoded once.

A cache entry is a folder named by a hash of everything that decides its content. It is
written under another name and renamed when complete, so an entry that can be seen is whole.
"""

import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.memory import free_host_memory

_FORMAT = 2
"""Part of every key; raised when decoding, resizing or planting changes its result."""

Record = dict[str, Any]
"""What is known once the pixels are: plain JSON values."""


def load_or_build(
    shape: tuple[int, ...],
    build: Callable[[NDArray[np.uint8]], Record],
    *,
    key: Callable[[], str],
    budget: int | None = None,
) -> tuple[NDArray[np.uint8], Record, str]:
    """Return pixels of `shape`, the record that came with them, and where they are, in words.

    `build` writes the pixels into an array and returns the record. Above `budget` bytes (default:
    half of the available memory) that array is a file in the cache, returned as a read-only
    memory map; a second call with the same key finds it and builds nothing.
    """
    size = int(np.prod(shape))
    if size <= (free_host_memory() // 2 if budget is None else budget):
        pixels = np.empty(shape, dtype=np.uint8)
        record = build(pixels)
        return pixels, record, f"kept in memory: {_bytes(size)}"
    entry = cache_folder() / key()
    if not entry.is_dir():
        _write_entry(entry, shape, build)
    record = json.loads((entry / "record.json").read_text())
    mapped = np.load(entry / "pixels.npy", mmap_mode="r", allow_pickle=False)
    return mapped, record, f"kept on disk, too large for memory: {_bytes(size)} in {entry}"


def _write_entry(
    entry: Path, shape: tuple[int, ...], build: Callable[[NDArray[np.uint8]], Record]
) -> None:
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{entry.name}.", dir=entry.parent))
    except OSError as error:
        raise ValueError(
            f"cannot write to the cache '{entry.parent}': {error.strerror}; "
            "set XDG_CACHE_HOME to a folder that can be written"
        ) from None
    try:
        _fill_entry(unfinished, shape, build)
        try:
            unfinished.rename(entry)
        except OSError:
            if not entry.is_dir():  # else another process made the same entry first
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


def _fill_entry(
    folder: Path, shape: tuple[int, ...], build: Callable[[NDArray[np.uint8]], Record]
) -> None:
    size = int(np.prod(shape))
    free = shutil.disk_usage(folder).free
    if size > free:
        raise ValueError(
            f"decoded images need {_bytes(size)} and '{folder.parent}' has {_bytes(free)} free; "
            "set XDG_CACHE_HOME to a larger disk, or choose a smaller image_size or limit"
        )
    pixels = np.lib.format.open_memmap(
        folder / "pixels.npy", mode="w+", dtype=np.uint8, shape=shape
    )
    record = build(pixels)
    pixels.flush()
    (folder / "record.json").write_text(json.dumps(record))


def cache_key(settings: object, names: Iterable[str], files: Iterable[Path]) -> str:
    """Return a name for what `settings`, `names` and `files` (by size and time) decide."""
    digest = hashlib.blake2b(repr((_FORMAT, settings)).encode(), digest_size=16)
    for name in names:
        digest.update(name.encode() + b"\0")
    for file in files:
        try:
            status = file.stat()
            facts = (os.fsencode(file.absolute()), status.st_size, status.st_mtime_ns)
        except OSError:  # it will be skipped, and come to count once it can be read
            facts = (os.fsencode(file.absolute()), -1, -1)
        digest.update(repr(facts).encode())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/widefield`, or `~/.cache/widefield`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "widefield"


def _bytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
