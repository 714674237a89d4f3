"""Families of encoders that take the same learning rate."""

from dataclasses import replace
from functools import cache
from typing import Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from widefield.core.types import InputSpec
from widefield.encoders.conv1d import SIGNAL_NETWORKS
from widefield.encoders.names import is_own
from widefield.encoders.own import given_network
from widefield.encoders.settings import EncoderSettings

Family = Literal["networks with batch norm", "networks without batch norm", "transformers"]


def family_of_network(network: nn.Module) -> Family:
    """Return the family of a network: by attention, else by batch norm.

    Example:
        >>> family_of_network(nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8)))
        'networks with batch norm'
    """
    modules = list(network.modules())
    names = [type(module).__name__.lower() for module in modules]
    if any("attention" in name or name.endswith("attn") for name in names):
        return "transformers"
    has_batch_norm = any(isinstance(module, _BatchNorm) for module in modules)
    return "networks with batch norm" if has_batch_norm else "networks without batch norm"


@cache  # builds the network, without weights
def family_of(encoder: EncoderSettings) -> Family:
    """Return the family of an encoder that has a name.

    Raises:
        ValueError: as `EncoderSettings.build`.

    Example:
        >>> family_of(EncoderSettings(name="resnet18"))
        'networks with batch norm'
    """
    if is_own(encoder.name):
        return family_of_network(given_network(encoder.name).build())
    size = (1, 224) if encoder.name in SIGNAL_NETWORKS else (224, 224)
    with torch.device("meta"):
        network = replace(encoder, stem="auto").build(InputSpec(image_size=size), seed=0)
    return family_of_network(network)
