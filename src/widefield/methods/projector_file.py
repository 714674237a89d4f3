"""File of the projection head of a run, beside its encoder."""

import json
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from widefield.core.devices import on_meta
from widefield.core.files import write_atomically
from widefield.encoders import check_weights
from widefield.methods.projector import Projector, projector

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
    weights = {key: value.contiguous() for key, value in head.state_dict().items()}
    shape = {"projector": json.dumps(head.arguments)}
    write_atomically(
        Path(folder) / PROJECTOR_FILE, lambda draft: save_file(weights, draft, metadata=shape)
    )


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
    file = Path(folder) / PROJECTOR_FILE
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            arguments = _checked(json.loads((opened.metadata() or {})["projector"]))
            weights = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
        with on_meta():  # takes no memory, whatever the sizes in the file
            check_weights(projector(**arguments).state_dict(), weights)
        head = projector(**arguments)
        head.load_state_dict(weights)
    except (SafetensorError, RuntimeError, TypeError, KeyError, ValueError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{file} cannot be read ({reason}): take pooled features instead"
        ) from error
    return head.eval()


def _checked(arguments: Any) -> dict[str, Any]:
    smallest = {"in_dim": 1, "layers": 0, "width": 1, "out_dim": 1}
    if not isinstance(arguments, dict) or arguments.keys() != {*smallest, "batch_norm"}:
        raise ValueError("its shape has other fields")
    for name, low in smallest.items():
        value = arguments[name]
        if type(value) is not int or not low <= value <= _LARGEST:
            raise ValueError(f"{name} is {value!r}")
    if type(arguments["batch_norm"]) is not bool:
        raise ValueError(f"batch_norm is {arguments['batch_norm']!r}")
    return arguments


_LARGEST = 10**6
"""Largest width and number of layers."""
