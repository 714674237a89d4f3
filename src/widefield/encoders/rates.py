"""Learning rates by family of encoder, as multiples of what a batch-norm network takes."""

from dataclasses import replace
from functools import cache
from typing import Literal

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from widefield.core.types import InputSpec
from widefield.encoders.conv1d import SIGNAL_NETWORKS
from widefield.encoders.settings import EncoderSettings

Family = Literal["networks with batch norm", "networks without batch norm", "transformers"]

RATES: dict[Family, float] = {
    "networks with batch norm": 1.0,
    "networks without batch norm": 0.03,
    "transformers": 0.03,
}
"""Learning rate of a family, as a multiple of the method's own; benchmarks/NOTEBOOK.md."""

RATES_MEASURED_ON = (
    "resnet-tiny",
    "mobilenetv3_small_050",
    "resnet18",
    "resnet50",
    "convnext_atto",
    "vit_tiny_patch16_224",
)
"""Encoders on which the multiples were measured."""


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


@cache  # builds a network to look at it
def rate_of(encoder: EncoderSettings) -> tuple[float, Family]:
    """Return the multiple of the learning rate for an encoder, and the family that it has it from.

    Raises:
        ValueError: as `EncoderSettings.build`.

    Example:
        >>> rate_of(EncoderSettings(name="resnet18"))
        (1.0, 'networks with batch norm')
    """
    size = (1, 224) if encoder.name in SIGNAL_NETWORKS else (224, 224)
    with torch.device("meta"):  # no weights are drawn
        network = replace(encoder, stem="auto").build(InputSpec(image_size=size), seed=0)
    family = family_of_network(network)
    return RATES[family], family
