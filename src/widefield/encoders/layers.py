"""The layers of an encoder: their order, the first one, and the family that their kinds make."""

from dataclasses import replace
from functools import cache
from typing import Literal

from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from widefield.core.devices import on_meta
from widefield.core.form import InputSpec
from widefield.encoders.conv1d import SIGNAL_NETWORKS
from widefield.encoders.encoder import Encoder
from widefield.encoders.names import is_custom
from widefield.encoders.own import registered_network
from widefield.encoders.settings import EncoderSettings

Family = Literal["networks with batch norm", "networks without batch norm", "transformers"]

"""Encoders that take the same learning rate."""


def layer_names(encoder: nn.Module) -> list[list[str]]:
    """Return the names of the encoder's parameters by layer, from input to output.

    The layers of a timm model are its stem and its blocks, those of another network its children.
    A norm at the end belongs to the layer before it.
    """
    prefix, network = "", encoder
    if isinstance(encoder, Encoder):
        prefix, network = "backbone.", encoder.backbone
    matcher = getattr(network, "group_matcher", None)
    if matcher is not None:
        from timm.models import group_parameters

        groups = group_parameters(network, matcher(coarse=False), reverse=False)
        layers = [groups[layer] for layer in sorted(groups)]
    else:
        children: dict[str, list[str]] = {}
        for name, _ in network.named_parameters():
            children.setdefault(name.partition(".")[0], []).append(name)
        layers = list(children.values())
    if len(layers) > 1 and all(network.get_parameter(name).ndim < 2 for name in layers[-1]):
        norm = layers.pop()
        layers[-1] += norm
    return [[f"{prefix}{name}" for name in names] for names in layers]


def first_weight(network: nn.Module) -> str:
    """Return the name of the weights of the first layer."""
    layers = (
        name for name, part in network.named_modules() if isinstance(part, nn.Conv2d | nn.Linear)
    )
    return f"{next(layers)}.weight"


def family_of_network(network: nn.Module) -> Family:
    """Return the family of a network: by attention, else by batch norm."""
    modules = list(network.modules())
    names = [type(module).__name__.lower() for module in modules]
    if any("attention" in name or name.endswith("attn") for name in names):
        return "transformers"
    has_batch_norm = any(isinstance(module, _BatchNorm) for module in modules)
    return "networks with batch norm" if has_batch_norm else "networks without batch norm"


@cache  # builds the network, without weights
def family_of(encoder: EncoderSettings) -> Family:
    """Return the family of an encoder that has a name."""
    if is_custom(encoder.name):
        return family_of_network(registered_network(encoder.name).build())
    size = (1, 224) if encoder.name in SIGNAL_NETWORKS else (224, 224)
    with on_meta():
        network = replace(encoder, stem="auto").build(InputSpec(image_size=size), seed=0)
    return family_of_network(network)
