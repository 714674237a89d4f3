"""Folders of images or sounds, and the common size of images."""

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from widefield.core.names import printable
from widefield.core.types import Size
from widefield.data.cache import digest
from widefield.data.decode.images import header_size
from widefield.data.examples import Encoded, Examples
from widefield.data.labels.folders import read_folders
from widefield.data.readers.recordings import Recordings
from widefield.data.readers.tree import is_hidden, is_system_folder, sort_out
from widefield.data.table import Names

_LARGEST_SIDE = 224  # the usual side in training on ImageNet
_SIZE_SAMPLE = 1_000  # headers, chosen by hand
_LISTING_THREADS = 8
"""Folders that are listed at once: disks of a network answer late."""
FileState = tuple[int, int, int]
"""Size, modification time in nanoseconds and mode of a file: (-1, -1, 0) of a broken link."""
_NO_FILE: FileState = (-1, -1, 0)

_REPEATED_LINK, _SPECIAL = "links to folders that were read already", "pipes, sockets or devices"


def read_folder(folder: Path, *, labels: bool = False) -> Examples:
    """List the images or sounds under `folder`, sorted by relative path, without decoding them.

    What is read is as in `tree`, and classes are as in `labels.folders`. Links are followed, each
    folder once. Special files and other suffixes are counted in a note. With `labels` from
    elsewhere, folders are no classes.
    """
    ignored: Counter[str] = Counter()
    system_files: Counter[str] = Counter()
    states = dict(_walk(folder, ignored, system_files))
    paths = sorted(states)
    tree = sort_out(paths, f"'{printable(str(folder))}'", ignored, system_files)
    if not tree.rows:
        others = "".join(f" ({note})" for note in tree.notes[:1])
        raise ValueError(
            f"no images under '{folder}'{others}; expected files such as .jpg, .png, .tif "
            "or .webp, or .wav, .flac, .ogg or .mp3"
        )
    paths = [paths[row] for row in tree.rows]
    table = read_folders(paths, f"'{folder}'", within=str(folder), labels=labels, notes=tree.notes)
    files, are_sounds = FolderFiles(folder, paths), tree.kind == "sounds"
    return Examples(
        **vars(table),
        files=None if are_sounds else files,
        as_values=tree.kind == "arrays",
        recordings=Recordings(sounds=list(files)) if are_sounds else None,
        origin=partial(_digest, folder, files, states, paths),
    )


class FolderFiles(Sequence[Path]):
    """Files of a folder, whose relative paths are one column of bytes."""

    def __init__(self, folder: Path, paths: Sequence[str]) -> None:
        self._folder = folder
        self.names: pa.LargeBinaryArray = _as_bytes(paths)

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: Any) -> Any:
        return self._folder / os.fsdecode(self.names[int(index)].as_py())


def _as_bytes(paths: Sequence[str]) -> pa.LargeBinaryArray:
    if isinstance(paths, Names):
        return paths.column.cast(pa.large_binary())
    try:
        return pa.array(paths, pa.large_string()).cast(pa.large_binary())
    except UnicodeEncodeError:  # names of files may be invalid text
        return pa.array(map(os.fsencode, paths), pa.large_binary())


def _digest(
    folder: Path, files: FolderFiles, states: dict[str, FileState], paths: list[str]
) -> bytes:
    return digest(str(folder.absolute()), files.names, np.array([states[path] for path in paths]))


def _walk(
    folder: Path, ignored: Counter[str], system_files: Counter[str]
) -> Iterator[tuple[str, FileState]]:
    """Yield the relative posix path and the state of each visible file, unordered.

    Linked folders come last, sorted by name, so that a folder with several paths gets the same one
    on every machine. Other entries are counted in `ignored`, and files in folders of other
    programs in `system_files`. Broken links are yielded, and reported when they are opened.
    """
    folders: list[tuple[str, str]] = [(str(folder), "")]
    links: list[tuple[str, str]] = []
    seen: set[tuple[int, int]] = set()
    with ThreadPoolExecutor(_LISTING_THREADS) as pool:
        while folders or links:
            links.sort(key=lambda link: link[1], reverse=True)
            level, folders = (folders or [links.pop()]), []
            for (_, prefix), (status, entries) in zip(level, pool.map(_list, level), strict=True):
                if (status.st_dev, status.st_ino) in seen:
                    ignored[_REPEATED_LINK] += 1
                    continue
                seen.add((status.st_dev, status.st_ino))
                for entry, state in entries:
                    if state is _NO_FILE or stat.S_ISREG(state[2]):
                        yield prefix + entry.name, state
                    elif not stat.S_ISDIR(state[2]):
                        ignored[_SPECIAL] += 1
                    elif is_system_folder(entry.name):
                        system_files[entry.name] += sum(len(f) for *_, f in os.walk(entry.path))
                    else:
                        (links if entry.is_symlink() else folders).append(
                            (entry.path, f"{prefix}{entry.name}/")
                        )


def _list(
    folder: tuple[str, str],
) -> tuple[os.stat_result, list[tuple[os.DirEntry[str], FileState]]]:
    """Return the status of a folder, and its visible entries with their states."""
    directory, _ = folder
    try:
        with os.scandir(directory) as entries:
            status = os.stat(directory)
            return status, [
                (entry, _state(entry)) for entry in entries if not is_hidden(entry.name)
            ]
    except OSError as error:
        raise ValueError(f"cannot list folder '{directory}': {error.strerror}") from None


def _state(entry: os.DirEntry[str]) -> FileState:
    try:
        status = entry.stat()
    except OSError:
        return _NO_FILE
    return status.st_size, status.st_mtime_ns, status.st_mode


def common_size(files: Sequence[Encoded]) -> Size:
    """Return one (height, width) for `files`, from the headers of at most 1,000 of them.

    If all have one size of at most 224 pixels a side, that size. Otherwise a square with the median
    shorter side, rounded to a multiple of 32, at most 224.
    """
    sample = dict.fromkeys(np.linspace(0, len(files) - 1, _SIZE_SAMPLE).astype(int).tolist())
    read = [header_size(files, i) for i in sample]
    return size_for([size for size in read if size is not None])


def size_for(sizes: Sequence[Size]) -> Size:
    """Return one (height, width) for images of these sizes, as `common_size` does."""
    if not sizes:
        return _LARGEST_SIDE, _LARGEST_SIDE
    if len(set(sizes)) == 1 and max(sizes[0]) <= _LARGEST_SIDE:
        return sizes[0]
    median = float(np.median([min(size) for size in sizes]))
    side = min(max(32 * round(median / 32), 32), _LARGEST_SIDE)
    return side, side
