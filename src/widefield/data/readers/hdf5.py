"""HDF5 and Zarr files of arrays, with the keys of a `.npz` file."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from widefield.core.hardware import free_host_memory
from widefield.core.names import printable, reason_of
from widefield.data.readers.arrays import channels_are_second

_IMAGES = ("x", "images")
"""Keys of images, which stay in the file where they do not fit into memory."""


@dataclass(frozen=True)
class ImagesInFile:
    """Images [n, H, W, C] in an HDF5 or Zarr file, read like an array; each read is from disk."""

    array: Any
    path: Path
    file_format: str
    """HDF5 or Zarr."""
    rows: NDArray[np.int64]
    """Rows of the array, [n]."""
    ndim = 4

    @property
    def shape(self) -> tuple[int, ...]:
        return len(self.rows), *self.array.shape[1:]

    @property
    def dtype(self) -> np.dtype[np.generic]:
        return np.dtype(self.array.dtype)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: Any) -> NDArray[np.generic]:
        """Read an image [H, W, C], or those of a slice or an array of indices [k, H, W, C]."""
        rows = self.rows[index]
        with _errors(self.path, self.file_format):
            if np.ndim(rows) == 0:
                return np.asarray(self.array[int(rows)])
            # Both libraries read increasing rows, of which none is repeated.
            rows, back = np.unique(rows, return_inverse=True)
            read = getattr(self.array, "oindex", self.array)[rows]
            return np.asarray(read)[back]

    def subset(self, rows: NDArray[np.int64]) -> "ImagesInFile":
        return replace(self, rows=self.rows[rows])


def read_hdf5(path: Path) -> dict[str, NDArray[np.generic]]:
    with _errors(path, "HDF5"):
        import h5py

        file = h5py.File(path, "r")
        found = {k: v for k, v in file.items() if isinstance(v, h5py.Dataset)}
        arrays = _arrays(found, path, "HDF5")
        if not any(isinstance(array, ImagesInFile) for array in arrays.values()):
            file.close()
        return arrays


def read_zarr(path: Path) -> dict[str, NDArray[np.generic]]:
    with _errors(path, "Zarr"):
        import zarr

        return _arrays(dict(zarr.open_group(path, mode="r").arrays()), path, "Zarr")


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
        raise ValueError(f"'{path}' is not a readable {kind} file: {reason_of(error)}") from None


class _TooLargeError(ValueError):
    """The arrays do not fit into memory."""


def _arrays(found: dict[str, Any], path: Path, file_format: str) -> dict[str, Any]:
    """Read arrays of plain values; large images stay in the file."""
    free = free_host_memory()
    arrays: dict[str, Any] = {}
    if _size(found) > free:
        arrays = {
            key: ImagesInFile(array, path, file_format, np.arange(array.shape[0]))
            for key, array in found.items()
            if key in _IMAGES
            and array.ndim == 4
            and array.dtype in (np.uint8, np.uint16)
            and not channels_are_second(array.shape)  # they are used as they are
        }
    rest = {key: array for key, array in found.items() if key not in arrays}
    if (size := _size(rest)) > free:
        raise _TooLargeError(
            f"'{path}' holds {size / 1e9:,.1f} GB of arrays and {free / 1e9:.1f} GB of memory are "
            "free: save images as uint8 or uint16 [n, H, W, C], which are read in parts"
        )
    return arrays | {printable(key): _text_or_numbers(array) for key, array in rest.items()}


def _size(arrays: dict[str, Any]) -> int:
    return sum(array.size * array.dtype.itemsize for array in arrays.values())


def _text_or_numbers(array: Any) -> NDArray[np.generic]:
    values = np.asarray(array[...])
    if values.dtype != np.object_:
        return values
    return np.array([v.decode("utf-8") if isinstance(v, bytes) else str(v) for v in values.flat])
