"""File of the projection head of a run, beside its encoder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from annotated_types import Interval
from torch import Tensor

from widefield.core.validation import check
from widefield.encoders import load_saved_module, save_module
from widefield.methods.projector import Projector

PROJECTOR_FILE = "projector.safetensors"
"""Name of the file in the folders of a run and of its checkpoints."""


def save_projector(head: Projector, folder: str | Path) -> None:
    """Write `projector.safetensors` atomically, with the arguments of the head.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from widefield.methods import ProjectorConfig
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_projector(ProjectorConfig(layers=1, dim=8).build(32), folder)
        ...     load_projector(folder)(torch.rand(4, 32)).shape
        torch.Size([4, 8])
    """
    save_module(head, Path(folder) / PROJECTOR_FILE, "projector", head.arguments)


def load_projector(folder: str | Path) -> Projector | None:
    """Load the head that `save_projector` wrote into `folder`; None if there is none.

    It is on the CPU, in evaluation mode.

    Raises:
        ValueError: the file is damaged.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     load_projector(folder) is None
        True
    """
    return load_saved_module(Path(folder) / PROJECTOR_FILE, "projector", _build)


def _build(arguments: Any, weights: Mapping[str, Tensor]) -> Projector:
    if not isinstance(arguments, dict) or arguments.keys() != _HINTS.keys():
        raise ValueError("its shape has other fields")
    for name, hint in _HINTS.items():
        check(name, hint, arguments[name])
    return Projector(**arguments)


# A file must not take more time or memory than any head that was trained.
_Count = Annotated[int, Interval(ge=1, le=10**6)]
_HINTS: dict[str, Any] = {
    "in_dim": _Count,
    "layers": Annotated[int, Interval(ge=0, le=10**6)],
    "width": _Count,
    "out_dim": _Count,
    "batch_norm": bool,
}
"""Types of the arguments of a projector in a file."""
