"""The C library that decodes compressed TIFFs, which prints its errors itself."""

import ctypes
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from PIL import features


@contextmanager
def quiet_libtiff() -> Iterator[None]:
    """Keep libtiff's words about damaged files off stderr; what fails is reported by name.

    Does nothing where the library cannot be found, which takes Linux.
    """
    library = _loaded()
    if library is None:
        yield
        return
    before = library.TIFFSetErrorHandler(None)
    try:
        yield
    finally:
        library.TIFFSetErrorHandler(before)


@cache  # the search takes milliseconds, and every header of a folder asks
def _loaded() -> ctypes.CDLL | None:
    """Return the copy of libtiff that Pillow has loaded; wheels bring one of an odd name."""
    if not features.check("libtiff"):
        return None
    with suppress(OSError, AttributeError):
        found = re.search(r"/\S.*libtiff[^/\n]*$", Path("/proc/self/maps").read_text(), re.M)
        if found is not None:
            library = ctypes.CDLL(found[0])
            setter = library.TIFFSetErrorHandler
            setter.argtypes, setter.restype = [ctypes.c_void_p], ctypes.c_void_p
            return library
    return None
