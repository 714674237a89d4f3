"""Files that are written whole or not at all, and places for them that are checked first."""

import errno
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

from safetensors import SafetensorError


class DiskFullError(ValueError):
    """A file that found no space on its disk."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it there in one step.

    The folder is made where it is missing. After any failure, `path` is as it was before, and the
    temporary file and what was made for it are gone. The file gets the mode that the user's umask
    leaves, whatever `write` gives it.

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
    made = make_folders(path.parent)
    draft = path.parent / f".{secrets.token_hex(8)}.draft"  # a name that nobody has taken
    try:
        with open(draft, "xb") as opened:
            mode = os.fstat(opened.fileno()).st_mode & 0o777
        write(draft)
        draft.chmod(mode)  # libraries that make the file anew may close it to others
        with open(draft, "rb") as file:
            os.fsync(file.fileno())  # else a crash could leave the new name with no content
        os.replace(draft, path)
    except BaseException as error:
        draft.unlink(missing_ok=True)
        remove_empty(made)
        if disk_is_full(error):
            message = f"no space left on the disk for {path.name}: make room and try again"
            raise DiskFullError(message) from error
        raise


def is_draft(name: str) -> bool:
    """Return whether `name` is that of a temporary file, which a killed process may leave."""
    return name.startswith(".") and name.endswith(".draft")


def make_folders(path: Path) -> list[Path]:
    """Make the folder `path`; return it and those above it that were missing, the deepest first."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return missing


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove these folders, up to the first that holds something."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def refuse_strange(path: Path, *, largest: int) -> None:
    """Refuse to read a pipe or a device, which may never end, and a file that is absurdly large.

    Raises:
        ValueError: `path` is there, and is no plain file of at most `largest` bytes.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no plain file")
    if path.exists() and path.stat().st_size > largest:
        raise ValueError(f"{path} is larger than {largest / 2**20:,.0f} MB")


def checked_output(path: str | Path, suffixes: tuple[str, ...], *, overwrite: bool) -> Path:
    """Refuse, before the work, a file that could not be written after it.

    Args:
        path: the file to be written.
        suffixes: those that name a format.
        overwrite: whether a file that is there may be replaced.

    Raises:
        ValueError: another suffix, a file that is there, a folder of that name, or no way to write.
    """
    path = Path(path)
    if path.suffix not in suffixes:
        raise ValueError(f"cannot write {path.name}: its suffix must be {' or '.join(suffixes)}")
    if os.path.lexists(path) and not overwrite:
        raise ValueError(f"{path} is already there: choose another name, or pass --overwrite")
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no plain file: choose another name")
    refuse_unwritable(path.parent)
    return path


def refuse_unwritable(folder: Path) -> None:
    """Refuse a folder, there or to be made, in which nothing can be written.

    Raises:
        ValueError: nothing can; the message says what the system says.
    """
    trial = folder / f".{secrets.token_hex(8)}.draft"
    made: list[Path] = []
    try:
        made = make_folders(folder)
        trial.touch(exist_ok=False)
        trial.unlink()
    except OSError as error:
        reason = f"cannot write in {folder}: {error.strerror}; choose another place"
        raise ValueError(reason) from error
    finally:
        remove_empty(made)


def disk_is_full(error: BaseException) -> bool:
    """Return whether `error` says that there is no space left, or that a quota is used up."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    # torch and safetensors lose the errno; these are their words for a write that came up short.
    words = ("unexpected pos", "failed writing", "No space left", "quota exceeded", "too large")
    lost = isinstance(error, RuntimeError | SafetensorError)
    return lost and any(word in str(error) for word in words)
