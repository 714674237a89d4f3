"""Suppression of the messages of decoders: of Pillow, and of libtiff, which is in C."""

import ctypes
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from PIL import features


@contextmanager
def _suppress_libtiff_errors() -> Iterator[None]:
    """Suppress the messages of libtiff on stderr, if it can be found: on Linux."""
    library = _load()
    if library is None:
        yield
        return
    previous = library.TIFFSetErrorHandler(None)
    try:
        yield
    finally:
        library.TIFFSetErrorHandler(previous)


@cache  # the search takes milliseconds, and is needed for each file
def _load() -> ctypes.CDLL | None:
    """Return the libtiff that Pillow has loaded; its file name differs between wheels."""
    if not features.check("libtiff"):
        return None
    with suppress(OSError, AttributeError):
        match = re.search(r"/\S.*libtiff[^/\n]*$", Path("/proc/self/maps").read_text(), re.M)
        if match is not None:
            library = ctypes.CDLL(match[0])
            set_handler = library.TIFFSetErrorHandler
            set_handler.argtypes, set_handler.restype = [ctypes.c_void_p], ctypes.c_void_p
            return library
    return None


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Suppress the warnings of decoders: failures are reported by file name."""
    with _suppress_libtiff_errors(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        yield
