"""URLs as a source, through fsspec: a file is copied into the cache, a folder is read as it is."""

import hashlib
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from widefield.core.names import printable, reason_of
from widefield.data.cache import CacheError, cache_folder, digest, make_cache_folder, prune
from widefield.data.examples import Examples, LazyFiles
from widefield.data.labels.folders import read_folders
from widefield.data.readers.tree import sort_out, visible
from widefield.data.table import Names

_STATE = ("size", "mtime", "ETag", "etag", "Last-Modified", "LastModified", "last_modified")
"""Names under which file systems have the size, the time and a hash of a file."""


def remote_files(urls: Names) -> LazyFiles:
    """Return files by URL, each fetched when it is read."""
    system, _ = _system_of(urls[0])
    return LazyFiles(len(urls), lambda row: memoryview(system.cat_file(urls[row])))


def fetch(url: str) -> Path:
    """Copy the file of a URL into the cache, if the copy there is not current, and return its path.

    The copies that were used least recently are removed where all exceed the limit.
    """
    system, path = _system_of(url)
    with _errors(url):
        info = system.info(path)
        name = hashlib.blake2b(repr((url, _state(info))).encode(), digest_size=16).hexdigest()
        local = cache_folder() / "urls" / name / _file_name(path)
        if not local.is_file():
            make_cache_folder(local.parent)
            temp_path = local.with_name(f".{os.getpid()}.draft")  # another process may fetch it too
            try:
                system.get_file(path, str(temp_path))
                temp_path.rename(local)
            finally:
                temp_path.unlink(missing_ok=True)
        # The time of the folder is that of the last use, by which copies are removed.
        local.parent.touch()
        prune(local.parent)
    return local


def _file_name(path: str) -> str:
    """Return the last part of a path, without a query such as ?download=1."""
    last = path.rstrip("/").rpartition("/")[2]
    without_query = last.partition("?")[0]
    return without_query if os.path.splitext(without_query)[1] else last


def is_folder(url: str) -> bool:
    """Return whether a URL is a folder, or the common beginning of several files."""
    system, path = _system_of(url)
    with _errors(url):
        return bool(system.isdir(path))


def read_remote_folder(url: str, *, labels: bool) -> Examples:
    """Read the images below a URL, whose folders are classes as on a disk."""
    system, root = _system_of(url)
    with _errors(url):
        found = system.find(root, detail=True)
    start = len(root.rstrip("/")) + 1
    system_files: Counter[str] = Counter()
    relative = sorted(path[start:] for path in found)
    relative = [relative[row] for row in visible(relative, system_files)]
    tree = sort_out(relative, f"'{url}'", Counter(), system_files)
    tree.check_images(f"'{url}'")
    names = [relative[row] for row in tree.rows]
    paths = [f"{root.rstrip('/')}/{name}" for name in names]
    states = [_state(found[path]) for path in paths]
    table = read_folders(names, f"'{url}'", within=url, labels=labels, notes=tree.notes)
    return Examples(
        **vars(table),
        files=remote_files(Names(system.unstrip_protocol(path) for path in paths)),
        as_values=tree.kind == "arrays",
        origin=partial(digest, url, names, states),
    )


def _state(info: dict[str, Any]) -> list[str]:
    return [str(info.get(key)) for key in _STATE]


def _system_of(url: str) -> tuple[Any, str]:
    import fsspec

    try:
        system, path = fsspec.core.url_to_fs(url)
    except (ImportError, ValueError) as error:
        reason = printable(" ".join(str(error).split()))
        hint = "pip install 'widefield[urls]'"
        raise ValueError(f"cannot read '{url}' ({reason}): install what it needs, {hint}") from None
    return system, path


@contextmanager
def _errors(url: str) -> Iterator[None]:
    """Make one line of whatever is raised: each protocol has errors of its own."""
    try:
        yield
    except CacheError:
        raise
    except Exception as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else reason_of(error)
        raise ValueError(f"cannot read '{url}': {reason}") from error
