"""Features and wide readouts that the cache keeps for later commands.

The key of an entry is a hash of all that determines it: network, weights, code, precision, and the
pixels of the examples. So an entry is never out of date.
"""

from collections.abc import Callable
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from widefield.core.types import Inputs
from widefield.data.cache import cache_key, digest, digest_of_files, load_or_make
from widefield.encoders import Encoder, FeatureMap, Projected, Readout, Wide, load_readout
from widefield.encoders.readout import save_readout

_FEATURES_FILE = "features.npy"
# Chosen by hand: the two examples that every command encodes first are not worth a hash of the
# weights.
_MIN_EXAMPLES = 32
"""Number of examples from which features may be kept."""


def kept_features(
    make: Callable[[], Tensor],
    encoder: nn.Module,
    images: Inputs,
    *,
    device: torch.device,
    precision: str,
) -> Tensor:
    """Return the features float32 [n, D] that `make` computes of images, or those that were kept.

    Those of a network of one's own are not kept: its code may change in places unknown here.
    """
    if not is_known(encoder) or not isinstance(images, np.ndarray) or len(images) < _MIN_EXAMPLES:
        return make()
    key = cache_key(("features", device.type, precision), _network(encoder), digest(images))

    def read(folder: Path) -> Tensor:
        h = np.load(folder / _FEATURES_FILE, allow_pickle=False)
        if h.ndim != 2 or len(h) != len(images) or h.dtype != np.float32:
            raise ValueError("these are not the features of the images")
        return torch.from_numpy(h).to(device)

    def write(h: Tensor, folder: Path) -> None:
        np.save(folder / _FEATURES_FILE, h.cpu().numpy())

    return load_or_make(key, make, read=read, write=write)


def kept_readout(
    make: Callable[[], Readout],
    encoder: nn.Module,
    images: Inputs,
    *,
    device: torch.device,
    settings: tuple[object, ...],
) -> Readout:
    """Return the readout that `make` fits on images with `settings`, or one that was kept."""
    if not is_known(encoder) or not isinstance(images, np.ndarray):
        return make()
    key = cache_key(("readout", device.type, settings), _network(encoder), digest(images))

    def read(folder: Path) -> Readout:
        readout = load_readout(folder)
        if readout is None:
            raise ValueError("the readout is missing")
        return readout

    return load_or_make(key, make, read=read, write=save_readout)


def is_known(module: nn.Module) -> bool:
    """Return whether the settings and weights of a module determine what it computes."""
    while isinstance(module, Wide | FeatureMap | Projected):
        module = module.encoder
    return isinstance(module, Encoder) and module.config.digest is None


def _network(module: nn.Module) -> bytes:
    """Return a hash of a network, of its weights, and of the code that computes its features."""
    parts: list[object] = [module, *(version(name) for name in ("torch", "torchvision", "timm"))]
    for part in module.modules():
        if isinstance(part, Encoder | Readout):
            parts.append(asdict(part.config))
    # Not of `state_dict`, which leaves out some buffers, such as the mean of the normalization.
    for name, weight in (*module.named_parameters(), *module.named_buffers()):
        flat = weight.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        parts += [name, weight.dtype, tuple(weight.shape), flat.numpy()]
    code = sorted(Path(__file__).parents[1].rglob("*.py"))
    return digest(*parts, digest_of_files(code))
