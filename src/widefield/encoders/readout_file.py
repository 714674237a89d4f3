"""File of a wide readout, beside its encoder."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from widefield.core.files import write_atomically
from widefield.encoders.readout import Readout, ReadoutConfig, Source, buffer_name
from widefield.encoders.weights.files import READOUT_FILE, check_weights


def save_readout(readout: Readout, folder: str | Path) -> None:
    """Write `readout.safetensors` into `folder` atomically, with its configuration."""
    config = {"readout": json.dumps(asdict(readout.config))}
    weights = {key: value.contiguous().cpu() for key, value in readout.state_dict().items()}
    write_atomically(
        Path(folder) / READOUT_FILE, lambda draft: save_file(weights, draft, metadata=config)
    )


def load_readout(folder: str | Path) -> Readout | None:
    """Load the readout that `save_readout` wrote into `folder`, on the CPU; None without one.

    Raises:
        ValueError: the file is damaged.
    """
    file = Path(folder) / READOUT_FILE
    if not file.is_file():
        return None
    try:
        with safe_open(file, framework="pt") as opened:
            config = _read_config(json.loads((opened.metadata() or {})["readout"]))
            weights = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
        sizes = [len(weights[f"{buffer_name(name)}_mean"]) for name in config.names]
        with torch.device("meta"):  # takes no memory, whatever the sizes in the file
            check_weights(Readout(config, sizes).state_dict(), weights)
        readout = Readout(config, sizes)
        readout.load_state_dict(weights)
    except (SafetensorError, RuntimeError, TypeError, KeyError, ValueError, AssertionError) as e:
        reason = (str(e).splitlines() or [type(e).__name__])[0]
        raise ValueError(f"{file} cannot be read ({reason}): take pooled features instead") from e
    return readout.eval()


def _read_config(values: Any) -> ReadoutConfig:
    sources = tuple(Source(**source) for source in values["sources"])
    shape = tuple(values["input_shape"])
    filtered = values.get("filtered")
    filtered = None if filtered is None else tuple(filtered)
    numbers = (*shape, *(filtered or ()), values["pooled"], values["examples"])
    if (
        len(shape) != 3
        or len(filtered or shape) != 3
        or not all(type(n) is int and 0 < n < 2**31 for n in numbers)
    ):
        raise ValueError("its sizes are not positive integers")
    if len(values["variance"]) != len(sources) or not isinstance(values["fitted_on"], str):
        raise ValueError("its fields are of other types")
    return ReadoutConfig(
        **{
            **values,
            "sources": sources,
            "input_shape": shape,
            "filtered": filtered,
            "variance": tuple(values["variance"]),
        }
    )
