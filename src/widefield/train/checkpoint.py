"""A checkpoint is the whole run at one step, written so that a crash leaves the last one whole."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from safetensors import SafetensorError


def write_atomically(path: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a temporary file beside `path`, then move it there in one step.

    Raises:
        ValueError: the disk is full; `path` is as it was before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.draft")
    try:
        write(draft)
        with open(draft, "rb") as f:
            os.fsync(f.fileno())
        os.replace(draft, path)
    except (OSError, RuntimeError, SafetensorError) as error:
        draft.unlink(missing_ok=True)
        if _disk_is_full(error):
            raise ValueError(
                f"no space left on the disk for {path.name}: the last checkpoint is whole; "
                "make room and run again with --resume"
            ) from error
        raise


def save(path: Path, state: dict[str, Any]) -> None:
    """Write `state`, a nest of dicts, lists, numbers, strings and tensors."""
    write_atomically(path, lambda draft: torch.save(state, draft))


def load(path: Path, device: torch.device) -> dict[str, Any]:
    """Read a state written by `save`; nothing in the file is executed.

    Raises:
        ValueError: the file is truncated or not a checkpoint.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location=device, weights_only=True)
    except (RuntimeError, EOFError, OSError, ValueError, KeyError, UnpicklingError) as error:
        raise ValueError(
            f"{path} is not a whole widefield checkpoint: restore it, or start a new run"
        ) from error
    return state


def _disk_is_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    # torch and safetensors lose the errno; these are their words for a write that came up short.
    words = ("unexpected pos", "failed writing", "No space left", "quota exceeded")
    return any(word in str(error) for word in words)
