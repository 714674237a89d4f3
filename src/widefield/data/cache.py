"""Cache of decoded pixels, in memory if they fit, otherwise memory-mapped from disk; of features.

Pixels are in a file if they do not fit into memory, or come from many files.

A cache entry is a folder named by a hash of everything that determines its content. It is written
under a temporary name and renamed when complete, so every visible entry is complete. What a killed
process decoded is kept under that name with a journal, and the next one goes on from there.
"""

import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import DTypeLike, NDArray

from widefield.core.errors import option
from widefield.core.hardware import free_host_memory

_FORMAT = 9
"""Part of every key; incremented when the result of decoding, resizing or planting changes."""

# Chosen by hand: a second or more of decoding, which every later command saves.
KEPT_FROM = 1_000
"""Number of files from which decoded pixels are kept for later commands."""
# Chosen by hand: a flush of the pixels takes a part of a second.
JOURNAL_SECONDS = 5.0
"""Seconds of decoding that a killed process loses at most."""
# Chosen by hand: what fits into memory is a convenience on disk, which must not fill it.
_FREE_FACTOR = 10
"""Pixels in memory are cached only if the free disk space is this multiple of their size."""
# Chosen by hand: what takes less is made again before the user notices.
KEPT_SECONDS = 5.0
"""Values that took less time than this are not kept for later commands."""
# Chosen by hand: about ten entries of 30,000 images of 224 pixels.
MAX_CACHE_BYTES = 50 * 10**9
"""Limit of the total size of all entries; the least recently used ones are removed."""
# Chosen by hand: an entry that is being decoded is younger.
_STALE_SECONDS = 7 * 24 * 3600
"""Age in seconds above which a temporary entry is left over from a killed process."""
_ENTRY, _TEMP_ENTRY = re.compile(r"[0-9a-f]{32}"), re.compile(r"[0-9a-f]{32}\.\w+")
"""Names of entries; the cache folder has other files too."""

T = TypeVar("T")

Record = dict[str, Any]
"""Metadata of pixels, JSON values."""


class DecodingJournal:
    """What is decoded of an entry: rows that are in its file of pixels, and a result of each.

    Pixels are flushed before their rows are written, so that a row of the journal is decoded.
    """

    done: dict[int, Any]
    """Result of each decoded row, JSON values."""
    shared: Record
    """Facts that all rows share, JSON values."""

    def __init__(self, folder: Path, pixels: "np.memmap[Any, Any]") -> None:
        self.done, self.shared = {}, {}
        self._file, self._pixels = folder / "journal", pixels
        self._new: dict[int, Any] = {}
        self._time = time.monotonic()
        with suppress(OSError, ValueError, KeyError, TypeError):
            for line in self._file.read_text("utf-8").splitlines():
                entry = json.loads(line)  # the last line may be cut off
                self.shared |= entry["facts"]
                self.done |= {int(row): result for row, result in entry["rows"].items()}

    def add(self, row: int, result: object) -> None:
        """Record that a row is decoded; written every few seconds."""
        self._new[row] = result
        if time.monotonic() - self._time > JOURNAL_SECONDS:
            self._write()

    def state(self, shared: Record) -> None:
        """Record facts that all later rows depend on."""
        self.shared |= shared
        self._write()

    def clear(self) -> None:
        """Forget all rows, because their pixels are about to change."""
        self.done.clear()
        self._new.clear()
        self._file.unlink(missing_ok=True)

    def _write(self) -> None:
        self._pixels.flush()
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps({"facts": self.shared, "rows": self._new}) + "\n")
        self._new.clear()
        self._time = time.monotonic()


Build = Callable[[NDArray[Any], DecodingJournal | None], Record]
"""Writes pixels into an array, some of which may be there already, and returns their record."""


def load_or_build(
    shape: tuple[int, ...],
    build: Build,
    *,
    key: Callable[[], str] | None,
    files: int = 0,
    budget: int | None = None,
    dtype: DTypeLike = np.uint8,
    decode_reason: str | None = None,
) -> tuple[NDArray[Any], Record, str]:
    """Return pixels of `shape`, their record, and where they are stored, as text.

    Above `budget` bytes (default: half of the available memory) the array is a file in the cache,
    returned as a read-only memory map. Below, it is in memory, and if it is decoded from many
    `files` in the cache too, if the disk has the space. An entry that the cache has is not built
    again, and a killed build of one is resumed. Without a key, pixels are in memory only. If there
    is no space for those above `budget`, the error names `pixels: encoded` as a remedy, or why it
    is none.
    """
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    in_memory = key is None or size <= (free_host_memory() // 2 if budget is None else budget)
    if key is not None and (files >= KEPT_FROM or not in_memory):
        entry = cache_folder() / key()
        cached = _read_entry(entry, shape, dtype)
        where = f"decoded before into {entry}"
        if cached is None:
            where = f"for later commands in {entry} too"
            try:
                factor = _FREE_FACTOR if in_memory else 1
                _write_entry(entry, shape, dtype, build, factor, decode_reason)
                cached = _read_entry(entry, shape, dtype)
            except CacheError:
                if not in_memory:
                    raise
        if cached is not None:
            pixels, record = cached
            if in_memory:
                return np.array(pixels), record, f"kept in memory: {_bytes(size)}, {where}"
            return pixels, record, f"kept on disk, too large for memory: {_bytes(size)} in {entry}"
        if not in_memory:
            raise ValueError(
                f"cannot read '{entry}' after writing it; set XDG_CACHE_HOME to another folder"
            )
    pixels = np.empty(shape, dtype=dtype)
    return pixels, build(pixels, None), f"kept in memory: {_bytes(size)}"


def missing_space(
    shape: tuple[int, ...], key: Callable[[], str] | None, budget: int | None = None
) -> str | None:
    """Return why neither memory nor the cache can keep pixels of 8 bits; None if one can.

    What the cache has, whole or in part, it can keep.
    """
    size, memory = int(np.prod(shape)), free_host_memory() // 2 if budget is None else budget
    if size <= memory or key is None:
        return None
    entry = cache_folder() / key()
    if entry.exists() or entry.with_name(f"{entry.name}.part").exists():
        return None
    folder = next(path for path in (entry, *entry.parents) if path.exists())
    disk = min(shutil.disk_usage(folder).free, MAX_CACHE_BYTES)
    if size <= disk:
        return None
    return (
        f"decoded images would take {_bytes(size)}, and there are {_bytes(memory)} of memory and "
        f"{_bytes(disk)} of disk for them"
    )


def _read_entry(
    entry: Path, shape: tuple[int, ...], dtype: DTypeLike
) -> tuple[NDArray[Any], Record] | None:
    """Return pixels and record of an entry, or None; a damaged or foreign one is removed."""
    record = read_record(entry)
    pixels = _map(entry / "pixels.npy", shape, dtype, "r")
    if pixels is not None and record is not None:
        with suppress(OSError):  # a read-only cache
            os.utime(entry)  # the time of last use
        return pixels, record
    if os.path.lexists(entry):
        _remove(entry)
    return None


def _map(
    file: Path, shape: tuple[int, ...], dtype: DTypeLike, mode: Literal["r", "r+"]
) -> "np.memmap[Any, Any] | None":
    """Return an array of this shape and type as a memory map; None if the file is another one."""
    with suppress(OSError, ValueError):
        # Mapped first, because a damaged header may have any shape.
        pixels = np.lib.format.open_memmap(file, mode=mode)
        if pixels.shape == shape and pixels.dtype == dtype:
            return pixels
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
    entry: Path,
    shape: tuple[int, ...],
    dtype: DTypeLike,
    build: Build,
    free_factor: int,
    decode_reason: str | None,
) -> None:
    """Build an entry if the disk has `free_factor` times its size free.

    A killed build is resumed. Where another process builds the same entry, this one does so too.
    """
    make_cache_folder(entry.parent)
    try:
        temp_dir, lock = _temp_dir(entry)
    except OSError as error:
        raise _not_writable(entry.parent, error) from None
    try:
        pixels = _map(temp_dir / "pixels.npy", shape, dtype, "r+")
        if pixels is None:
            (temp_dir / "journal").unlink(missing_ok=True)
            size = int(np.prod(shape)) * np.dtype(dtype).itemsize
            _check_space(size, free_factor, temp_dir, decode_reason)
            pixels = np.lib.format.open_memmap(
                temp_dir / "pixels.npy", mode="w+", dtype=np.dtype(dtype), shape=shape
            )
        journal = DecodingJournal(temp_dir, pixels)
        record = build(pixels, journal)
        pixels.flush()
        journal.clear()
        text = json.dumps({**record, "digest": _digest(entry, record)})
        (temp_dir / "record.json").write_text(text, "utf-8")
        try:
            # When it is whole, so that no other process sees a part of it.
            temp_dir.rename(entry)
        except OSError:
            if not entry.is_dir():  # otherwise another process wrote the same entry first
                raise
            shutil.rmtree(temp_dir, ignore_errors=True)
    except BaseException as error:
        # An interrupted build goes on later, and one that failed would fail again.
        can_resume = not isinstance(error, Exception) and (temp_dir / "journal").exists()
        if not can_resume:
            shutil.rmtree(temp_dir, ignore_errors=True)
        raise
    finally:
        os.close(lock)
    prune(entry)


def _temp_dir(entry: Path) -> tuple[Path, int]:
    """Return a locked folder to build an entry in: what a killed process left, or a new one."""
    for name in ("part", secrets.token_hex(4)):
        folder = entry.with_name(f"{entry.name}.{name}")
        folder.mkdir(exist_ok=True)
        lock = os.open(folder, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # another process builds this entry
            os.close(lock)
        else:
            return folder, lock
    raise AssertionError("a new folder is not locked")


def _check_space(size: int, free_factor: int, folder: Path, decode_reason: str | None) -> None:
    free = shutil.disk_usage(folder).free
    if free_factor * size > free:
        encoded = ", or set pixels to encoded"
        if decode_reason is not None:
            encoded = f"; they cannot stay encoded, because the data {decode_reason}"
        raise CacheError(
            f"decoded images need {_bytes(size)} and '{folder.parent}' has {_bytes(free)} free; "
            f"set XDG_CACHE_HOME to a larger disk, choose a smaller {option('image_size')} or "
            f"{option('max_examples')}{encoded}"
        )


def load_or_make(
    key: str, make: Callable[[], T], *, read: Callable[[Path], T], write: Callable[[T, Path], None]
) -> T:
    """Return the value that the cache has under `key`; otherwise make it, and keep a slow one.

    `read` and `write` get the folder of the entry. The cache only saves time: if it cannot be read
    or written, the value is made.
    """
    entry = cache_folder() / key
    if read_record(entry) is not None:
        with suppress(OSError, EOFError, ValueError):
            value = read(entry)
            with suppress(OSError):  # a read-only cache
                os.utime(entry)
            return value
    start = time.monotonic()
    value = make()
    if time.monotonic() - start >= KEPT_SECONDS:
        with suppress(OSError, CacheError):
            _keep(entry, lambda folder: write(value, folder))
    return value


def _keep(entry: Path, write: Callable[[Path], None]) -> None:
    """Write an entry, or nothing if it would take more than a tenth of the free disk space."""
    make_cache_folder(entry.parent)
    folder = entry.with_name(f"{entry.name}.{secrets.token_hex(4)}")
    folder.mkdir()
    try:
        write(folder)
        size = sum(file.stat().st_size for file in folder.iterdir())
        if size * _FREE_FACTOR > size + shutil.disk_usage(folder).free:
            return
        (folder / "record.json").write_text(json.dumps({"digest": _digest(entry, {})}), "utf-8")
        if os.path.lexists(entry):  # a damaged one
            _remove(entry)
        folder.rename(entry)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    prune(entry)


def prune(current: Path) -> None:
    """Remove the least recently used entries beside `current` until all fit into `MAX_CACHE_BYTES`.

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


def cache_key(settings: object, *parts: bytes, files: Iterable[Path] = ()) -> str:
    """Return a hash of `settings`, of digests, and of `files` (by path, size and time)."""
    whole = hashlib.blake2b(repr((_FORMAT, settings)).encode(), digest_size=16)
    for part in (*parts, digest_of_files(files)):
        whole.update(hashlib.blake2b(part).digest())
    return whole.hexdigest()


def digest_of_files(files: Iterable[Path]) -> bytes:
    """Return a hash of the paths of files, and of their sizes, times and modes."""
    return digest([(os.fsencode(file.absolute()), _state(file)) for file in files])


def _state(file: Path) -> tuple[int, ...]:
    try:
        status = file.stat()
    except OSError:  # skipped, like an unreadable file
        return ()
    # A file that could not be read invalidates the entry once its mode lets it be read.
    return status.st_size, status.st_mtime_ns, status.st_mode


def digest(*parts: object) -> bytes:
    """Return a hash of plain values; arrays and columns count by their content."""
    whole = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            whole.update(repr((part.dtype, part.shape)).encode())
            whole.update(np.ascontiguousarray(part).data)
        elif isinstance(part, pa.Array):
            whole.update(repr((part.type, part.offset, len(part))).encode())
            for buffer in part.buffers()[1:]:
                whole.update(buffer)
        else:
            whole.update(repr(part).encode())
    return whole.digest()


def digest_of_example(pixels: NDArray[Any], more: bytes = b"") -> int:
    """Return a 64-bit BLAKE2b digest of the shape and pixels of an example, and of `more`."""
    hash_ = hashlib.blake2b(",".join(map(str, pixels.shape)).encode(), digest_size=8)
    hash_.update(pixels.tobytes())
    hash_.update(more)
    return int.from_bytes(hash_.digest(), "little")


class CacheError(ValueError):
    """The cache cannot be written, or has no space."""


def make_cache_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_writable(folder, error) from None


def _not_writable(folder: Path, error: OSError) -> CacheError:
    return CacheError(
        f"cannot write to the cache '{folder}': {error.strerror}; "
        "set XDG_CACHE_HOME to a folder that can be written"
    )


def cache_folder() -> Path:
    """Return `$XDG_CACHE_HOME/widefield`, or `~/.cache/widefield`."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "widefield"


def _bytes(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"
