"""Zip and tar files of images: shards of WebDataset, and plain archives."""

import json
import os
import posixpath
import stat
import tarfile
import threading
import zipfile
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from widefield.core.names import printable
from widefield.data.examples import Encoded, Examples, LazyFiles
from widefield.data.labels.columns import read_tasks
from widefield.data.labels.folders import printable_path, read_folders
from widefield.data.readers.tree import TARGET, sort_out, suffix_of, visible
from widefield.data.table import Names, Skipped

PACKED_SUFFIXES = (".tgz", ".gz", ".bz2", ".xz", ".zst")
"""Last suffixes of compressed tar files."""
COMPRESSED = (
    "{} is a compressed tar file, or holds some, in which images have no offset: unpack each once, "
    "as with gunzip, and give the .tar files"
)
_CUT_OFF = "the shard ends early"
_LARGEST_LABELS = 1 << 20
"""Most bytes of a member with labels, chosen by hand."""
_SIDECARS = (".cls", ".json")
"""Suffixes of members that hold the labels of a sample."""
_ENCRYPTED = 0x1
_MOST_LINKS = 8
"""Links to links that are followed, chosen by hand."""


Key = tuple[int, str]
"""Number of a tar file, and the beginning of names in it."""


class _Member(NamedTuple):
    """A file in a tar file."""

    name: str
    suffix: str
    file: int
    """Number of the tar file."""
    offset: int
    size: int

    @property
    def stem(self) -> Key:
        """The tar file, and the name without the suffix."""
        return self.file, self.name[: len(self.name) - len(self.suffix)]


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
    members: list[_Member] = []
    skipped: list[Skipped] = []
    ignored: Counter[str] = Counter()
    system_files: Counter[str] = Counter()
    for number, file in enumerate(files):
        found, problem = _members(file, number, ignored)
        members += sorted(found, key=lambda member: member.name)
        if problem is not None:
            skipped.append(Skipped(printable(file.name), problem))
    members = [members[row] for row in visible([member.name for member in members], system_files)]
    sidecars = [member for member in members if member.suffix in _SIDECARS]
    others = [member for member in members if member.suffix not in _SIDECARS]
    tree = sort_out([member.name for member in others], source, ignored, system_files)
    tree.check_images(source)
    images = [others[row] for row in tree.rows]
    keys = sample_keys([image.stem for image in images], [sidecar.stem for sidecar in sidecars])
    notes: tuple[str, ...] = ()
    if keys is None:
        tree.ignored.update(sidecar.suffix for sidecar in sidecars)
        samples = [(image.file, image.name) for image in images]
        names = Names(printable_path(_unique(sample, files)) for sample in samples)
        table = read_folders([name for _, name in samples], source, names=names, labels=labels)
    else:
        images, samples, notes = _one_of_each(images, keys[0])
        names = Names(printable_path(_unique(sample, files)) for sample in samples)
        columns, failed = _columns(Slices(files, sidecars), sidecars, keys[1], samples)
        skipped += failed
        table = read_tasks(pa.table(columns), names)
    table = replace(table, skipped=tuple(skipped), notes=(*tree.notes, *notes, *table.notes))
    are_arrays = tree.kind == "arrays"
    return Examples(**vars(table), files=Slices(files, images), as_values=are_arrays)


def _one_of_each(
    images: Sequence[_Member], keys: Sequence[Key]
) -> tuple[list[_Member], list[Key], tuple[str, ...]]:
    """Return an image of each sample, its key, and a note if there are more."""

    def rank(pair: tuple[_Member, Key]) -> tuple[bool, bool, str]:
        image, key = pair
        return image.stem != key, TARGET.search(image.name) is not None, image.name

    image_of: dict[Key, _Member] = {}
    extra: list[tuple[_Member, Key]] = []
    # The image whose name is the key comes first.
    for image, key in sorted(zip(images, keys, strict=True), key=rank):
        if image_of.setdefault(key, image) is not image:
            extra.append((image, key))
    found = {key: image_of[key] for key in dict.fromkeys(keys)}
    notes = tuple(
        f"{len({key for _, key in extra})} samples have several images: of each one is read, such "
        f"as '{printable_path(found[key].name)}' and not '{printable_path(image.name)}'"
        for image, key in extra[:1]
    )
    return [*found.values()], [*found], notes


def is_compressed(name: str) -> bool:
    """Return whether a file name is that of a compressed tar file."""
    stem, suffix = os.path.splitext(name.lower())
    return suffix in PACKED_SUFFIXES and (suffix == ".tgz" or stem.endswith(".tar"))


def _members(file: Path, number: int, ignored: Counter[str]) -> tuple[list[_Member], str | None]:
    """Return the files in a tar file, and what is wrong with it, if others may be lost."""
    found: dict[str, _Member] = {}
    links: dict[str, str] = {}
    problem = None
    try:
        with tarfile.open(file, "r:") as archive:
            try:
                for info in archive:
                    name = member_path(info.name)
                    if info.isreg():
                        suffix = suffix_of(name)
                        found[name] = _Member(name, suffix, number, info.offset_data, info.size)
                    elif info.islnk() or info.issym():
                        folder = os.path.dirname(name) if info.issym() else ""
                        links[name] = member_path(os.path.join(folder, info.linkname))
                    elif not info.isdir():
                        ignored["pipes or devices"] += 1
            except tarfile.ReadError:
                problem = _CUT_OFF
            problem = problem or _find_problem(file, archive.offset)
    except (tarfile.TarError, OSError) as error:
        if isinstance(error, OSError) and error.strerror:
            raise ValueError(f"'{file}' cannot be read: {error.strerror}") from None
        raise ValueError(
            f"'{file}' is not a plain tar file: unpack a compressed one first, as gunzip does"
        ) from None
    # Equal files are stored once, and the others as links to them.
    for name, target in resolved(links, found, ignored).items():
        found[name] = found[target]._replace(name=name, suffix=suffix_of(name))
    return list(found.values()), problem


def _find_problem(file: Path, end: int) -> str | None:
    """Return what is wrong if a tar file has no empty block at `end`, where reading stopped."""
    with file.open("rb") as content:
        content.seek(end)
        block = content.read(tarfile.BLOCKSIZE)
    if len(block) < tarfile.BLOCKSIZE:
        return _CUT_OFF
    return f"the shard is damaged from byte {end} on" if any(block) else None


def _unique(key: Key, files: Sequence[Path]) -> str:
    """Return a name that no member of another shard has."""
    file, name = key
    return name if len(files) == 1 else f"{files[file].stem}/{name}"


def _columns(
    contents: Slices, sidecars: Sequence[_Member], keys: Sequence[Key], samples: Sequence[Key]
) -> tuple[dict[str, pa.Array], list[Skipped]]:
    """Return task -> labels of the samples, and the sidecars that have no image or no labels."""
    row_of = {key: row for row, key in enumerate(samples)}
    columns: dict[str, list[Any]] = defaultdict(lambda: [None] * len(samples))
    skipped = []
    for i, (member, key) in enumerate(zip(sidecars, keys, strict=True)):
        if key not in row_of:
            skipped.append(Skipped(printable_path(member.name), "a row without an image"))
            continue
        labels = _labels(member, contents, i)
        if labels is None:
            skipped.append(Skipped(printable_path(member.name), "labels that cannot be read"))
        for task, label in (labels or {}).items():
            columns[task][row_of[key]] = label
    return {task: _column(labels) for task, labels in columns.items()}, skipped


def _labels(member: _Member, contents: Slices, index: int) -> dict[str, Any] | None:
    """Return task -> label of a sample; None for labels that cannot be read."""
    if member.size > _LARGEST_LABELS:
        return None
    try:
        content = bytes(contents[index]).decode("utf-8").strip()
        if member.suffix == ".cls":
            return {"class": int(content) if content.isdecimal() else content}
        value = json.loads(content)
    except (ValueError, RecursionError, OSError):
        return None
    return value if isinstance(value, dict) else {"class": value}


def _column(values: list[Any]) -> pa.Array:
    """Return a column of labels, as text if they are of several types."""
    try:
        return pa.array(values)
    except (pa.ArrowException, OverflowError):
        return pa.array([None if value is None else str(value) for value in values])


def sample_keys(
    images: Sequence[Key], sidecars: Sequence[Key]
) -> tuple[list[Key], list[Key]] | None:
    """Return the sample of each image and sidecar, by their stems; None if none belong together.

    An image and a sidecar of one stem are a sample. Others belong to the sample whose stem theirs
    continues after a dot. If there is none, they share what is before the first dot, as in
    WebDataset.
    """
    stems, labeled = set(images), set(sidecars)
    whole = stems & labeled
    # An image that continues the stem of labels is theirs, such as 2.left of 2.
    of_image = {stem: _start(stem, labeled) or stem for stem in stems - whole}
    of_sidecar = {stem: _start(stem, stems) or stem for stem in labeled - whole}
    single = {stem for stem in of_sidecar if of_sidecar[stem] == stem} - set(of_image.values())
    first_parts = {_first(stem) for stem in single}
    of_image |= {s: _first(s) for s in of_image if of_image[s] == s and _first(s) in first_parts}
    of_sidecar |= {s: _first(s) for s in single}
    image_keys = [of_image.get(stem, stem) for stem in images]
    sidecar_keys = [of_sidecar.get(stem, stem) for stem in sidecars]
    return (image_keys, sidecar_keys) if set(image_keys) & set(sidecar_keys) else None


def _start(stem: Key, others: set[Key]) -> Key | None:
    """Return the longest of `others` that `stem` continues after a dot."""
    file, name = stem
    while (cut := name.rfind(".")) > name.rfind("/") + 1:
        name = name[:cut]
        if (file, name) in others:
            return file, name
    return None


def _first(stem: Key) -> Key:
    folder, slash, last = stem[1].rpartition("/")
    return stem[0], folder + slash + last.partition(".")[0]


def read_zip(files: Sequence[Path], source: str, labels: bool = False) -> Examples:
    """Read a zip file of images in folders, which are classes as on a disk."""
    try:
        archive = zipfile.ZipFile(files[0])
    except Exception as error:  # a damaged directory may raise any error
        reason = getattr(error, "strerror", None) or "not a zip file, or cut off"
        raise ValueError(f"{source} cannot be read: {reason}") from None
    ignored: Counter[str] = Counter()
    system_files: Counter[str] = Counter()
    members: dict[str, zipfile.ZipInfo] = {}
    links: dict[str, str] = {}
    for info in archive.infolist():
        name = member_path(info.filename.replace("\\", "/"))  # some programs of Windows
        if stat.S_ISLNK(info.external_attr >> 16) and not info.flag_bits & _ENCRYPTED:
            links[name] = member_path(os.path.join(os.path.dirname(name), _target(archive, info)))
        elif not info.is_dir():
            members[name] = info
    members |= {name: members[file] for name, file in resolved(links, members, ignored).items()}
    paths = sorted(members)
    paths = [paths[row] for row in visible(paths, system_files)]
    tree = sort_out(paths, source, ignored, system_files)
    tree.check_images(source)
    names = [paths[row] for row in tree.rows]
    if any(members[name].flag_bits & _ENCRYPTED for name in names):
        raise ValueError(f"{source} is encrypted: save it without a password")

    def read(row: int) -> memoryview:
        member = members[names[row]]
        with archive.open(member) as file:
            return memoryview(file.read(member.file_size))

    table = read_folders(names, source, labels=labels, notes=tree.notes)
    return Examples(
        **vars(table),
        files=LazyFiles(len(names), read),
        as_values=tree.kind == "arrays",
    )


def _target(archive: zipfile.ZipFile, link: zipfile.ZipInfo) -> str:
    """Return the path that a link leads to; that of its folder if it is damaged."""
    try:
        return os.fsdecode(archive.read(link))
    except Exception:  # a damaged stream may raise any error
        return ""


def member_path(name: str) -> str:
    """Return the path of a member below the root of its archive."""
    return posixpath.normpath(f"/{name}").lstrip("/")


def resolved(
    links: Mapping[str, str], files: Collection[str], ignored: Counter[str]
) -> dict[str, str]:
    """Return link -> file; links that lead to none are counted."""
    found = {}
    for name, target in links.items():
        for _ in range(_MOST_LINKS):
            target = links.get(target, target)
        if target in files:
            found[name] = target
        else:
            ignored["links to what is not in the archive"] += 1
    return found
