"""A path or URL -> its reader."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from widefield.core.names import printable
from widefield.data.cache import digest_of_files
from widefield.data.examples import Examples
from widefield.data.labels.columns import read_split
from widefield.data.labels.files import path_column
from widefield.data.labels.folders import is_split
from widefield.data.readers import archives, hub, manifest, remote, tables
from widefield.data.readers.arrays import read_arrays_by_key
from widefield.data.readers.hdf5 import read_hdf5, read_zarr
from widefield.data.readers.images import read_folder
from widefield.data.readers.npz import read_arrays, read_npy

Reader = Callable[[Sequence[Path], str, bool], Examples]
"""Reads the files of a source, whose name in messages is given; the last argument says whether
labels come from elsewhere, so that folders are no classes."""

_SIDECAR_SUFFIXES = (".json", ".md", ".txt")


def _reader_of_arrays(read: Callable[[Path], dict[str, NDArray[np.generic]]]) -> Reader:
    return lambda files, source, labels: read_arrays_by_key(read(files[0]), source)


def _read_parquet(files: Sequence[Path], source: str, labels: bool) -> Examples:
    """Read a table of images, of paths of images, or of windows."""
    schema = tables.read_schema(files[0])
    if "window" in schema.names and len(files) == 1:
        examples = read_arrays_by_key(tables.read_windows(files[0]), source)
        split = tables.read_columns(files[0], ["split"] if "split" in schema.names else [])
        return replace(examples, is_test=read_split(split, source))
    if tables.image_columns(schema):
        return tables.read_tables(files, source)
    if len(files) == 1 and path_column(schema.names) is not None:
        return manifest.read_manifest(files[0])
    raise ValueError(
        f"{source} has no column of encoded images, such as bytes of JPEG files, nor 'path' or "
        f"'window'; found {', '.join(map(repr, map(printable, schema.names))) or 'no column'}"
    )


READERS: Mapping[str, Reader] = {
    ".npz": _reader_of_arrays(read_arrays),
    ".npy": _reader_of_arrays(read_npy),
    ".h5": _reader_of_arrays(read_hdf5),
    ".hdf5": _reader_of_arrays(read_hdf5),
    ".zarr": _reader_of_arrays(read_zarr),
    ".parquet": _read_parquet,
    ".arrow": lambda files, source, labels: tables.read_tables(files, source),
    ".feather": lambda files, source, labels: tables.read_tables(files, source),
    ".csv": lambda files, source, labels: manifest.read_manifest(files[0]),
    ".tsv": lambda files, source, labels: manifest.read_manifest(files[0]),
    ".tar": archives.read_tars,
    ".zip": archives.read_zip,
}
"""Suffix -> reader of files."""
_SHARDS = (".tar", ".parquet")
"""Suffixes of files that are one source if a folder holds nothing else."""


def read_path(path: Path, *, labels: bool) -> Examples:
    """Read a folder or file of any known kind; with `labels`, folders are no classes."""
    suffix, source = path.suffix.lower(), f"'{path}'"
    if path.is_dir() and suffix != ".zarr":
        return _read_folder(path, source, labels=labels)
    if path.is_file():  # opening a pipe would block
        try:
            path.open("rb").close()
        except OSError as error:  # libraries report this in words of their own
            raise ValueError(f"{source} cannot be read: {error.strerror}") from None
    if suffix in READERS:
        return _read_files([path], source, labels=labels)
    if archives.is_compressed(path.name):
        raise ValueError(archives.COMPRESSED.format(source))
    *suffixes, last = READERS
    raise ValueError(f"{source} is neither a folder, nor a {', '.join(suffixes)} or {last} file")


def _read_files(files: Sequence[Path], source: str, *, labels: bool) -> Examples:
    """Read files of one suffix, which are known by their names, sizes and times."""
    examples = READERS[files[0].suffix.lower()](files, source, labels)
    if examples.origin is not None:
        return examples
    if files[0].is_dir():  # the chunks of a Zarr group are files in folders
        files = sorted(files[0].rglob("*"))
    return replace(examples, origin=partial(digest_of_files, files))


def _read_folder(folder: Path, source: str, *, labels: bool) -> Examples:
    """Read a saved data set, shards, or files of images or sounds."""
    if (saved := tables.saved_files(folder)) is not None:
        return _read_files(saved, source, labels=labels)
    if _shards(folder, archives.PACKED_SUFFIXES):
        raise ValueError(archives.COMPRESSED.format(source))
    for suffix in _SHARDS:
        if shards := _shards(folder, (suffix,)):
            _check_one_split(shards, source)
            return _read_files(shards, source, labels=labels)
    return read_folder(folder, labels=labels)


def _check_one_split(shards: Sequence[Path], source: str) -> None:
    """Check that shards are parts of one split, by what their names begin with."""
    prefixes = {re.split(r"\d", shard.stem)[0].strip("-_. ") for shard in shards}
    splits = sorted(name for name in prefixes if is_split(name))
    if len(splits) > 1:
        raise ValueError(
            f"{source} holds shards of {' and '.join(splits)}, which are splits: put those of each "
            "into a folder of its own, and give one"
        )


def read_url(url: str, *, labels: bool) -> Examples:
    """Read what a URL or a name of the Hub names: a file of a URL is copied into the cache."""
    if url.startswith(hub.PREFIX):
        kept = hub.kept_path(url)
        if kept.is_dir():
            return read_path(kept, labels=labels)
        return _read_files([kept], f"'{url}'", labels=labels)
    if remote.is_folder(url):
        return remote.read_remote_folder(url, labels=labels)
    return read_path(remote.fetch(url), labels=labels)


def _shards(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the shards in a folder that holds nothing else, sorted by name."""
    shards = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                suffix = os.path.splitext(entry.name)[1].lower()
                if suffix in suffixes:
                    shards.append(folder / entry.name)
                elif suffix not in _SIDECAR_SUFFIXES and entry.name[0] != ".":
                    return []
    except OSError as error:
        raise ValueError(f"cannot list folder '{folder}': {error.strerror}") from None
    return sorted(shards)
