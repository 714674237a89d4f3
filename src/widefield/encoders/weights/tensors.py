"""Reading of the tensors in a file of weights; nothing in the file is executed."""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors.torch import load_file
from torch import Tensor

# Nested deeper, a file would exhaust the stack; those of trainers have fewer than ten.
_MAX_DEPTH = 50
"""Largest number of dots in a tensor's path."""


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read every tensor of a file, by its dotted path.

    Objects of other classes, such as hyperparameters of trainers, are left out.
    """
    if not path.is_file():
        raise ValueError(f"no weights at {path}: give a .safetensors or state-dict file")
    unknown: list[str] = []
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():  # pickles with code raise an error below
            warnings.simplefilter("ignore")
            unknown = _classes_unknown_to_torch(path)
            with torch.serialization.safe_globals([(_Placeholder, name) for name in unknown]):
                content = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    # The errors of `torch.load` have no common class.
    except Exception as error:
        _raise_read_error(path, (str(error).splitlines() or [type(error).__name__])[0])
    tensors = dict(_leaves(content, ""))
    if not tensors and unknown:
        _raise_read_error(path, f"beside objects of {unknown[0]} it has no tensors")
    if not tensors:
        raise ValueError(f"{path} holds no tensors: give a state-dict file")
    return tensors


def _raise_read_error(path: Path, reason: str) -> NoReturn:
    raise ValueError(
        f"{path} cannot be read as plain weights ({reason[:80]}): save its state_dict() again; "
        "files that hold code are never run"
    ) from None


class _Placeholder:
    """Placeholder for any class or function that a file names; it does nothing."""

    def __new__(cls, *args: object) -> "_Placeholder":
        return super().__new__(cls)

    def __init__(self, *args: object) -> None:
        pass

    def __call__(self, *args: object) -> "_Placeholder":
        return self

    def __setstate__(self, state: object) -> None:
        """Ignore the state of the object."""

    def __eq__(self, other: object) -> bool:
        """Return whether `other` is this class, by which torch checks that it is allowed."""
        return other is _Placeholder

    __hash__ = object.__hash__


def _classes_unknown_to_torch(path: Path) -> list[str]:
    """Return the names of classes and functions that a file of torch needs beside tensors."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        return [name if "." in name else f"builtins.{name}" for name in names]
    except Exception:  # an old format or no weights, for which `torch.load` raises
        return []


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield every dense tensor in nested mappings with its dotted path, to a maximum depth."""
    if isinstance(node, Tensor):
        if node.layout == torch.strided and node.device.type == "cpu" and not node.is_quantized:
            yield path.removesuffix("."), node
    elif isinstance(node, Mapping) and path.count(".") < _MAX_DEPTH:
        for key, child in node.items():
            yield from _leaves(child, f"{path}{key}.")
