"""The architecture of an encoder with new random weights: the floor of what was trained."""

import copy

from torch import nn

from widefield.core.rng import seeded
from widefield.encoders.encoder import Encoder, assemble
from widefield.encoders.vision import VisionEncoder


def untrained_like(encoder: nn.Module, *, seed: int) -> nn.Module:
    """Return a copy of `encoder` on the CPU whose weights are drawn again, as its layers draw them.

    Weights of a layer without `reset_parameters` are drawn from N(0, 0.02^2), as is usual for
    position embeddings. The global random state is left as it was.

    Example:
        >>> import torch
        >>> layer = torch.nn.Linear(2, 2)
        >>> torch.equal(untrained_like(layer, seed=0).weight, layer.weight)
        False
    """
    with seeded(seed):
        if isinstance(encoder, Encoder):
            return assemble(encoder.config)
        if isinstance(encoder, VisionEncoder):
            return VisionEncoder(encoder.name)
        fresh = copy.deepcopy(encoder).cpu()
        for module in fresh.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
                continue
            for parameter in module.parameters(recurse=False):
                nn.init.normal_(parameter, std=0.02)
    return fresh
