"""Networks of one's own: `FILE.py:FUNCTION`, or a module in Python.

The function takes no arguments and returns a `torch.nn.Module` that maps normalized images
x [B, C, H, W] to features h [B, D]. The file is executed when its name is given on the command line
or in a call. A run folder names the network that it was trained with, and never executes it: open
the run as `RUN@FILE.py:FUNCTION`.
"""

import copy
import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from widefield.core.devices import device_of, eval_mode
from widefield.core.errors import option
from widefield.core.names import one_line
from widefield.core.types import Size
from widefield.encoders.names import MODULE_PREFIX

# Sides of usual data sets and networks, the commonest first; chosen by hand.
_TRIED = (32, 224, 64, 96, 128, 28, 256, 384, 518)
"""Sides of images that a module is tried with, where the data are not known."""
_IMAGENET_CLASSES = 1000


@dataclass(frozen=True, kw_only=True)
class CustomNetwork:
    """A network that was given in this process."""

    name: str
    """The file's absolute path and the function, or the class of a module and a digest."""
    digest: str
    """SHA-256 of the file, or of the module's layers."""
    build: Callable[[], nn.Module]
    """Returns the network; its initial weights are drawn from torch's generator."""


_registered: dict[str, CustomNetwork] = {}
"""The networks that were given in this process, by the names that runs record."""


def register_network(network: str | nn.Module, *, recorded: str | None = None) -> CustomNetwork:
    """Execute a file that the user names, or take a module, and return the network."""
    custom = _of_module(network) if isinstance(network, nn.Module) else _of_file(network)
    for name in {custom.name, recorded or custom.name}:
        _registered[name] = custom
    return custom


def known_digest(name: str) -> str | None:
    """Return the digest of a network that was given in this process; None for any other name."""
    return _registered[name].digest if name in _registered else None


def registered_network(name: str) -> CustomNetwork:
    """Return a network that was given in this process, by its name."""
    if name in _registered:
        return _registered[name]
    if name.startswith(MODULE_PREFIX):
        raise ValueError(
            f"the network {name.removeprefix(MODULE_PREFIX)!r} is a module of another process: "
            "give it again, load(RUN, network=module) or pretrain(..., encoder=module)"
        )
    raise ValueError(
        f"the network is code of yours, {name}, and is executed only if you name it: append "
        f"@{name} to the run, or give {option('encoder', name)} to pretrain"
    )


def build_custom(name: str, channels: int, size: Size) -> nn.Module:
    """Build a given network, and find D, its `head_hidden_size`, with two images of zeros."""
    with torch.device("cpu"):  # also where shapes alone are asked for
        network = registered_network(name).build()
        dim = feature_width(name, network, torch.zeros(2, channels, *size))
    network.head_hidden_size = dim  # type: ignore[assignment]
    return network


def image_side(module: nn.Module, channels: int) -> int:
    """Return the side of images that a module takes, of those that are usual."""
    x = torch.zeros(2, channels, _TRIED[0], _TRIED[0], device=device_of(module))
    found = next((side for side in _TRIED if _returns_rows(module, _of_side(x, side))), None)
    if found is None:
        runs = (side for side in _TRIED if _runs(module, _of_side(x, side)))
        feature_width(type(module).__name__, module, _of_side(x, next(runs, _TRIED[0])))
    assert found is not None, "it has raised"
    return found


def classifier_note(name: str, module: nn.Module, channels: int = 3) -> tuple[str, ...]:
    """Return a note if the outputs of a module are those of a classifier."""
    if not _is_classifier(module, channels):
        return ()
    return (
        f"{name}: its 1,000 outputs are those of a classifier: replace its last layer by "
        "torch.nn.Identity() for features",
    )


def _is_classifier(module: nn.Module, channels: int) -> bool:
    layers = [layer for layer in module.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    if not any(layer.weight.shape[0] == _IMAGENET_CLASSES for layer in layers):
        return False
    try:
        x = torch.zeros(2, channels, _TRIED[0], _TRIED[0], device=device_of(module))
        x = _of_side(x, image_side(module, channels))
        return feature_width(type(module).__name__, module, x) == _IMAGENET_CLASSES
    except ValueError:  # that it takes other images is told with the data
        return False


def feature_width(name: str, network: nn.Module, x: Tensor) -> int:
    """Return D of the features of x."""
    shape = f"[{', '.join(map(str, x.shape))}]"
    try:
        h = _output(network, x)
    except Exception as error:  # of the user's code
        raise ValueError(
            f"{name} fails for images {shape}: {one_line(_reason(error))}{_input_hint(network, x)}"
        ) from error
    if not _are_rows(h, x):
        found = f"a tensor {list(h.shape)}" if isinstance(h, Tensor) else type(h).__name__
        if isinstance(h, Tensor) and not h.is_floating_point():
            found += f" of {str(h.dtype).removeprefix('torch.')}"
        items = h.items() if isinstance(h, Mapping) else enumerate(h if type(h) is tuple else ())
        part = next(
            (f", such as its item {key!r}" for key, each in items if _are_rows(each, x)), ""
        )
        raise ValueError(
            f"{name} returns {found} for images {shape}: return features [B, D] in floats, one row "
            f"for each{part}"
        )
    return h.shape[1]


@torch.no_grad()
def _output(network: nn.Module, x: Tensor) -> Any:
    with eval_mode(network):
        return network(x)


def _are_rows(h: Any, x: Tensor) -> bool:
    return isinstance(h, Tensor) and h.ndim == 2 and len(h) == len(x) and h.is_floating_point()


def _returns_rows(network: nn.Module, x: Tensor) -> bool:
    return _runs(network, x) and _are_rows(_output(network, x), x)


def _runs(network: nn.Module, x: Tensor) -> bool:
    try:
        _output(network, x)
    except Exception:  # of the user's code
        return False
    return True


def _of_side(x: Tensor, side: int) -> Tensor:
    return x.new_zeros(*x.shape[:2], side, side)


def _input_hint(network: nn.Module, x: Tensor) -> str:
    """Return what else than x the network takes, as far as a few trials find it."""
    others = {p.dtype for p in network.parameters() if p.is_floating_point()} - {x.dtype}
    if others:
        return f": call .float() on it, which has {str(others.pop()).removeprefix('torch.')}"
    if x.shape[2] == 1:  # sounds and windows
        return ""
    for count in {1, 3} - {x.shape[1]}:
        if _returns_rows(network, x.new_zeros(len(x), count, *x.shape[2:])):
            return f": it takes {count} channels: give such images, or replace its first layer"
    side = next((side for side in _TRIED if _returns_rows(network, _of_side(x, side))), None)
    return "" if side is None else f": it takes {side}x{side}: give {option('image_size', side)}"


def _of_module(module: nn.Module) -> CustomNetwork:
    frozen = copy.deepcopy(module).cpu()
    shapes = [(key, tuple(value.shape)) for key, value in frozen.state_dict().items()]
    digest = hashlib.sha256(f"{frozen!r}{shapes}".encode()).hexdigest()
    name = f"{MODULE_PREFIX}{type(module).__name__}-{digest[:8]}"
    return CustomNetwork(name=name, digest=digest, build=lambda: copy.deepcopy(frozen))


def _of_file(spec: str) -> CustomNetwork:
    path, _, function = spec.rpartition(":")
    file = Path(path).expanduser().absolute()
    if not file.is_file():
        raise ValueError(f"no file {path} with the function {function} of a network")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    make = getattr(_execute(file, digest), function, None)
    if not callable(make):
        raise ValueError(f"{path} has no function {function}: give FILE.py:FUNCTION")

    def build() -> nn.Module:
        try:
            with _import_path(file.parent):
                network = make()
        except Exception as error:  # of the user's code
            raise ValueError(f"{spec}() fails: {_reason(error)}") from error
        if not isinstance(network, nn.Module):
            raise ValueError(f"{spec}() returns {type(network).__name__}: return a torch.nn.Module")
        return network

    return CustomNetwork(name=f"{file}:{function}", digest=digest, build=build)


def _execute(file: Path, digest: str) -> Any:
    name = f"{file.stem}_{digest[:8]}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # as dataclasses need it
    try:
        with _import_path(file.parent):
            spec.loader.exec_module(module)
    except Exception as error:  # of the user's code
        raise ValueError(f"{file} fails when it is executed: {_reason(error)}") from error
    return module


@contextmanager
def _import_path(folder: Path) -> Iterator[None]:
    """Let a file import its neighbors, as Python does for a script."""
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))


def _reason(error: Exception) -> str:
    return one_line(f"{type(error).__name__}: {error}")
