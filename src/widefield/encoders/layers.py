"""The layers of an encoder in order."""

from timm.models import group_parameters
from torch import nn

from widefield.encoders.encoder import Encoder


def layer_names(encoder: nn.Module) -> list[list[str]]:
    """Return the names of the encoder's parameters by layer, from input to output.

    The layers of a timm model are its stem and its blocks, those of another network its children.

    Example:
        >>> from widefield.encoders import build_encoder
        >>> layers = layer_names(build_encoder("resnet-tiny", seed=0))
        >>> len(layers), layers[0][0]
        (5, 'backbone.conv1.weight')
    """
    prefix, network = "", encoder
    if isinstance(encoder, Encoder):
        prefix, network = "backbone.", encoder.backbone
    matcher = getattr(network, "group_matcher", None)
    if matcher is not None:
        groups = group_parameters(network, matcher(coarse=False), reverse=False)
        return [[f"{prefix}{name}" for name in groups[layer]] for layer in sorted(groups)]
    layers: dict[str, list[str]] = {}
    for name, _ in network.named_parameters():
        layers.setdefault(name.partition(".")[0], []).append(f"{prefix}{name}")
    return list(layers.values())


def first_weight(network: nn.Module) -> str:
    """Return the name of the weights of the first layer."""
    layers = (
        name for name, part in network.named_modules() if isinstance(part, nn.Conv2d | nn.Linear)
    )
    return f"{next(layers)}.weight"
