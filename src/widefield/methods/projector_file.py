"""The projection head of a run as a file, beside the encoder that it was trained with."""

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from widefield.core.files import write_atomically
from widefield.methods.projector import Projector, projector

PROJECTOR_FILE = "projector.safetensors"
"""Name of the file in a run's folder, and in the folder of each of its checkpoints."""


def save_projector(head: Projector, folder: str | Path) -> None:
    """Write `projector.safetensors`, whole or not at all; it says how the head is built."""
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
    """
    file = Path(folder) / PROJECTOR_FILE
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            head = projector(**json.loads(opened.metadata()["projector"]))
            head.load_state_dict({key: opened.get_tensor(key) for key in opened.keys()})  # noqa: SIM118
    except (SafetensorError, RuntimeError, TypeError, KeyError) as error:
        raise ValueError(
            f"{file} cannot be read ({str(error).splitlines()[0]}): take pooled features instead"
        ) from error
    return head.eval()
