"""Tar files: shards of WebDataset, and plain archives of images. Zip files of images."""

import json
import os
import tarfile
import threading
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from widefield.core.names import printable
from widefield.data.cache import digest_of_files
from widefield.data.columns import Names
from widefield.data.examples import Encoded, Examples
from widefield.data.labels.columns import read_tasks
from widefield.data.labels.folders import printable_path, read_folders
from widefield.data.readers.images import image_suffixes
from widefield.data.skipped import Skipped
from widefield.data.table import Table

TAR_SUFFIXES = (".tar",)
PACKED_SUFFIXES = (".tgz", ".gz", ".bz2", ".xz", ".zst")
"""Last suffixes of compressed tar files."""
COMPRESSED = (
    "{} is a compressed tar file, or holds some, in which images have no offset: unpack each once, "
    "as with gunzip, and give the .tar files"
)
_CUT_OFF = "the shard ends early"
_LARGEST_LABELS = 1 << 20
"""Most bytes of a member with labels."""
_ENCRYPTED = 0x1


class Slices(Sequence[Encoded]):
    """Images that are slices of a few files, read by offset."""

    def __init__(
        self, files: Sequence[Path], file: list[int], offset: list[int], size: list[int]
    ) -> None:
        self._files = files
        self._file = np.array(file, dtype=np.int32)
        self._offset = np.array(offset, dtype=np.int64)
        self._size = np.array(size, dtype=np.int64)
        self._opened: dict[int, int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._file)

    def __getitem__(self, index: Any) -> Any:
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


def read_tars(files: Sequence[Path], source: str, *, labels: bool = False) -> Examples:
    """Read tar files: WebDataset shards, or images in folders, which are classes as on a disk.

    A shard has members `KEY.jpg` beside `KEY.cls`, a class id, or `KEY.json`, a task for each
    entry. Examples are in the order of the shards, sorted by name in each. Members are found by
    their headers alone, and no image is read.

    Raises:
        ValueError: a file is no plain tar file, or no member is an image.
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
        raise ValueError(f"{source} holds no images: expected members such as .jpg, .png or .webp")
    sidecars = [member for member in members if member.suffix in (".cls", ".json")]
    if not sidecars:
        paths = [member.name for member in images]
        names = [_named(member.name, files, member.file) for member in images]
        contents = _slices(files, images)
        table = read_folders(paths, source, names=_printable(names), labels=labels)
        return _examples(table, contents, files, skipped)
    return _of_samples(files, images, sidecars, skipped)


def is_compressed(name: str) -> bool:
    """Return whether a file name is that of a compressed tar file.

    Example:
        >>> [is_compressed(name) for name in ("a.tar.gz", "a.tgz", "a.csv.gz")]
        [True, True, False]
    """
    stem, suffix = os.path.splitext(name.lower())
    return suffix in PACKED_SUFFIXES and (suffix == ".tgz" or stem.endswith(".tar"))


def read_zip(file: Path, *, labels: bool = False) -> Examples:
    """Read a zip file of images in folders, which are classes as on a disk.

    Raises:
        ValueError: the file is no zip file, is encrypted, or holds no images.
    """
    try:
        archive = zipfile.ZipFile(file)
    except Exception as error:  # a damaged directory may raise any error
        reason = getattr(error, "strerror", None) or "not a zip file, or cut off"
        raise ValueError(f"'{file}' cannot be read: {reason}") from None
    suffixes = image_suffixes()
    members = {m.filename: m for m in archive.infolist() if _suffix(m.filename) in suffixes}
    if any(member.flag_bits & _ENCRYPTED for member in members.values()):
        raise ValueError(f"'{file}' is encrypted: save it without a password")
    if not members:
        raise ValueError(f"'{file}' holds no images: expected members such as .jpg, .png or .webp")
    names = sorted(members)
    images = ZipImages(archive, [members[name] for name in names])
    table = read_folders(names, f"'{file}'", labels=labels)
    return _examples(table, images, (file,), [])


class ZipImages(Sequence[Encoded]):
    """Images in a zip file, unpacked one at a time."""

    def __init__(self, archive: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> None:
        self._archive, self._members = archive, members

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, index: Any) -> Any:
        member = self._members[int(index)]
        with self._archive.open(member) as file:
            return memoryview(file.read(member.file_size))


class _Member(NamedTuple):
    """A member of a tar file."""

    name: str
    suffix: str
    file: int
    offset: int
    size: int

    @property
    def key(self) -> str:
        """The name up to the first dot of its last part: what members of a sample share."""
        folder, slash, last = self.name.rpartition("/")
        return folder + slash + last.partition(".")[0]


def _members(file: Path, number: int) -> tuple[list[_Member], str | None]:
    """Return the files in a tar file, and what is wrong with it, if others may be lost."""
    found: dict[str, _Member] = {}
    try:
        with tarfile.open(file, "r:") as archive:
            damage = None
            try:
                for info in archive:
                    if info.isreg() and not info.name.rpartition("/")[2].startswith("."):
                        name = info.name.removeprefix("./")
                        place = (number, info.offset_data, info.size)
                        found[name] = _Member(name, _suffix(name), *place)
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


def _named(name: str, files: Sequence[Path], number: int) -> str:
    """Return a name that no other shard has."""
    return name if len(files) == 1 else f"{files[number].stem}/{name}"


def _slices(files: Sequence[Path], members: Sequence[_Member]) -> Slices:
    return Slices(
        files,
        [member.file for member in members],
        [member.offset for member in members],
        [member.size for member in members],
    )


def _examples(
    table: Table, images: Sequence[Encoded], files: Sequence[Path], skipped: Sequence[Skipped]
) -> Examples:
    table = replace(table, skipped=tuple(skipped))
    return Examples(**vars(table), files=images, origin=partial(digest_of_files, files))


def _printable(names: Iterable[str]) -> Names:
    return Names(map(printable_path, names))


def _of_samples(
    files: Sequence[Path],
    images: Sequence[_Member],
    sidecars: Sequence[_Member],
    skipped: list[Skipped],
) -> Examples:
    """Return the samples of shards: an image and its labels by key."""
    image_of: dict[tuple[int, str], _Member] = {}
    for image in images:
        image_of.setdefault((image.file, image.key), image)
    values: dict[str, dict[tuple[int, str], Any]] = defaultdict(dict)
    texts = _slices(files, sidecars)
    for i, member in enumerate(sidecars):
        key = (member.file, member.key)
        if key not in image_of:
            skipped.append(Skipped(printable_path(member.name), "a row without an image"))
            continue
        for name, value in _labels(member, texts, i).items():
            values[name][key] = value
    keys = list(image_of)
    columns = {name: _column([column.get(key) for key in keys]) for name, column in values.items()}
    names = _printable(_named(key, files, number) for number, key in keys)
    contents = _slices(files, [image_of[key] for key in keys])
    return _examples(read_tasks(pa.table(columns), names), contents, files, skipped)


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
