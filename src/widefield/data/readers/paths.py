"""A path or URL -> its reader."""

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from widefield.core.names import printable
from widefield.data.cache import digest_of_files
from widefield.data.examples import Examples
from widefield.data.labels.files import path_column
from widefield.data.readers import hdf5, hub, manifest, remote, tables, tars
from widefield.data.readers.arrays import read_arrays_by_key, read_npy, read_npz, read_windows
from widefield.data.readers.images import read_folder
from widefield.data.readers.windows import read_parquet

_BESIDE_SHARDS = (".json", ".md", ".txt")
_KINDS = "a folder, nor a .npz, .npy, .parquet, .arrow, .tar, .zip, .csv, .h5 or .zarr file"


def read_path(path: Path, *, labels: bool) -> Examples:
    """Read a folder or file of any known kind; with `labels`, folders are no classes.

    Raises:
        ValueError: it is of no known kind, or cannot be read.
    """
    suffix, source = path.suffix.lower(), f"'{path}'"
    _check_readable(path)
    if suffix in hdf5.ZARR_SUFFIXES:
        return _of_arrays(hdf5.read_zarr(path), path)
    if path.is_dir():
        return _read_folder(path, labels=labels)
    if suffix == ".npz":
        return read_npz(path)
    if suffix == ".npy":
        return read_npy(path)
    if suffix == ".parquet":
        return _read_parquet([path], source)
    if suffix in tables.TABLE_SUFFIXES:
        return tables.read_tables([path], source)
    if suffix in tars.TAR_SUFFIXES:
        return tars.read_tars([path], source, labels=labels)
    if suffix == ".zip":
        return tars.read_zip(path, labels=labels)
    if suffix in manifest.LIST_SUFFIXES:
        return manifest.read_manifest(path)
    if suffix in hdf5.HDF5_SUFFIXES:
        return _of_arrays(hdf5.read_hdf5(path), path)
    if tars.is_compressed(path.name):
        raise ValueError(tars.COMPRESSED.format(source))
    raise ValueError(f"{source} is neither {_KINDS}")


def _check_readable(path: Path) -> None:
    """Check that a plain file can be opened; libraries report this in words of their own."""
    if not path.is_file():  # opening a pipe would block
        return
    try:
        path.open("rb").close()
    except OSError as error:
        raise ValueError(f"'{path}' cannot be read: {error.strerror}") from None


def read_url(url: str, *, labels: bool) -> Examples:
    """Read what a URL or a name of the Hub names: a file of a URL is copied into the cache.

    Raises:
        ValueError: it cannot be read, or the package of its protocol is missing.
    """
    if url.startswith(hub.PREFIX):
        return hub.read_hub(url)
    if remote.is_folder(url):
        return remote.read_remote_folder(url, labels=labels)
    return read_path(remote.fetch(url), labels=labels)


def _read_folder(folder: Path, *, labels: bool) -> Examples:
    """Read a saved data set, shards, or files of images or sounds."""
    if tables.is_saved(folder):
        return tables.read_saved(folder)
    if _shards(folder, tars.PACKED_SUFFIXES):
        raise ValueError(tars.COMPRESSED.format(f"'{folder}'"))
    for suffixes in (tars.TAR_SUFFIXES, (".parquet",)):
        shards = _shards(folder, suffixes)
        if shards:
            source = f"'{folder}'"
            if suffixes == tars.TAR_SUFFIXES:
                return tars.read_tars(shards, source, labels=labels)
            return _read_parquet(shards, source)
    return read_folder(folder, labels=labels)


def _shards(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    """Return the shards in a folder that holds nothing else, sorted by name."""
    shards = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                suffix = os.path.splitext(entry.name)[1].lower()
                if suffix in suffixes:
                    shards.append(folder / entry.name)
                elif suffix not in _BESIDE_SHARDS and entry.name[0] != ".":
                    return []
    except OSError as error:
        raise ValueError(f"cannot list folder '{folder}': {error.strerror}") from None
    return sorted(shards)


def _read_parquet(files: Sequence[Path], source: str) -> Examples:
    """Read a table of images, of paths of images, or of windows."""
    schema = tables.read_schema(files[0])
    if "window" in schema.names and len(files) == 1:
        origin = partial(digest_of_files, files)
        return replace(read_windows(read_parquet(files[0])), origin=origin)
    if tables.has_images(schema):
        return tables.read_tables(files, source)
    if len(files) == 1 and path_column(schema.names) is not None:
        return manifest.read_manifest(files[0])
    raise ValueError(
        f"{source} has no column of encoded images, such as bytes of JPEG files, nor 'path' or "
        f"'window'; found {', '.join(map(repr, map(printable, schema.names))) or 'no column'}"
    )


def _of_arrays(arrays: dict[str, NDArray[np.generic]], path: Path) -> Examples:
    examples = read_arrays_by_key(arrays, f"'{path}'")
    # The chunks of a Zarr group are files in folders.
    files = sorted(path.rglob("*")) if path.is_dir() else [path]
    return replace(examples, origin=partial(digest_of_files, files))
