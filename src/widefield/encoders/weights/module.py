"""Conversion of a `torch.nn.Module` of a known architecture to an encoder."""

from dataclasses import replace

import timm
from torch import nn

from widefield.encoders.encoder import Encoder
from widefield.encoders.weights.foreign import (
    architecture_specs,
    best_match,
    candidate_names,
    load_matched,
)
from widefield.encoders.weights.key_maps import rename_to_timm
from widefield.encoders.weights.normalization import module_normalization
from widefield.encoders.weights.vit_names import authors_arguments

_LOOP_HINT = "train a network of your own in your own loop, with PerExampleHead: docs/lightning.md"


def load_module(module: nn.Module) -> Encoder:
    """Return an encoder with the weights of a module of timm, torchvision, or as in their files.

    The architecture is that in the configuration of a timm model, else the best match as for a
    file, because a resumed run has to build its encoder again. The encoder normalizes images as
    `module_normalization` says, or as usual for these weights; the module is not changed.

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
    if isinstance(known, str) and timm.is_model(known):
        names: tuple[str, ...] = (known,)
    else:
        authors = authors_arguments(tensors)
        tensors = rename_to_timm(tensors)
        names = candidate_names(tensors, authors)
    name = type(module).__name__
    candidates = [fit for architecture in names for fit in architecture_specs(architecture)]
    best = best_match(f"the module {name}", tensors, candidates, hint=_LOOP_HINT)
    normalization, guessed = module_normalization(module)
    mean, std = normalization or (best.config.mean, best.config.std)
    if len(mean) == best.config.channels:
        config = replace(best.config, mean=mean, std=std, guessed=guessed)
        best = replace(best, config=config)
    return load_matched(tensors, best)
