"""The decoding of many files in threads; images, values and sounds all go through it."""

import ctypes
import re
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from PIL import Image, UnidentifiedImageError, features

from widefield.core.cpus import available_cpus
from widefield.core.names import printable
from widefield.core.types import ProgressCallback
from widefield.data.cache import DecodingJournal, Record
from widefield.data.table import Skipped


@contextmanager
def suppress_warnings() -> Iterator[None]:
    """Suppress the warnings of Pillow, and those of libtiff on stderr if it can be found: on Linux.

    Failures are reported by file name.
    """
    library = _libtiff()
    previous = None if library is None else library.TIFFSetErrorHandler(None)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL\.")
            yield
    finally:
        if library is not None:
            library.TIFFSetErrorHandler(previous)


@cache  # the search takes milliseconds, and is needed for each file
def _libtiff() -> ctypes.CDLL | None:
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


T = TypeVar("T")

# Chosen by hand: 300 MB in RGB for each thread; cameras have up to 60 million pixels.
PIXEL_LIMIT = 100_000_000
"""Larger images are skipped: a few kilobytes may decompress to gigabytes."""
_CHUNK = 32
"""Images that a thread decodes before it takes the next ones. Chosen by hand: a task costs about as
much as a small image, and too few tasks leave threads idle."""

Result = tuple[Sequence[str], float | None, float]
"""Choices made in decoding an example, the share of its values outside black and white, and the
share of its area that is cut off; as JSON in the journal."""


@dataclass(slots=True)
class Report:
    """What was decoded of many files, and what was not."""

    failed: dict[int, Skipped] = field(default_factory=dict)
    """Files that cannot be read, by row."""
    choices: Counter[str] = field(default_factory=Counter)
    """Number of examples of each choice."""
    outside: list[float] = field(default_factory=list)
    """Share of the values outside black and white, of each image that does not define them."""
    cut: float = 0.0
    """Sum of the shares of areas that are cut off."""

    def add(self, name: str, row: int, result: Result | str) -> None:
        """Count the result of a row, or why it failed."""
        if isinstance(result, str):
            self.failed[row] = Skipped(name, result)
            return
        choices, outside, cut = result
        self.cut += cut
        self.choices.update(choices)
        if outside is not None:
            self.outside.append(outside)

    def record(self) -> Record:
        """Return the report as the cache keeps it, JSON values."""
        return {
            **failure_record(self.failed),
            "choices": dict(self.choices),
            "cut": self.cut / max(self.choices["resized"], 1),
            "outside": sum(self.outside) / max(len(self.outside), 1),
        }


def failure_record(failed: Mapping[int, Skipped]) -> Record:
    """Return rows that failed, and why, as the cache keeps them, JSON values."""
    rows = sorted(failed)
    return {"failed": rows, "skipped": [(failed[row].path, failed[row].reason) for row in rows]}


def decode_all(
    decode: Callable[[int], Result | None],
    names: Sequence[str],
    rows: Sequence[int],
    *,
    chunk: int = _CHUNK,
    prepare: Callable[[list[int]], None] | None = None,
    journal: DecodingJournal | None = None,
    progress: ProgressCallback | None = None,
) -> Report:
    """Call `decode` for each of `rows` in threads, and report results and failures.

    Rows for which it returns None wait for `prepare(rows)`, and are decoded again. Rows that the
    `journal` has are decoded already.
    """
    report = Report()
    done: dict[int, Any] = {} if journal is None else journal.done
    for row, result in done.items():
        report.add(names[row], row, result)
    left = [row for row in rows if row not in done]
    offset = len(rows) - len(left)
    while left:
        waiting: list[int] = []
        with suppress_warnings():
            for row, result in in_parallel(decode, left, progress, offset=offset, chunk=chunk):
                if result is None:
                    waiting.append(row)
                    continue
                report.add(names[row], row, result)
                if journal is not None:
                    journal.add(row, result)
            offset, left = len(rows), waiting
            if left:
                assert prepare is not None
                prepare(left)
    return report


def in_parallel(
    work: Callable[[int], T],
    rows: Sequence[int],
    progress: ProgressCallback | None = None,
    *,
    offset: int = 0,
    chunk: int = _CHUNK,
) -> Generator[tuple[int, T | str], None, None]:
    """Call `work` for each of `rows` in threads; yield its result, or why it failed, in order.

    `offset` examples were decoded in an earlier pass.
    """
    stop = threading.Event()

    def task(start: int) -> list[tuple[int, T | str]]:
        done: list[tuple[int, T | str]] = []
        for row in rows[start : start + chunk]:
            if stop.is_set():
                break
            try:
                done.append((row, work(row)))
            except Exception as error:  # decoders raise every kind of error on damaged files
                done.append((row, reason_of(error)))
        return done

    with ThreadPoolExecutor(available_cpus()) as pool:
        try:
            starts = range(0, len(rows), chunk)
            for start, done in zip(starts, pool.map(task, starts), strict=True):
                yield from done
                if progress is not None:
                    end = min(start + chunk, len(rows))
                    progress(offset + end, offset + len(rows))
        except BaseException:  # an interrupt must not wait for a million files
            stop.set()
            raise


def reason_of(error: Exception) -> str:
    """Return why a file cannot be read, in words."""
    if isinstance(error, UnidentifiedImageError):
        return "not an image"
    if isinstance(error, Image.DecompressionBombError):
        return f"more pixels than the limit of {PIXEL_LIMIT // 1_000_000} million"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return printable(" ".join(str(error).split()) or type(error).__name__)
