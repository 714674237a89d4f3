"""Conversion of a `torch.nn.Module` of a known architecture to an encoder."""

from dataclasses import replace

import timm
from torch import nn

from widefield.encoders.encoder import Encoder
from widefield.encoders.weights.foreign import (
    COMMON_ARCHITECTURES,
    architecture_specs,
    best_match,
    load_matched,
)
from widefield.encoders.weights.normalization import module_normalization

_LOOP_HINT = "train a network of your own in your own loop, with PerExampleHead: docs/lightning.md"


def load_module(module: nn.Module) -> Encoder:
    """Return an encoder with the weights of a module of timm or torchvision, on the CPU.

    The architecture is that in the configuration of a timm model, else the best match among a few
    common ones, because a resumed run has to build its encoder again. The encoder normalizes images
    as `module_normalization` says, or as usual for these weights; the module is not changed.

    Raises:
        ValueError: the weights match no architecture, or are NaN or infinite.

    Example:
        >>> module = timm.create_model("resnet18", num_classes=10)
        >>> load_module(module).config.name
        'resnet18'
    """
    tensors = {name: value.detach().cpu() for name, value in module.state_dict().items()}
    cfg = getattr(module, "pretrained_cfg", None)
    known = cfg.get("architecture") if isinstance(cfg, dict) else None
    names = (known,) if isinstance(known, str) and timm.is_model(known) else COMMON_ARCHITECTURES
    name = type(module).__name__
    candidates = [fit for architecture in names for fit in architecture_specs(architecture)]
    best = best_match(f"the module {name}", tensors, candidates, hint=_LOOP_HINT)
    normalization, guessed = module_normalization(module)
    mean, std = normalization or (best.config.mean, best.config.std)
    if len(mean) == best.config.channels:
        config = replace(best.config, mean=mean, std=std, guessed=guessed)
        best = replace(best, config=config)
    return load_matched(tensors, best)
