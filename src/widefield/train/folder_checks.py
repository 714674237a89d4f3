"""Checks of the folder of a run, which need no torch."""

import os
from pathlib import Path

from widefield.core.errors import option
from widefield.core.files import check_writable, is_temp_file

SETTINGS_FILE = "run.yaml"
"""Every setting of a run, its data, its seed and the versions."""


def check_empty(folder: Path) -> None:
    """Check that a new run can be written in `folder`, and would overwrite nothing."""
    if os.path.lexists(folder / SETTINGS_FILE):
        raise ValueError(
            f"{folder} already holds a run: go on with {option('resume', True)}, or choose another "
            f"{option('out')}"
        )
    if folder.exists() and (not folder.is_dir() or _has_files(folder)):
        raise ValueError(f"{folder} is not an empty folder: choose another {option('out')}")
    check_writable(folder)


def check_is_run(folder: Path) -> None:
    if not (folder / SETTINGS_FILE).exists():
        raise ValueError(f"{folder} is not a run: it has no {SETTINGS_FILE}")


def _has_files(folder: Path) -> bool:
    """Return whether there are files other than those of a run that was killed at its start."""
    return any(p.name != ".lock" and not is_temp_file(p.name) for p in folder.iterdir())
