"""Files that are written whole or not at all."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

from safetensors import SafetensorError


class DiskFullError(ValueError):
    """A file that found no space on its disk."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it there in one step.

    The folder is made where it is missing. After any failure, `path` is as it was before and the
    temporary file is gone.

    Raises:
        DiskFullError: the disk is full.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = Path(folder) / "note.txt"
        ...     write_atomically(path, lambda draft: draft.write_text("whole"))
        ...     path.read_text()
        'whole'
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    try:
        write(draft)
        with open(draft, "rb") as file:
            os.fsync(file.fileno())  # else a crash could leave the new name with no content
        os.replace(draft, path)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        if disk_is_full(error):
            message = f"no space left on the disk for {path.name}: make room and try again"
            raise DiskFullError(message) from error
        raise


def disk_is_full(error: BaseException) -> bool:
    """Return whether `error` says that there is no space left, or that a quota is used up."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    # torch and safetensors lose the errno; these are their words for a write that came up short.
    words = ("unexpected pos", "failed writing", "No space left", "quota exceeded", "too large")
    lost = isinstance(error, RuntimeError | SafetensorError)
    return lost and any(word in str(error) for word in words)
