"""A network in memory as an encoder, where its architecture is one that can be built again."""

import timm
from torch import nn

from widefield.encoders.encoder import Encoder
from widefield.encoders.weights.foreign import (
    COMMON_ARCHITECTURES,
    architecture_specs,
    load_best_match,
)

_LOOP_HINT = "train a network of your own in your own loop, with PerExampleHead: docs/lightning.md"


def load_module(module: nn.Module) -> Encoder:
    """Return an encoder with the weights of a module of timm or torchvision, on the CPU.

    A run has to build its encoder again when it is resumed, so the architecture has to be known: by
    what timm's models say of themselves, else as the best of a few common ones. The encoder
    normalizes its images as these weights are usually trained; the module is left as it is.

    Raises:
        ValueError: the weights fit no such architecture, or are no numbers.

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
    encoder, _ = load_best_match(f"the module {name}", tensors, candidates, hint=_LOOP_HINT)
    return encoder
