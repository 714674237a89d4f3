"""The architecture of an encoder with new random weights: the floor of what was trained."""

import copy
from dataclasses import replace

from torch import nn

from widefield.core.rng import seeded
from widefield.encoders.encoder import Encoder, EncoderConfig, build_from_config, family_of


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
            return build_from_config(encoder.config)
        result = copy.deepcopy(encoder).cpu()
        for module in result.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
                continue
            for parameter in module.parameters(recurse=False):
                nn.init.normal_(parameter, std=0.02)
    return result


def untrained_starts(encoder: nn.Module, *, seed: int) -> list[nn.Module]:
    """Return `untrained_like(encoder)` from each usual start of its architecture, its own first.

    The residual blocks of a ResNet start as the identity in timm and as a random function in
    torchvision, whose features tell much more before any training. Other architectures have one
    start.

    Example:
        >>> from widefield.encoders import build_encoder
        >>> len(untrained_starts(build_encoder("resnet-tiny", seed=0), seed=1))
        2
    """
    default = untrained_like(encoder, seed=seed)
    if not (isinstance(encoder, Encoder) and _has_two_starts(encoder.config)):
        return [default]
    with seeded(seed):
        return [default, build_from_config(_other_start(encoder.config))]


def _has_two_starts(config: EncoderConfig) -> bool:
    return config.timm is not None and family_of(config.timm["model_name"]) == "resnet"


def _other_start(config: EncoderConfig) -> EncoderConfig:
    """Return the ResNet of `config` with the other start of its residual blocks."""
    assert config.timm is not None
    zero_init_last = config.timm.get("zero_init_last", True)
    return replace(config, timm={**config.timm, "zero_init_last": not zero_init_last})
