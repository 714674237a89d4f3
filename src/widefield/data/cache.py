"""Cache of decoded pixels: in memory if they fit, otherwise memory-mapped from disk.

Pixels are cached on disk if they do not fit into memory or were slow to decode.

A cache entry is a folder named by a hash of everything that determines its content. It is written
under a temporary name and renamed when complete, so every visible entry is complete.
"""

import hashlib
import json
import os
import re
import secrets
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.memory import free_host_memory

_FORMAT = 6
"""Part of every key; incremented when the result of decoding, resizing or planting changes."""

SLOW = 10.0
"""Decoding time in seconds above which pixels in memory are cached too."""
_FREE_FACTOR = 10
"""Pixels in memory are cached only if the free disk space is this multiple of their size."""
MAX_CACHE_BYTES = 50 * 10**9
"""Limit of the total size of all entries; the least recently used ones are removed."""
_STALE_SECONDS = 7 * 24 * 3600
"""Age in seconds above which a temporary entry is left over from a killed process."""
_ENTRY, _TEMP_ENTRY = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{32}\.\w+")
"""Names of entries; the cache folder has other files too."""

Record = dict[str, Any]
"""Metadata of pixels, JSON values."""
Build = Callable[[NDArray[np.uint8]], Record]
"""Writes pixels into an array and returns their record."""


def load_or_build(
    shape: tuple[int, ...],
    build: Build,
    *,
    key: Callable[[], str] | None,
    budget: int | None = None,
) -> tuple[NDArray[np.uint8], Record, str]:
    """Return pixels of `shape`, their record, and where they are stored, as text.

    Above `budget` bytes (default: half of the available memory) the array is a file in the cache,
    returned as a read-only memory map. Below, it is in memory, and cached if `build` was slow.
    Cached pixels are not built again. Without a key, pixels are kept in memory only.
    """
    size = int(np.prod(shape))
    if key is None:
        pixels = np.empty(shape, dtype=np.uint8)
        return pixels, build(pixels), f"kept in memory: {_bytes(size)}"
    entry = cache_folder() / key()
    in_memory = size <= (free_host_memory() // 2 if budget is None else budget)
    cached = _read_entry(entry, shape, in_memory=in_memory)
    if in_memory:
        if cached is not None:
            return *cached, f"kept in memory: {_bytes(size)}, decoded before into {entry}"
        return _build_in_memory(entry, shape, build)
    if cached is None:
        _write_entry(entry, shape, build)
        cached = _read_entry(entry, shape, in_memory=False)
    if cached is None:
        raise ValueError(
            f"cannot read '{entry}' after writing it; set XDG_CACHE_HOME to another folder"
        )
    return *cached, f"kept on disk, too large for memory: {_bytes(size)} in {entry}"


def _build_in_memory(
    entry: Path, shape: tuple[int, ...], build: Build
) -> tuple[NDArray[np.uint8], Record, str]:
    """Build in memory; cache the result if that was slow and the disk has space."""
    pixels = np.empty(shape, dtype=np.uint8)
    start_time = time.monotonic()
    record = build(pixels)
    storage = f"kept in memory: {_bytes(pixels.nbytes)}"
    if time.monotonic() - start_time < SLOW:
        return pixels, record, storage

    def copy(out: NDArray[np.uint8]) -> Record:
        out[:] = pixels
        return record

    try:
        _write_entry(entry, shape, copy, free_factor=_FREE_FACTOR)
    except (OSError, ValueError):  # without a cache the next command decodes again
        return pixels, record, storage
    return pixels, record, f"{storage}, for later commands in {entry} too"


def _read_entry(
    entry: Path, shape: tuple[int, ...], *, in_memory: bool
) -> tuple[NDArray[np.uint8], Record] | None:
    """Return pixels and record of an entry, or None; a damaged or foreign one is removed."""
    record = read_record(entry)
    with suppress(OSError, ValueError):
        # Mapped first, because a damaged header may have any shape.
        pixels: NDArray[np.uint8] = np.lib.format.open_memmap(entry / "pixels.npy", mode="r")
        if pixels.shape == shape and pixels.dtype == np.uint8 and record is not None:
            with suppress(OSError):  # a read-only cache
                os.utime(entry)  # the time of last use
            return np.array(pixels) if in_memory else pixels, record
    if os.path.lexists(entry):
        _remove(entry)
    return None


def read_record(entry: Path) -> Record | None:
    """Return the record of an entry, or None if it is missing, damaged or that of another entry."""
    try:
        record = json.loads((entry / "record.json").read_text("utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    digest = record.pop("digest", None) if isinstance(record, dict) else None
    return record if digest == _digest(entry, record) else None


def _digest(entry: Path, record: Record) -> str:
    """Return a hash of a record and of the entry that it belongs to."""
    text = f"{entry.name}\n{json.dumps(record)}"
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def _write_entry(
    entry: Path, shape: tuple[int, ...], build: Build, *, free_factor: int = 1
) -> None:
    """Build an entry if the disk has `free_factor` times its size free."""
    try:
        entry.parent.mkdir(parents=True, exist_ok=True)
        temp_dir = Path(tempfile.mkdtemp(prefix=f"{entry.name}.", dir=entry.parent))
    except OSError as error:
        raise ValueError(
            f"cannot write to the cache '{entry.parent}': {error.strerror}; "
            "set XDG_CACHE_HOME to a folder that can be written"
        ) from None
    try:
        size, free = int(np.prod(shape)), shutil.disk_usage(temp_dir).free
        if free_factor * size > free:
            raise ValueError(
                f"decoded images need {_bytes(size)} and '{entry.parent}' has {_bytes(free)} free; "
                "set XDG_CACHE_HOME to a larger disk, or choose a smaller image_size or "
                "max_examples"
            )
        pixels = np.lib.format.open_memmap(
            temp_dir / "pixels.npy", mode="w+", dtype=np.uint8, shape=shape
        )
        record = build(pixels)
        pixels.flush()
        text = json.dumps({**record, "digest": _digest(entry, record)})
        (temp_dir / "record.json").write_text(text, "utf-8")
        try:
            temp_dir.rename(entry)
        except OSError:
            if not entry.is_dir():  # otherwise another process wrote the same entry first
                raise
    finally:
        shutil.rmtree(temp_dir, ignore_errors=True)
    _prune(entry)


def _prune(current: Path) -> None:
    """Remove the least recently used entries until all fit into `MAX_CACHE_BYTES`.

    A process that has an entry open can still use it: the file exists until it is closed.
    """
    entries: list[tuple[float, int, Path]] = []
    for path in current.parent.iterdir():
        with suppress(OSError):  # another process may be removing it
            age = time.time() - path.stat().st_mtime
            if _ENTRY.fullmatch(path.name):
                entries.append((age, sum(file.stat().st_size for file in path.iterdir()), path))
            elif _TEMP_ENTRY.fullmatch(path.name) and age > _STALE_SECONDS:
                _remove(path)
    total = sum(size for _, size, _ in entries)
    for _, size, path in sorted(entries, reverse=True):
        if total > MAX_CACHE_BYTES and path != current:
            _remove(path)
            total -= size


def _remove(entry: Path) -> None:
    """Rename an entry, so that no process sees a part of it, then delete it."""
    with suppress(OSError):  # another process removed it first
        # In the same folder, because a folder that cannot be written cannot be moved to another.
        renamed = entry.with_name(f"{entry.name[:32]}.{secrets.token_hex(4)}")
        entry.rename(renamed)
        if renamed.is_dir() and not renamed.is_symlink():
            renamed.chmod(0o700)
            shutil.rmtree(renamed, ignore_errors=True)
        else:
            renamed.unlink()


def cache_key(settings: object, names: Iterable[str], files: Iterable[Path]) -> str:
    """Return a hash of `settings`, `names` and `files` (by path, size and time)."""
    digest = hashlib.blake2b(repr((_FORMAT, settings)).encode(), digest_size=16)
    for name in names:
        digest.update(name.encode() + b"\0")
    for file in files:
        try:
            status = file.stat()
            # A skipped file invalidates the entry once it is readable.
            state = (status.st_size, status.st_mtime_ns, os.access(file, os.R_OK))
        except OSError:  # skipped, like an unreadable file
            state = (-1, -1, False)
        digest.update(repr((os.fsencode(file.absolute()), *state)).encode())
    return digest.hexdigest()


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/widefield`, or `~/.cache/widefield`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "widefield"


def _bytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
