"""Finished runs of a script in one file, which several processes may add to."""

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from widefield.core.files import write_atomically
from widefield.core.hardware import choose_device, machine

Run = dict[str, Any]
"""What is kept of a run: plain JSON values."""


class Results:
    """Finished runs by name, in a JSON file that several processes may add to.

    The file names the machine of its first run; a run that was made on another names that.

    Args:
        path: the file; it is rewritten after every run, and never half written.
        summary: computes the rest of the file from all its runs.
    """

    def __init__(self, path: Path, summary: Callable[[dict[str, Run]], dict[str, Any]]) -> None:
        self.path, self.summary = path, summary
        self.machine = machine(choose_device("auto"))
        self.runs = self._read().get("runs", {})

    def __contains__(self, name: str) -> bool:
        return name in self.runs

    def add(self, name: str, run: Run) -> None:
        """Keep a run."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(self.path.parent):
            kept = self._read()
            first = kept.get("machine", self.machine)
            here = {} if first == self.machine else {"machine": self.machine}
            self.runs = kept.get("runs", {}) | {name: run | here}
            report = {
                "machine": first,
                "threads": torch.get_num_threads(),
                **self.summary(self.runs),
                "runs": self.runs,
            }
            write_text(self.path, json.dumps(report, indent=1) + "\n")

    def _read(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads(self.path.read_text()) if self.path.exists() else {}
        return content


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a lock on the folder, which one process at a time can have."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def write_text(path: Path, text: str) -> None:
    """Replace the content of a file in one step."""

    def write(draft: Path) -> None:
        draft.write_text(text)

    write_atomically(path, write)
