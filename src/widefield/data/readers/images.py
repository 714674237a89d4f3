"""Folders of images or sounds, and the common size of images."""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps

from widefield.core.center_fit import center_fit
from widefield.core.names import printable
from widefield.core.types import Size
from widefield.data.decode.images import FORMATS, File, header_size
from widefield.data.examples import Examples
from widefield.data.notes import listed_classes
from widefield.data.readers.recordings import SUFFIXES, Recordings

_LARGEST_SIDE = 224
_PNG_MODES = {"1", "L", "LA", "P", "I;16", "RGB", "RGBA"}
_SIZE_SAMPLE = 1_000
_MAX_KINDS = 4

_SPLIT_WORDS = {"train", "training", "trn", "test", "testing", "val", "valid", "validation", "dev"}
_SPLIT_WORDS |= {"eval", "pred", "unlabeled", "unlabelled"}
"""Words in the names of folders that are splits rather than classes: `train2017`, `seg_test`."""
_BESIDE_SPLITS = {
    "seg",
    "image",
    "images",
    "img",
    "imgs",
    "data",
    "set",
    "photos",
    "extra",
    "split",
}
"""Further words of such names."""
_FOLD = re.compile(r"(fold|split|part|cv)[ _-]?\d+", re.IGNORECASE)
_TARGETS = {"masks", "annotations", "labels", "groundtruth", "ground_truth"}
"""Folders of targets beside the images."""
_FOREIGN = {"@eadir", "$recycle.bin", "#recycle", "system volume information", "lost+found"}
_FOREIGN |= {"__macosx", "__pycache__", "picasaoriginals"}
"""Folders that other programs write: thumbnails, deleted files, metadata."""

_REPEATED_LINK, _SPECIAL = "links to folders that were read already", "pipes, sockets or devices"


def read_folder(folder: Path, *, labels: bool = False) -> Examples:
    """List the images or sounds under `folder`, sorted by relative path, without decoding them.

    First-level subfolders are the classes of the task `class`; files outside them have class ".".
    Where all of them are folds, such as `fold1`, the classes are the subfolders of these. Hidden
    files and folders are skipped, and so are folders that other programs write and those of masks
    beside others. Links are followed, each folder once. Special files and other suffixes are
    counted in a note. With `labels` from elsewhere, folders are no classes.

    Raises:
        ValueError: no files, both images and sounds, an unreadable folder, or subfolders that are
            splits.
    """
    formats = Image.registered_extensions()
    suffixes = {
        suffix for suffix, name in formats.items() if name in FORMATS and name in Image.OPEN
    }
    ignored: Counter[str] = Counter()
    foreign: Counter[str] = Counter()
    paths: list[str] = []
    audio_paths: list[str] = []
    for path in _walk(folder, ignored, foreign):
        suffix = os.path.splitext(path)[1].lower()
        if suffix in suffixes:
            paths.append(path)
        elif suffix in SUFFIXES:
            audio_paths.append(path)
        else:
            ignored[suffix or "without a suffix"] += 1
    if paths and audio_paths:
        raise ValueError(
            f"'{printable(str(folder))}' holds {len(paths)} images and {len(audio_paths)} sounds; "
            "put them into folders of their own"
        )
    paths = paths or audio_paths
    notes = _ignored_note(ignored)
    if not paths:
        found = f" ({notes[0]})" if notes else ""
        raise ValueError(
            f"no images under '{folder}'{found}; expected files such as .jpg, .png, .tif "
            "or .webp, or .wav, .flac, .ogg or .mp3"
        )
    paths, targets = _without_targets(sorted(paths))
    notes += _folders_note(foreign, "other programs write") + _folders_note(
        targets, "hold targets and no examples"
    )
    task: dict[str, NDArray[np.int64]] = {}
    classes: dict[str, tuple[str, ...]] = {}
    if not labels:
        top = [_parent(path) for path in paths]
        _check_not_splits(folder, set(top) - {"."})
        if all(map(_FOLD.fullmatch, top)):
            folds = sorted(set(top))
            notes += (f"{folds[0]} to {folds[-1]} are folds of the data and no classes",)
            top = [_parent(path.partition("/")[2]) for path in paths]
        if set(top) != {"."}:
            names, ids = np.unique(top, return_inverse=True)
            task["class"], classes["class"] = ids.astype(np.int64), _class_names(names.tolist())
            listed = listed_classes(task["class"], classes["class"])
            notes += (f"classes, by folder: {listed}",)
    files = [folder / path for path in paths]
    return Examples(
        names=[_printable_path(path) for path in paths],
        labels=task,
        classes=classes,
        files=None if audio_paths else files,
        recordings=Recordings(files=files) if audio_paths else None,
        origin=tuple(files),
        notes=notes,
    )


def read_list(images: Sequence[object]) -> Examples:
    """Return a list of paths or of PIL images as examples, in its order, without labels.

    PIL images are encoded without loss, so that they are decoded as files are.

    Raises:
        ValueError: it is empty, or has something else in it.

    Example:
        >>> read_list([Image.new("RGB", (8, 8)), "photo.jpg"]).names
        ['image 0', 'photo.jpg']
    """
    if not images:
        raise ValueError("the list of images is empty: give paths or PIL images")
    files: list[Path | memoryview] = []
    for i, image in enumerate(images):
        if not isinstance(image, str | os.PathLike | Image.Image):
            raise ValueError(
                f"item {i} of the list is of type {type(image).__name__}: give paths or PIL "
                "images, or stack arrays into one array [n, H, W, C]"
            )
        files.append(_encoded(image) if isinstance(image, Image.Image) else Path(image))
    names = [
        f"image {i}" if isinstance(image, Image.Image) else _printable_path(str(image))
        for i, image in enumerate(images)
    ]
    paths = [file for file in files if isinstance(file, Path)]
    origin = tuple(paths) if len(paths) == len(files) else ()
    return Examples(names=names, files=cast(list[Path], files), origin=origin)


def _encoded(image: Image.Image) -> memoryview:
    """Return a PIL image as the bytes of a PNG file, upright."""
    upright = ImageOps.exif_transpose(image)
    if upright.mode not in _PNG_MODES:
        upright = upright.convert("RGB")
    buffer = BytesIO()
    upright.save(buffer, "PNG", compress_level=1)
    return memoryview(buffer.getvalue())


def _printable_path(path: str) -> str:
    """Return a printable form of a file name, which may be invalid text."""
    return printable(os.fsencode(path).decode(errors="backslashreplace"))


def _class_names(names: list[str]) -> tuple[str, ...]:
    printable_names = tuple(map(_printable_path, names))
    repeated = [name for name, count in Counter(printable_names).items() if count > 1]
    if repeated:
        raise ValueError(f"two folders are shown as '{repeated[0]}'; rename one of them")
    return printable_names


def _parent(path: str) -> str:
    """Return the first folder of a path; "." for a file outside folders."""
    return path.split("/", 1)[0] if "/" in path else "."


def _without_targets(paths: list[str]) -> tuple[list[str], Counter[str]]:
    """Return the paths without those in folders of targets beside others, and counts of these."""
    top = {_parent(path) for path in paths} - {"."}
    targets = {name for name in top if name.lower() in _TARGETS}
    if not targets or targets == top:
        return paths, Counter()
    counts = Counter(_parent(path) for path in paths if _parent(path) in targets)
    return [path for path in paths if _parent(path) not in targets], counts


def _folders_note(counts: Counter[str], reason: str) -> tuple[str, ...]:
    """Return a note with the number of files in folders that are not read."""
    if not counts:
        return ()
    names = " and ".join(printable(name) for name in sorted(counts)[:_MAX_KINDS])
    return (f"not read: {sum(counts.values())} files in {names}, which {reason}",)


def _is_split(name: str) -> bool:
    words = re.findall(r"[a-z]+", name.lower())
    return bool(_SPLIT_WORDS.intersection(words)) and _SPLIT_WORDS.union(_BESIDE_SPLITS) >= set(
        words
    )


def _check_not_splits(folder: Path, top: set[str]) -> None:
    """Check that the subfolders are classes, not splits."""
    splits = sorted(filter(_is_split, top))
    if len(splits) > 1 or (splits and len(splits) == len(top)):
        training = next((name for name in splits if "train" in name.lower()), splits[0])
        raise ValueError(
            f"'{folder}' holds {' and '.join(splits)}, which are splits, not classes; "
            f"name one of them, such as '{folder / training}', or give the classes by --labels"
        )


def _ignored_note(ignored: Counter[str]) -> tuple[str, ...]:
    """Return a note with the number of ignored files by suffix."""
    if not ignored:
        return ()
    kinds = sorted(ignored.items(), key=lambda item: (-item[1], item[0]))
    parts = [f"{count} {printable(kind)}" for kind, count in kinds[:_MAX_KINDS]]
    others = sum(count for _, count in kinds[_MAX_KINDS:])
    parts += [f"{others} others"] if others else []
    return (f"not read, because they are not images of a known type: {', '.join(parts)}",)


def _walk(folder: Path, ignored: Counter[str], foreign: Counter[str]) -> Iterator[str]:
    """Yield the relative posix path of each visible file, unordered.

    Linked folders come last, sorted by name, so that a folder with several paths gets the same one
    on every machine. Other entries are counted in `ignored`, and files in folders of other
    programs in `foreign`. Broken links are yielded, and reported when they are opened.
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
            ignored[_REPEATED_LINK] += 1
            continue
        seen.add((status.st_dev, status.st_ino))
        for entry in entries:
            mode = _mode(entry)
            if mode is None or stat.S_ISREG(mode):
                yield prefix + entry.name
            elif not stat.S_ISDIR(mode):
                ignored[_SPECIAL] += 1
            elif entry.name.lower() in _FOREIGN:
                foreign[entry.name] += sum(len(files) for *_, files in os.walk(entry.path))
            else:
                (links if entry.is_symlink() else folders).append(
                    (entry.path, f"{prefix}{entry.name}/")
                )


def _list(directory: str) -> tuple[os.stat_result, list[os.DirEntry[str]]]:
    """Return the status of a folder and its visible entries."""
    try:
        with os.scandir(directory) as entries:
            return os.stat(directory), [e for e in entries if e.name[0] != "."]
    except OSError as error:
        raise ValueError(f"cannot list folder '{directory}': {error.strerror}") from None


def _mode(entry: os.DirEntry[str]) -> int | None:
    """Return the mode of an entry or of its link target; None for a broken link."""
    try:
        return entry.stat().st_mode
    except OSError:
        return None


def common_size(files: Sequence[File]) -> Size:
    """Return one (height, width) for `files`, from the headers of at most 1,000 of them.

    If all have one size of at most 224 pixels a side, that size. Otherwise a square with the median
    shorter side, rounded to a multiple of 32, at most 224.
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
    """Resize uint8 [n, H, W, C] by the shorter side and crop the center."""
    resized, (top, left) = center_fit(images.shape[1:3], size)
    x = torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2)
    x = torch.nn.functional.interpolate(x, size=resized, mode="bicubic", antialias=True)
    x = x[:, :, top : top + size[0], left : left + size[1]]
    return np.ascontiguousarray(x.permute(0, 2, 3, 1).numpy())
