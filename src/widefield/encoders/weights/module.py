"""A network in memory as an encoder, where its architecture is one that can be built again."""

import timm
from torch import nn

from widefield.encoders.encoder import Encoder
from widefield.encoders.weights.foreign import COMMON_ARCHITECTURES, load_fitting, skeletons

_OWN_LOOP = "train a network of your own in your own loop, with PerExampleHead: docs/lightning.md"


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
    facts = getattr(module, "pretrained_cfg", None)
    said = facts.get("architecture") if isinstance(facts, dict) else None
    names = (said,) if isinstance(said, str) and timm.is_model(said) else COMMON_ARCHITECTURES
    name = type(module).__name__
    candidates = [fit for architecture in names for fit in skeletons(architecture)]
    encoder, _ = load_fitting(f"the module {name}", tensors, candidates, remedy=_OWN_LOOP)
    return encoder
