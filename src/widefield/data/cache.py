"""Decoded pixels: in memory where they fit, and in a cache file on disk, decoded once.

What does not fit into memory is always cached, and what took long to decode is, so that the next
command on the same images need not wait again.

A cache entry is a folder named by a hash of everything that decides its content. It is
written under another name and renamed when complete, so an entry that can be seen is whole.
"""

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from widefield.core.memory import free_host_memory

_FORMAT = 4
"""Part of every key; raised when decoding, resizing or planting changes its result, or a key names
more of what decides it."""

SLOW = 10.0
"""Seconds of decoding from which on images that fit into memory are cached too."""
_ROOM = 10
"""They are only where the disk has so many times their size free."""
MAX_CACHE_BYTES = 50 * 10**9
"""Bytes of all entries together; those that nobody has used for longest make room for a new one."""
_DEAD = 7 * 24 * 3600
"""Seconds after which an entry that is not finished is one whose process was killed."""
_ENTRY, _UNFINISHED = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{32}\.\w+")
"""Names of entries; the cache's folder holds other things too."""

Record = dict[str, Any]
"""What is known once the pixels are: plain JSON values."""


def load_or_build(
    shape: tuple[int, ...],
    build: Callable[[NDArray[np.uint8]], Record],
    *,
    key: Callable[[], str] | None,
    budget: int | None = None,
) -> tuple[NDArray[np.uint8], Record, str]:
    """Return pixels of `shape`, the record that came with them, and where they are, in words.

    `build` writes the pixels into an array and returns the record. Above `budget` bytes (default:
    half of the available memory) that array is a file in the cache, returned as a read-only
    memory map; a second call with the same key finds it and builds nothing. Below, it is cached if
    building it was slow. Without a key it is kept in memory, and nowhere else.
    """
    size = int(np.prod(shape))
    if key is None:
        pixels = np.empty(shape, dtype=np.uint8)
        return pixels, build(pixels), f"kept in memory: {_bytes(size)}"
    entry = cache_folder() / key()
    fits = size <= (free_host_memory() // 2 if budget is None else budget)
    found = _read_entry(entry, shape, in_memory=fits)
    if fits:
        if found is not None:
            return *found, f"kept in memory: {_bytes(size)}, decoded before into {entry}"
        return _built_in_memory(entry, shape, build)
    if found is None:
        _write_entry(entry, shape, build)
        found = _read_entry(entry, shape, in_memory=False)
        assert found is not None, "it was just written"
    return *found, f"kept on disk, too large for memory: {_bytes(size)} in {entry}"


def _built_in_memory(
    entry: Path, shape: tuple[int, ...], build: Callable[[NDArray[np.uint8]], Record]
) -> tuple[NDArray[np.uint8], Record, str]:
    """Build in memory, and cache what took long if there is room for it."""
    pixels = np.empty(shape, dtype=np.uint8)
    began = time.monotonic()
    record = build(pixels)
    place = f"kept in memory: {_bytes(pixels.nbytes)}"
    if time.monotonic() - began < SLOW:
        return pixels, record, place

    def copy(out: NDArray[np.uint8]) -> Record:
        out[:] = pixels
        return record

    try:
        _write_entry(entry, shape, copy, room=_ROOM)
    except (OSError, ValueError):  # a cache that cannot be written costs the next command time
        return pixels, record, place
    return pixels, record, f"{place}, for later commands in {entry} too"


def _read_entry(
    entry: Path, shape: tuple[int, ...], *, in_memory: bool
) -> tuple[NDArray[np.uint8], Record] | None:
    """Return pixels and record of an entry; None if there is none, or it is damaged."""
    if not entry.is_dir():
        return None
    record = _read_record(entry)
    try:
        mode: Literal["r"] | None = None if in_memory else "r"
        pixels = np.load(entry / "pixels.npy", mmap_mode=mode, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        pixels = np.empty(0)
    if pixels.shape == shape and pixels.dtype == np.uint8 and record is not None:
        with suppress(OSError):  # of a cache that can only be read
            os.utime(entry)  # it is in use
        return pixels, record
    shutil.rmtree(entry, ignore_errors=True)
    return None


def _read_record(entry: Path) -> Record | None:
    try:
        record = json.loads((entry / "record.json").read_text())
    except (OSError, ValueError):
        return None
    return record if isinstance(record, dict) else None


def cached_record(key: str) -> Record | None:
    """Return what is known of cached pixels; None if there are none of that key."""
    return _read_record(cache_folder() / key)


def _write_entry(
    entry: Path,
    shape: tuple[int, ...],
    build: Callable[[NDArray[np.uint8]], Record],
    *,
    room: int = 1,
) -> None:
    """Build an entry where the disk has `room` times its size free."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        unfinished = Path(tempfile.mkdtemp(prefix=f"{entry.name}.", dir=entry.parent))
    except OSError as error:
        raise ValueError(
            f"cannot write to the cache '{entry.parent}': {error.strerror}; "
            "set XDG_CACHE_HOME to a folder that can be written"
        ) from None
    try:
        _fill_entry(unfinished, shape, build, room)
        try:
            unfinished.rename(entry)
        except OSError:
            if not entry.is_dir():  # else another process made the same entry first
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    _prune(entry)


def _prune(kept: Path) -> None:
    """Remove entries, the longest unused first, until all fit into `MAX_CACHE_BYTES` bytes.

    A process that has an entry open goes on with it: its file stays until it is closed.
    """
    entries: list[tuple[float, int, Path]] = []
    for path in kept.parent.iterdir():
        with suppress(OSError):  # another process may be removing it
            age = time.time() - path.stat().st_mtime
            if _ENTRY.fullmatch(path.name):
                entries.append((age, sum(file.stat().st_size for file in path.iterdir()), path))
            elif _UNFINISHED.fullmatch(path.name) and age > _DEAD:
                _remove(path)
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries, reverse=True):
        if total > MAX_CACHE_BYTES and path != kept:
            _remove(path)
            total -= size


def _remove(entry: Path) -> None:
    """Take an entry away in one step, so that nobody finds half of it, and then delete it."""
    with suppress(OSError):  # another process was first
        grave = Path(tempfile.mkdtemp(prefix=f"{entry.name[:32]}.", dir=entry.parent))
        try:
            entry.rename(grave / "entry")
        finally:
            shutil.rmtree(grave, ignore_errors=True)


def _fill_entry(
    folder: Path,
    shape: tuple[int, ...],
    build: Callable[[NDArray[np.uint8]], Record],
    room: int,
) -> None:
    size = int(np.prod(shape))
    free = shutil.disk_usage(folder).free
    if room * size > free:
        raise ValueError(
            f"decoded images need {_bytes(size)} and '{folder.parent}' has {_bytes(free)} free; "
            "set XDG_CACHE_HOME to a larger disk, or choose a smaller image_size or max_examples"
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
            readable = os.access(file, os.R_OK)  # what was skipped comes to count once it is
            facts = (os.fsencode(file.absolute()), status.st_size, status.st_mtime_ns, readable)
        except OSError:  # it will be skipped, and come to count once it can be read
            facts = (os.fsencode(file.absolute()), -1, -1, False)
        digest.update(repr(facts).encode())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/widefield`, or `~/.cache/widefield`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "widefield"


def _bytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
