"""The tensors in a file of weights, by their dotted paths; nothing in the file is executed."""

import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from safetensors.torch import load_file
from torch import Tensor

_MAX_DEPTH = 50
"""Dots in a tensor's path at most."""


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read every tensor of a file, by its dotted path.

    Objects of other classes, such as the hyper-parameters that trainers keep beside the weights,
    are left out: their classes are not looked up.

    Raises:
        ValueError: there is no such file, it is damaged or of another kind, or has no tensors.
    """
    if not path.is_file():
        raise ValueError(f"no weights at {path}: give a .safetensors or state-dict file")
    unknown: list[str] = []
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():  # a pickle that holds code is refused below
            warnings.simplefilter("ignore")
            unknown = _classes_unknown_to_torch(path)
            with torch.serialization.safe_globals([(_Placeholder, name) for name in unknown]):
                content = torch.load(path, map_location="cpu", weights_only=True)
    except MemoryError:
        raise
    # Whatever torch makes of a file that holds no weights: its errors have no common class.
    except Exception as error:
        _raise_unreadable(path, (str(error).splitlines() or [type(error).__name__])[0])
    tensors = dict(_leaves(content, ""))
    if not tensors and unknown:
        _raise_unreadable(path, f"beside objects of {unknown[0]} it has no tensors")
    if not tensors:
        raise ValueError(f"{path} holds no tensors: give a state-dict file")
    return tensors


def _raise_unreadable(path: Path, reason: str) -> NoReturn:
    raise ValueError(
        f"{path} cannot be read as plain weights ({reason[:80]}): save its state_dict() again; "
        "files that hold code are never run"
    ) from None


class _Placeholder:
    """Stands for whatever a file names: any class, function, or what one of these returns.

    It takes everything that is put into it and does nothing.
    """

    def __new__(cls, *args: object) -> "_Placeholder":
        """Forget what the object would be made of."""
        return super().__new__(cls)

    def __init__(self, *args: object) -> None:
        pass

    def __call__(self, *args: object) -> "_Placeholder":
        """Return nothing, as a function or method that a file names."""
        return self

    def __setstate__(self, state: object) -> None:
        """Forget what it would hold."""

    def __eq__(self, other: object) -> bool:
        """Return whether `other` is what torch was told to allow, which it asks before a call."""
        return other is _Placeholder

    __hash__ = object.__hash__


def _classes_unknown_to_torch(path: Path) -> list[str]:
    """Return the names of what a file of torch's asks for beside tensors and plain values."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
        return [name if "." in name else f"builtins.{name}" for name in names]
    except Exception:  # the format before 2020, or no weights: `torch.load` says what is wrong
        return []


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield every dense tensor in nested mappings, with its dotted path.

    Mappings that hold themselves end at a depth that no file of weights has.
    """
    if isinstance(node, Tensor):
        if node.layout == torch.strided and node.device.type == "cpu" and not node.is_quantized:
            yield path.removesuffix("."), node
    elif isinstance(node, Mapping) and path.count(".") < _MAX_DEPTH:
        for key, child in node.items():
            yield from _leaves(child, f"{path}{key}.")
