"""Arrays of `.npz` and `.npy` files: checked before they are read, never unpickled."""

import math
import warnings
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from numpy.typing import NDArray

from widefield.core.hardware import check_memory, free_host_memory
from widefield.core.names import printable

_ENCRYPTED = 0x1
_DAMAGE_TEXT = "is damaged; copy or create the file again"
_NO_ARRAY = "is not an array; leave it out, or save it by numpy.savez"
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def read_arrays(path: Path) -> dict[str, NDArray[np.generic]]:
    error = ValueError(f"'{path}' is not a readable .npz file; make one by numpy.savez")
    if not path.is_file():  # opening a pipe would block
        raise error
    try:
        archive = zipfile.ZipFile(path)
    except Exception:  # a damaged directory may raise any error
        raise error from None
    with archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        size, free = sum(member.file_size for member in members), free_host_memory()
        if size > free:
            raise ValueError(
                f"'{path}' holds {size / 1e9:,.1f} GB of arrays and {free / 1e9:.1f} GB of memory "
                "are free; divide it into several files"
            )
        arrays: dict[str, NDArray[np.generic]] = {}
        for member in members:
            key = member.filename.removesuffix(".npy")
            name = f"key '{printable(key)}' of '{path}'"
            if key in arrays:
                raise ValueError(f"{name} is duplicated; keep one of the two")
            if printable(key) != key:
                raise ValueError(f"{name} has a name that is not plain text; rename it")
            arrays[key] = _read(archive, member, name)
    return arrays


def read_npy(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read the images of a `.npy` file, as a read-only memory map, under the key `x`."""
    problem: str | None = _NO_ARRAY
    if path.is_file():
        with path.open("rb") as file:
            problem = _problem(file, path.stat().st_size)
    if problem == _NO_ARRAY:
        raise ValueError(f"'{path}' is not a readable .npy file; make one by numpy.save")
    if problem is not None:
        raise ValueError(f"'{path}' {problem}")
    array: NDArray[np.generic] = np.load(path, mmap_mode="r", allow_pickle=False)
    if array.dtype != np.uint8:  # others are converted in memory
        check_memory(array.size, f"the pixels of '{path}'")
    return {"x": array}


def _read(archive: zipfile.ZipFile, member: zipfile.ZipInfo, name: str) -> NDArray[np.generic]:
    if member.flag_bits & _ENCRYPTED:
        raise ValueError(f"{name} is encrypted; save it without a password")
    try:
        with archive.open(member) as file:
            problem = _problem(file, member.file_size)
        if problem is None:
            with archive.open(member) as file, _without_warnings():
                array: NDArray[np.generic] = np.lib.format.read_array(file, allow_pickle=False)
            return array
    except Exception:  # a damaged stream may raise any error
        problem = _DAMAGE_TEXT
    raise ValueError(f"{name} {problem}")


@contextmanager
def _without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():  # numpy warns on headers that Python 2 wrote
        warnings.simplefilter("ignore")
        yield


def _problem(file: IO[bytes], file_size: int) -> str | None:
    """Return the problem with an array according to its header, or None."""
    try:
        with _without_warnings():
            return _problem_of_header(file, file_size)
    except Exception:  # a damaged header may raise any error
        return _DAMAGE_TEXT


def _problem_of_header(file: IO[bytes], file_size: int) -> str | None:
    prefix = np.lib.format.MAGIC_PREFIX
    if file.read(len(prefix)) != prefix:
        return _NO_ARRAY
    version = tuple(file.read(2))
    if version not in _HEADERS:
        return "is of a type other than plain values; save it as numbers or strings"
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        return (
            "holds Python objects, which are never unpickled; "
            "save it as numbers or fixed-width strings"
        )
    if dtype.kind not in "biufcUS" or dtype.itemsize == 0 or min(shape, default=0) < 0:
        return f"holds {dtype}; save it as numbers or fixed-width strings"
    # numpy allocates what a header claims before it reads.
    size = math.prod(shape) * dtype.itemsize
    if size != file_size - file.tell():
        return f"claims the shape {list(shape)}, which does not match its size; create it again"
    return None
