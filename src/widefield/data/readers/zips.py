"""Zip files of images, and the paths of members of archives."""

import os
import posixpath
import stat
import zipfile
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from widefield.data.examples import Examples, LazyFiles
from widefield.data.labels.folders import read_folders
from widefield.data.readers.tree import sort_out, visible

_ENCRYPTED = 0x1
_MOST_LINKS = 8
"""Links to links that are followed, chosen by hand."""


def read_zip(files: Sequence[Path], source: str, labels: bool = False) -> Examples:
    """Read a zip file of images in folders, which are classes as on a disk."""
    try:
        archive = zipfile.ZipFile(files[0])
    except Exception as error:  # a damaged directory may raise any error
        reason = getattr(error, "strerror", None) or "not a zip file, or cut off"
        raise ValueError(f"{source} cannot be read: {reason}") from None
    ignored: Counter[str] = Counter()
    foreign: Counter[str] = Counter()
    members: dict[str, zipfile.ZipInfo] = {}
    links: dict[str, str] = {}
    for info in archive.infolist():
        name = member_path(info.filename.replace("\\", "/"))  # some programs of Windows
        if stat.S_ISLNK(info.external_attr >> 16) and not info.flag_bits & _ENCRYPTED:
            target = os.fsdecode(archive.read(info))
            links[name] = member_path(os.path.join(os.path.dirname(name), target))
        elif not info.is_dir():
            members[name] = info
    members |= {name: members[file] for name, file in resolved(links, members, ignored).items()}
    listed = sorted(members)
    listed = [listed[row] for row in visible(listed, foreign)]
    tree = sort_out(listed, source, ignored, foreign)
    tree.check_images(source)
    names = [listed[row] for row in tree.rows]
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
