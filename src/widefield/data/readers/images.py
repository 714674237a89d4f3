"""Image folders: which files there are, and the one size that their images are brought to."""

import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image

from widefield.core.names import printable
from widefield.core.types import Size
from widefield.data.decode.images import FORMATS, File, header_size
from widefield.data.examples import Examples
from widefield.data.readers.recordings import SUFFIXES, Recordings, refuse_mixture

_LARGEST_SIDE = 224
_SIZE_SAMPLE = 1_000
_KINDS_NAMED = 4

_SPLITS = {"train", "training", "test", "testing", "val", "valid", "validation", "dev", "eval"}
"""Names of folders that divide data, and are no classes."""

_LINKED_AGAIN, _SPECIAL = "links to folders that were read already", "pipes, sockets or devices"


def read_folder(folder: Path) -> Examples:
    """List the images or the sounds under `folder`, by sorted relative path; nothing is decoded.

    First-level subfolders, where there are any, are the classes of the task `class`; what lies
    outside them is of class ".". Hidden files and folders are not read. Links are followed, each
    folder once; what is no regular file, or has another suffix, is counted in a note.

    Raises:
        ValueError: there are none, or both, a folder cannot be listed, or the subfolders are
            splits.
    """
    suffixes = _raster_suffixes()
    unread: Counter[str] = Counter()
    paths: list[str] = []
    sounds: list[str] = []
    for path in _walk(folder, unread):
        suffix = os.path.splitext(path)[1].lower()
        if suffix in suffixes:
            paths.append(path)
        elif suffix in SUFFIXES:
            sounds.append(path)
        else:
            unread[suffix or "without a suffix"] += 1
    refuse_mixture(folder, images=len(paths), sounds=len(sounds))
    paths = paths or sounds
    notes = _unread_notes(unread)
    if not paths:
        found = f" ({notes[0]})" if notes else ""
        raise ValueError(
            f"no images under '{folder}'{found}; expected files such as .jpg, .png, .tif "
            "or .webp, or .wav, .flac, .ogg or .mp3"
        )
    paths.sort()
    top = [path.split("/", 1)[0] if "/" in path else "." for path in paths]
    _refuse_splits(folder, set(top) - {"."})
    labels, classes = {}, {}
    if set(top) != {"."}:
        names, ids = np.unique(top, return_inverse=True)
        labels["class"], classes["class"] = ids.astype(np.int64), _shown_names(names.tolist())
    files = [folder / path for path in paths]
    return Examples(
        names=[_shown(path) for path in paths],
        labels=labels,
        classes=classes,
        files=None if sounds else files,
        recordings=Recordings(files=files) if sounds else None,
        origin=tuple(files),
        notes=notes,
    )


def _shown(path: str) -> str:
    """Return a file name, which need not be valid text, in its printable form."""
    return printable(os.fsencode(path).decode(errors="backslashreplace"))


def _shown_names(names: list[str]) -> tuple[str, ...]:
    shown = tuple(map(_shown, names))
    twice = [name for name, count in Counter(shown).items() if count > 1]
    if twice:
        raise ValueError(f"two folders are shown as '{twice[0]}'; rename one of them")
    return shown


def _refuse_splits(folder: Path, top: set[str]) -> None:
    """Refuse subfolders that are parts of a data set, which are not its classes."""
    splits = sorted(name for name in top if name.lower() in _SPLITS)
    if len(splits) > 1 or (splits and len(splits) == len(top)):
        training = next((name for name in splits if name.lower().startswith("train")), splits[0])
        raise ValueError(
            f"'{folder}' holds {' and '.join(splits)}, which are splits and no classes; "
            f"name one of them, such as '{folder / training}'"
        )


def _unread_notes(unread: Counter[str]) -> tuple[str, ...]:
    """Return one line that counts what a folder holds and nobody reads, by its kind."""
    if not unread:
        return ()
    kinds = sorted(unread.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count} {printable(kind)}" for kind, count in kinds[:_KINDS_NAMED]]
    others = sum(count for _, count in kinds[_KINDS_NAMED:])
    parts += [f"{others} others"] if others else []
    return (f"not read, because they are no images of a known kind: {', '.join(parts)}",)


def _walk(folder: Path, unread: Counter[str]) -> Iterator[str]:
    """Yield the relative posix path of every visible file, in no particular order.

    Linked folders come last, in the order of their names, so that a folder that can be reached
    twice has the same name on every machine. Entries that are neither count in `unread`. A link
    that leads nowhere is yielded: it fails when it is opened, and is named then.
    """
    folders: list[tuple[str, str]] = [(str(folder), "")]
    links: list[tuple[str, str]] = []
    seen: set[tuple[int, int]] = set()
    while folders or links:
        is_link = not folders
        if is_link:
            links.sort(key=lambda link: link[1], reverse=True)
        directory, prefix = links.pop() if is_link else folders.pop()
        status, entries = _list(directory)
        if (status.st_dev, status.st_ino) in seen:
            unread[_LINKED_AGAIN] += 1
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            mode = _mode(entry)
            if mode is None or stat.S_ISREG(mode):
                yield prefix + entry.name
            elif not stat.S_ISDIR(mode):
                unread[_SPECIAL] += 1
            else:
                (links if entry.is_symlink() else folders).append(
                    (entry.path, f"{prefix}{entry.name}/")
                )


def _list(directory: str) -> tuple[os.stat_result, list[os.DirEntry[str]]]:
    """Return a folder's identity and its visible entries."""
    try:
        with os.scandir(directory) as entries:
            return os.stat(directory), [e for e in entries if e.name[0] != "."]
    except OSError as error:
        raise ValueError(f"cannot list folder '{directory}': {error.strerror}") from None


def _mode(entry: os.DirEntry[str]) -> int | None:
    """Return the mode of an entry, links followed; None for a link that leads nowhere."""
    try:
        return entry.stat().st_mode
    except OSError:
        return None


def _raster_suffixes() -> frozenset[str]:
    Image.init()
    return frozenset(
        suffix
        for suffix, format_name in Image.registered_extensions().items()
        if format_name in FORMATS and format_name in Image.OPEN
    )


def common_size(files: Sequence[File]) -> Size:
    """Choose one (height, width) for all of `files` from the headers of at most 1,000 of them.

    One size that all share and that is at most 224 on each side is kept as it is. Otherwise
    images become squares of the median shorter side, rounded to a multiple of 32, at most 224.
    """
    sample = [files[i] for i in np.linspace(0, len(files) - 1, _SIZE_SAMPLE).astype(int)]
    read = [header_size(file) for file in dict.fromkeys(sample)]
    sizes = [size for size in read if size is not None]
    if not sizes:
        return _LARGEST_SIDE, _LARGEST_SIDE
    if len(set(sizes)) == 1 and max(sizes[0]) <= _LARGEST_SIDE:
        return sizes[0]
    median = float(np.median([min(size) for size in sizes]))
    side = min(max(32 * round(median / 32), 32), _LARGEST_SIDE)
    return side, side


def resize_array(images: NDArray[np.uint8], size: Size) -> NDArray[np.uint8]:
    """Resize uint8 [n, H, W, C]: shorter side to `size`, the rest cut off around the center."""
    height, width = images.shape[1:3]
    scale = max(size[0] / height, size[1] / width)
    middle = (max(round(height * scale), size[0]), max(round(width * scale), size[1]))
    x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2)
    x = torch.nn.functional.interpolate(x, size=middle, mode="bicubic", antialias=True)
    top, left = (middle[0] - size[0]) // 2, (middle[1] - size[1]) // 2
    x = x[:, :, top : top + size[0], left : left + size[1]]
    return np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy())
