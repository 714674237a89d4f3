"""torchvision's classifiers without their last layer, under the names `torchvision:NAME`."""

import difflib
from typing import Any

from torch import nn

from widefield.core.errors import option
from widefield.core.types import Size

TORCHVISION = "torchvision:"
"""Prefix of the names of torchvision's models."""
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of each channel with which most weights were trained."""

_WINDOWS = 224
"""Divides the side of images of MaxViT: its last map, a 32nd of them, has windows of 7 x 7."""
_WITH_SIDE_HEADS = ("googlenet", "inception_v3")


def vision_network(name: str, channels: int, size: Size) -> nn.Module:
    """Build the torchvision model `name` with random weights, the identity as its last layer."""
    from torchvision import models

    check_vision(name)
    # torchvision warns that the default of init_weights will change.
    side: dict[str, Any] = {"aux_logits": False, "init_weights": True}
    arguments = side if name in _WITH_SIDE_HEADS else {}
    if name.startswith("vit_"):
        arguments["image_size"] = _side(name, size)
    if name.startswith("maxvit_"):
        arguments["input_size"] = _whole_windows(name, size)
    model: nn.Module = models.get_model(name, weights=None, **arguments)
    if name.startswith("maxvit_"):
        model.image_size = size  # type: ignore[assignment]
        # As timm states stages: the windows of attention have the shapes of maps.
        parts = ("stem", *(f"blocks.{k}" for k in range(4)))
        model.feature_info = [{"module": part} for part in parts]  # type: ignore[assignment]
    linear = [key for key, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError(
            f"torchvision:{name} has no linear layer at its end to take features before"
        )
    model.head_hidden_size = model.get_submodule(linear[-1]).in_features
    _replace(model, linear[-1], nn.Identity())
    if channels != 3:
        first = next(k for k, part in model.named_modules() if isinstance(part, nn.Conv2d))
        _replace(model, first, _for_channels(model.get_submodule(first), channels))
    return model


def check_vision(name: str) -> None:
    """Check that torchvision has a classifier of this name."""
    from torchvision import models

    known = models.list_models(module=models)
    if name not in known:
        matches = difflib.get_close_matches(name, known, n=1)
        default = "torchvision.models.list_models() lists them"
        hint = f"did you mean 'torchvision:{matches[0]}'?" if matches else default
        raise ValueError(f"unknown encoder 'torchvision:{name}': {hint}")


def published_normalization(name: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each channel for torchvision's default weights of a model.

    Those with side heads are trained on images in [-1, 1], which torchvision's network makes itself
    of what its transforms return.
    """
    if name in _WITH_SIDE_HEADS:
        return (0.5,) * 3, (0.5,) * 3
    transforms = _published(name).transforms()
    return tuple(transforms.mean), tuple(transforms.std)


def published_url(name: str) -> str:
    """Return the address of torchvision's default weights of a model."""
    check_vision(name)
    return _published(name).url


def _published(name: str) -> Any:
    from torchvision import models

    return models.get_model_weights(name).DEFAULT


def _side(name: str, size: Size) -> int:
    patch = int(name.rsplit("_", 1)[1])
    if size[0] != size[1] or size[0] % patch:
        raise ValueError(
            f"torchvision:{name} takes squares of whole {patch}x{patch} patches, not "
            f"{size[0]}x{size[1]} pixels: choose an {option('image_size')} that {patch} divides"
        )
    return size[0]


def _whole_windows(name: str, size: Size) -> Size:
    if size[0] != size[1] or size[0] % _WINDOWS:
        raise ValueError(
            f"torchvision:{name} takes squares of whole windows, not {size[0]}x{size[1]} pixels: "
            f"choose an {option('image_size')} that {_WINDOWS} divides"
        )
    return size


def _for_channels(conv: nn.Module, channels: int) -> nn.Conv2d:
    assert isinstance(conv, nn.Conv2d)
    return nn.Conv2d(
        channels,
        conv.out_channels,
        conv.kernel_size,  # type: ignore[arg-type]
        stride=conv.stride,  # type: ignore[arg-type]
        padding=conv.padding,  # type: ignore[arg-type]
        bias=conv.bias is not None,
    )


def _replace(model: nn.Module, name: str, layer: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, layer)
