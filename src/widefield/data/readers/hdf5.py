"""HDF5 and Zarr files of arrays, with the keys of a `.npz` file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.memory import free_host_memory
from widefield.core.names import printable

HDF5_SUFFIXES, ZARR_SUFFIXES = (".h5", ".hdf5"), (".zarr",)


def read_hdf5(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read the arrays of an HDF5 file by key.

    Raises:
        ValueError: the extra is missing, or the file is damaged or larger than memory.
    """
    with _errors(path, "HDF5"):
        import h5py

        with h5py.File(path, "r") as file:
            return _arrays({k: v for k, v in file.items() if isinstance(v, h5py.Dataset)}, path)


def read_zarr(path: Path) -> dict[str, NDArray[np.generic]]:
    """Read the arrays of a Zarr group by key.

    Raises:
        ValueError: the extra is missing, or the group is damaged or larger than memory.
    """
    with _errors(path, "Zarr"):
        import zarr

        return _arrays(dict(zarr.open_group(path, mode="r").arrays()), path)


@contextmanager
def _errors(path: Path, kind: str) -> Iterator[None]:
    """Make one line of whatever is raised: stores and codecs have errors of their own."""
    try:
        yield
    except ImportError:
        raise ValueError(f"{kind} files need an extra: pip install 'widefield[arrays]'") from None
    except _TooLargeError:
        raise
    except Exception as error:
        reason = printable(" ".join(str(error).split()))[:120]
        raise ValueError(f"'{path}' is not a readable {kind} file: {reason}") from None


class _TooLargeError(ValueError):
    """The arrays do not fit into memory."""


def _arrays(found: dict[str, Any], path: Path) -> dict[str, NDArray[np.generic]]:
    """Read arrays of plain values into memory."""
    size = sum(array.size * array.dtype.itemsize for array in found.values())
    free = free_host_memory()
    if size > free:
        raise _TooLargeError(
            f"'{path}' holds {size / 1e9:,.1f} GB of arrays and {free / 1e9:.1f} GB of memory are "
            "free: save the images as a .npy file, which is mapped into memory"
        )
    return {printable(key): _text_or_numbers(array) for key, array in found.items()}


def _text_or_numbers(array: Any) -> NDArray[np.generic]:
    values = np.asarray(array[...])
    if values.dtype != np.object_:
        return values
    return np.array([v.decode("utf-8") if isinstance(v, bytes) else str(v) for v in values.flat])
