"""Networks that timm cannot build from arguments, as a model of timm, once it is registered."""

import json
from dataclasses import asdict
from typing import Any

import timm
from timm.models import build_model_with_cfg, register_model
from torch import nn

from widefield.encoders.arguments import AFTER_BUILD, split_arguments
from widefield.encoders.encoder import EncoderConfig, build_from_config
from widefield.encoders.names import is_own
from widefield.encoders.weights.files import read_config

NAME = "widefield_encoder"
"""Name of the model; its argument `encoder` is an `EncoderConfig` in JSON."""


def register_with_timm() -> None:
    """Add `widefield_encoder` to the models of timm, for folders that `export` wrote.

    timm has no arguments for the small stem of ResNets and for the networks of this library.
    `timm.create_model("local-dir:FOLDER", pretrained=True)` builds them once this was called.

    Example:
        >>> register_with_timm()
        >>> timm.is_model("widefield_encoder")
        True
    """
    if not timm.is_model(NAME):
        register_model(widefield_encoder)


def widefield_encoder(pretrained: bool = False, **arguments: Any) -> nn.Module:
    """Return the network of an encoder, as timm calls it; nothing in `encoder` is executed.

    Raises:
        ValueError: `encoder` is no configuration, or a classifier is demanded.
    """
    model: nn.Module = build_model_with_cfg(_network, NAME, pretrained, **arguments)
    return model


def _network(encoder: dict[str, Any], num_classes: int = 0, **_: Any) -> nn.Module:
    if num_classes:
        raise ValueError(f"{NAME} has no classifier: give num_classes=0, and add a layer")
    return build_from_config(read_config(json.dumps(encoder))).backbone


def needs_entry(config: EncoderConfig) -> bool:
    """Return whether timm cannot build the network of an encoder from its own arguments."""
    own = is_own(config.name)
    missing = not own and any(key in AFTER_BUILD for key in split_arguments(config.name)[1])
    return config.timm is None or config.conv1 is not None or missing


def entry_arguments(config: EncoderConfig) -> dict[str, Any]:
    """Return the `model_args` of the model."""
    return {"encoder": json.loads(json.dumps(asdict(config))), "num_classes": 0}
