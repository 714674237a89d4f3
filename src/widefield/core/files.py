"""Atomic writes of files, and checks of paths before a computation."""

import errno
import os
import secrets
from collections.abc import Callable, Iterable
from pathlib import Path

from safetensors import SafetensorError

from widefield.core.errors import option

BUILTIN_ENCODERS = ("random", "pixels")
"""Encoders that are named in place of a file or folder."""


class DiskFullError(ValueError):
    """No space is left on the disk for a file."""


def write_atomically(path: Path, write: Callable[[Path], object]) -> None:
    """Call `write` on a temporary file beside `path`, then rename it to `path`.

    Missing folders are created. After a failure `path` is unchanged, and the temporary file and the
    created folders are removed. The mode of the file follows the umask, whatever `write` sets.
    """
    new_folders = make_folders(path.parent)
    temp_path = path.parent / f".{secrets.token_hex(8)}.draft"
    try:
        with open(temp_path, "xb") as file:
            mode = os.fstat(file.fileno()).st_mode & 0o777
        write(temp_path)
        temp_path.chmod(mode)  # a library may have recreated the file with another mode
        with open(temp_path, "rb") as file:
            os.fsync(file.fileno())  # else a crash could leave an empty file at `path`
        os.replace(temp_path, path)
    except BaseException as error:
        temp_path.unlink(missing_ok=True)
        remove_empty(new_folders)
        if disk_is_full(error):
            message = f"no space left on the disk for {path.name}: make room and try again"
            raise DiskFullError(message) from error
        raise


def is_temp_file(name: str) -> bool:
    """Return whether `name` is that of a temporary file, which a killed process leaves behind."""
    return name.startswith(".") and name.endswith(".draft")


def make_folders(path: Path) -> list[Path]:
    """Create the folder `path`; return the folders that were missing, the deepest first."""
    missing = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(parents=True, exist_ok=True)
    return missing


def remove_empty(folders: Iterable[Path]) -> None:
    """Remove these folders, up to the first that is not empty."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def check_plain_file(path: Path, *, largest: int) -> None:
    """Check that `path`, if it exists, is a plain file of at most `largest` bytes.

    Reading a pipe or a device may never end.
    """
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no plain file")
    if path.exists() and path.stat().st_size > largest:
        raise ValueError(f"{path} is larger than {largest / 2**20:,.0f} MB")


def checked_output(path: str | Path, suffixes: tuple[str, ...], *, overwrite: bool) -> Path:
    """Return `path` after checking, before a computation, that a result can be written to it."""
    path = Path(path)
    _check_expanded(path)
    if path.suffix not in suffixes:
        raise ValueError(f"cannot write {path.name}: its suffix must be {' or '.join(suffixes)}")
    if not overwrite:
        check_not_existing(path)
    if path.exists() and not path.is_file():
        raise ValueError(f"{path} is no plain file: choose another name")
    check_writable(path.parent)
    return path


def check_not_existing(path: Path) -> None:
    if os.path.lexists(path):
        raise ValueError(
            f"{path} is already there: choose another name, or pass {option('overwrite', True)}"
        )


def _check_expanded(path: Path) -> None:
    """Check that `path` is not in a folder called ~, where nobody would look for it."""
    if path.parts[:1] == ("~",):
        raise ValueError(f"{path} begins with ~, which a shell expands: give {path.expanduser()}")


def check_folder_name(path: str | Path, *, allow_current: bool = False) -> None:
    """Check that a folder for results has a name of its own."""
    _check_expanded(Path(path))
    if str(path) in BUILTIN_ENCODERS:
        raise ValueError(
            f"'{path}' is the name of a built-in encoder: choose another name for the folder"
        )
    if not allow_current and Path.cwd().is_relative_to(Path(path).absolute().resolve()):
        raise ValueError(f"'{path}' names no folder of its own: choose a name, such as results")


def check_writable(folder: Path) -> None:
    """Check that files can be written in `folder`, which may not exist yet."""
    temp_path = folder / f".{secrets.token_hex(8)}.draft"
    new_folders: list[Path] = []
    try:
        new_folders = make_folders(folder)
        temp_path.touch(exist_ok=False)
        temp_path.unlink()
    except OSError as error:
        message = f"cannot write in {folder}: {error.strerror}; choose another place"
        raise ValueError(message) from error
    finally:
        remove_empty(new_folders)


def disk_is_full(error: BaseException) -> bool:
    """Return whether `error` means that the disk is full or a quota is exceeded."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    # torch and safetensors drop the errno; these are their messages for an incomplete write.
    texts = ("unexpected pos", "failed writing", "No space left", "quota exceeded", "too large")
    is_write_error = isinstance(error, RuntimeError | SafetensorError)
    return is_write_error and any(text in str(error) for text in texts)
