"""Lock of a folder for one process at a time."""

import fcntl
import os
from pathlib import Path
from typing import Self


class FolderLock:
    """Lock of the process that may change a folder; it is released if the process dies."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / ".lock"
        self._fd: int | None = None

    def __repr__(self) -> str:
        return f"FolderLock({str(self._folder)!r})"

    def acquire(self, *, wait: bool = False) -> None:
        """Take the lock; with `wait`, after another process has released it."""
        while self._fd is None:
            fd = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
            except BlockingIOError:
                pid = os.pread(fd, 32, 0).decode() or "unknown"
                os.close(fd)
                raise ValueError(
                    f"{self._folder} is in use by process {pid}: wait for it to end, or stop it"
                ) from None
            if self._is_current(fd):
                os.ftruncate(fd, 0)
                os.pwrite(fd, str(os.getpid()).encode(), 0)
                self._fd = fd
            else:  # the other process removed the file after it was opened here
                os.close(fd)

    def release(self) -> None:
        """Release the lock, if it is held, and remove its file."""
        if self._fd is not None:
            self._path.unlink(missing_ok=True)
            os.close(self._fd)
            self._fd = None

    def _is_current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self._path))
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(self, *error: object) -> None:
        self.release()
