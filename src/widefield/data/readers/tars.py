"""Tar files: shards of WebDataset, and plain archives of images. Zip files of images."""

import json
import os
import tarfile
import threading
import zipfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from widefield.core.names import printable
from widefield.data.columns import Names
from widefield.data.examples import Encoded, Examples, LazyFiles
from widefield.data.labels.columns import read_tasks
from widefield.data.labels.folders import printable_path, read_folders
from widefield.data.readers.images import image_suffixes
from widefield.data.skipped import Skipped

PACKED_SUFFIXES = (".tgz", ".gz", ".bz2", ".xz", ".zst")
"""Last suffixes of compressed tar files."""
COMPRESSED = (
    "{} is a compressed tar file, or holds some, in which images have no offset: unpack each once, "
    "as with gunzip, and give the .tar files"
)
_NO_IMAGES = "{} holds no images: expected members such as .jpg, .png or .webp"
_CUT_OFF = "the shard ends early"
_LARGEST_LABELS = 1 << 20
"""Most bytes of a member with labels, chosen by hand."""
_ENCRYPTED = 0x1


class _Member(NamedTuple):
    """A file in a tar file."""

    name: str
    suffix: str
    file: int
    """Number of the tar file."""
    offset: int
    size: int

    @property
    def key(self) -> tuple[int, str]:
        """The name up to the first dot of its last part: what members of a sample share."""
        folder, slash, last = self.name.rpartition("/")
        return self.file, folder + slash + last.partition(".")[0]


class Slices(Sequence[Encoded]):
    """Members of tar files, read by offset."""

    def __init__(self, files: Sequence[Path], members: Sequence[_Member]) -> None:
        self._files = files
        # Columns: an object for each image of a large data set would fill the memory.
        self._file = np.array([member.file for member in members], dtype=np.int32)
        self._offset = np.array([member.offset for member in members], dtype=np.int64)
        self._size = np.array([member.size for member in members], dtype=np.int64)
        self._opened: dict[int, int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._file)

    def __getitem__(self, index: Any) -> Any:
        # pread has no position, so threads share a descriptor.
        size = int(self._size[index])
        content = os.pread(self._open(int(self._file[index])), size, int(self._offset[index]))
        if len(content) < size:
            raise ValueError(_CUT_OFF)
        return memoryview(content)

    def __del__(self) -> None:
        for number in self._opened.values():
            os.close(number)

    def _open(self, file: int) -> int:
        with self._lock:
            if file not in self._opened:
                self._opened[file] = os.open(self._files[file], os.O_RDONLY)
            return self._opened[file]


def read_tars(files: Sequence[Path], source: str, labels: bool = False) -> Examples:
    """Read tar files: WebDataset shards, or images in folders, which are classes as on a disk.

    A shard has members `KEY.jpg` beside `KEY.cls`, a class id, or `KEY.json`, a task for each
    entry. Examples are in the order of the shards, sorted by name in each. Members are found by
    their headers alone, and no image is read.
    """
    suffixes = image_suffixes()
    members: list[_Member] = []
    skipped: list[Skipped] = []
    for number, file in enumerate(files):
        found, damage = _members(file, number)
        members += sorted(found, key=lambda member: member.name)
        if damage is not None:
            skipped.append(Skipped(printable(file.name), damage))
    images = [member for member in members if member.suffix in suffixes]
    if not images:
        raise ValueError(_NO_IMAGES.format(source))
    sidecars = [member for member in members if member.suffix in (".cls", ".json")]
    if sidecars:
        first: dict[tuple[int, str], _Member] = {}
        for image in images:
            first.setdefault(image.key, image)
        images = list(first.values())
    keys = [image.key if sidecars else (image.file, image.name) for image in images]
    names = Names(printable_path(_unique(key, files)) for key in keys)
    if sidecars:
        columns, without_image = _columns(Slices(files, sidecars), sidecars, keys)
        skipped += without_image
        table = read_tasks(pa.table(columns), names)
    else:
        paths = [image.name for image in images]
        table = read_folders(paths, source, names=names, labels=labels)
    return Examples(**vars(replace(table, skipped=tuple(skipped))), files=Slices(files, images))


def is_compressed(name: str) -> bool:
    """Return whether a file name is that of a compressed tar file.

    Example:
        >>> [is_compressed(name) for name in ("a.tar.gz", "a.tgz", "a.csv.gz")]
        [True, True, False]
    """
    stem, suffix = os.path.splitext(name.lower())
    return suffix in PACKED_SUFFIXES and (suffix == ".tgz" or stem.endswith(".tar"))


def _members(file: Path, number: int) -> tuple[list[_Member], str | None]:
    """Return the files in a tar file, and what is wrong with it, if others may be lost."""
    found: dict[str, _Member] = {}
    damage = None
    try:
        with tarfile.open(file, "r:") as archive:
            try:
                for info in archive:
                    if info.isreg() and not info.name.rpartition("/")[2].startswith("."):
                        name = info.name.removeprefix("./")
                        suffix = _suffix(name)
                        found[name] = _Member(name, suffix, number, info.offset_data, info.size)
            except tarfile.ReadError:
                damage = _CUT_OFF
            damage = damage or _damage(file, archive.offset)
    except (tarfile.TarError, OSError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise ValueError(f"'{file}' cannot be read: {error.strerror}") from None
        raise ValueError(
            f"'{file}' is not a plain tar file: unpack a compressed one first, as gunzip does"
        ) from None
    return list(found.values()), damage


def _damage(file: Path, end: int) -> str | None:
    """Return what is wrong if a tar file has no empty block at `end`, where reading stopped."""
    with file.open("rb") as content:
        content.seek(end)
        block = content.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        return _CUT_OFF
    return f"the shard is damaged from byte {end} on" if any(block) else None


def _suffix(name: str) -> str:
    return os.path.splitext(name)[1].lower()


def _unique(key: tuple[int, str], files: Sequence[Path]) -> str:
    """Return a name that no member of another shard has."""
    file, name = key
    return name if len(files) == 1 else f"{files[file].stem}/{name}"


def _columns(
    contents: Slices, sidecars: Sequence[_Member], keys: Sequence[tuple[int, str]]
) -> tuple[dict[str, pa.Array], list[Skipped]]:
    """Return task -> labels of the samples `keys`, and the labels that have no image."""
    row_of = {key: row for row, key in enumerate(keys)}
    columns: dict[str, list[Any]] = defaultdict(lambda: [None] * len(keys))
    skipped = []
    for i, member in enumerate(sidecars):
        if member.key not in row_of:
            skipped.append(Skipped(printable_path(member.name), "a row without an image"))
            continue
        for task, label in _labels(member, contents, i).items():
            columns[task][row_of[member.key]] = label
    return {task: _column(labels) for task, labels in columns.items()}, skipped


def _labels(member: _Member, contents: Slices, index: int) -> dict[str, Any]:
    """Return task -> label of a sample; nothing for labels that cannot be read."""
    if member.size > _LARGEST_LABELS:
        return {}
    try:
        content = bytes(contents[index]).decode("utf-8").strip()
        if member.suffix == ".cls":
            return {"class": int(content) if content.isdecimal() else content}
        value = json.loads(content)
    except (ValueError, RecursionError, OSError):
        return {}
    pairs = value.items() if isinstance(value, dict) else ()
    return {name: x for name, x in pairs if isinstance(x, str | int | bool)}


def _column(values: list[Any]) -> pa.Array:
    """Return a column of labels, as text if they are of several types."""
    try:
        return pa.array(values)
    except pa.ArrowException:
        return pa.array([None if value is None else str(value) for value in values])


def read_zip(files: Sequence[Path], source: str, labels: bool = False) -> Examples:
    """Read a zip file of images in folders, which are classes as on a disk."""
    try:
        archive = zipfile.ZipFile(files[0])
    except Exception as error:  # a damaged directory may raise any error
        reason = getattr(error, "strerror", None) or "not a zip file, or cut off"
        raise ValueError(f"{source} cannot be read: {reason}") from None
    suffixes = image_suffixes()
    members = {m.filename: m for m in archive.infolist() if _suffix(m.filename) in suffixes}
    if any(member.flag_bits & _ENCRYPTED for member in members.values()):
        raise ValueError(f"{source} is encrypted: save it without a password")
    if not members:
        raise ValueError(_NO_IMAGES.format(source))
    names = sorted(members)

    def read(row: int) -> memoryview:
        member = members[names[row]]
        with archive.open(member) as file:
            return memoryview(file.read(member.file_size))

    table = read_folders(names, source, labels=labels)
    return Examples(**vars(table), files=LazyFiles(len(names), read))
