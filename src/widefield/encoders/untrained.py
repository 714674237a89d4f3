"""Encoders with new random weights, the baseline of trained ones."""

import copy
from dataclasses import replace

import torch
from torch import nn

from widefield.core.rng import seeded
from widefield.encoders.config import timm_module
from widefield.encoders.encoder import Encoder, build_from_config
from widefield.encoders.names import is_custom


def untrained_like(encoder: nn.Module, *, seed: int) -> nn.Module:
    """Return a copy of `encoder` on the CPU with new random weights.

    Weights of a layer without `reset_parameters` are drawn from N(0, 0.02^2), as is usual for
    position embeddings. The global random state does not change.
    """
    with seeded(seed):
        if isinstance(encoder, Encoder):
            network = build_from_config(encoder.config)
            if not is_custom(encoder.config.name) or _is_random(network, seed):
                return network
        result = copy.deepcopy(encoder).cpu()
        for module in result.modules():
            reset = getattr(module, "reset_parameters", None)
            if callable(reset):
                reset()
                continue
            for parameter in module.parameters(recurse=False):
                nn.init.normal_(parameter, std=0.02)
    return result


def _is_random(encoder: Encoder, seed: int) -> bool:
    """Return whether a network of one's own has other weights for another seed: none are loaded."""
    with seeded(seed + 1):
        other = build_from_config(encoder.config).state_dict()
    return any(not torch.equal(value, other[key]) for key, value in encoder.state_dict().items())


def untrained_starts(encoder: nn.Module, *, seed: int) -> list[nn.Module]:
    """Return `untrained_like(encoder)` with each usual initialization of its architecture.

    The first is that of `encoder`. The residual blocks of a ResNet are the identity in timm and
    random in torchvision, whose untrained features have a much higher accuracy. Other
    architectures have one initialization.
    """
    default = untrained_like(encoder, seed=seed)
    if not isinstance(encoder, Encoder):
        return [default]
    timm = encoder.config.timm
    if timm is None or timm_module(timm["model_name"]) != "resnet":
        return [default]
    zero_init_last = not timm.get("zero_init_last", True)
    config = replace(encoder.config, timm={**timm, "zero_init_last": zero_init_last})
    with seeded(seed):
        return [default, build_from_config(config)]
