"""torchvision's classifiers without their last layer: x[B, 3, H, W] in [0, 1] -> h[B, D]."""

import difflib

import torch
from torch import Tensor, nn
from torchvision import models

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and deviation of each channel that torchvision's weights were trained with."""


class VisionEncoder(nn.Module):
    """Normalises images in [0, 1], then encodes them; weights are random, torchvision's keys.

    Attributes:
        backbone: the torchvision model, its last linear layer replaced by the identity.

    Raises:
        ValueError: unknown name, or a model without a linear layer at its end.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.backbone = _without_head(name)
        mean, std = (torch.tensor(values).view(1, -1, 1, 1) for values in IMAGENET)
        self.register_buffer("scale", 1 / std, persistent=False)
        self.register_buffer("shift", -mean / std, persistent=False)

    @property
    def image_size(self) -> int | None:
        """Side of the images that it needs, of those that need one."""
        size = getattr(self.backbone, "image_size", None)
        return size if isinstance(size, int) else None

    def forward(self, x: Tensor) -> Tensor:
        """Features h[B, D] of images x[B, 3, H, W] in [0, 1]."""
        if x.shape[1] != 3:
            raise ValueError(
                f"torchvision:{self.name} takes 3 channels, the images have {x.shape[1]}"
            )
        h: Tensor = self.backbone(torch.addcmul(self.shift, x, self.scale))
        return h


def check_vision(name: str) -> None:
    """Raise ValueError, with the nearest name, unless torchvision has the classifier `name`."""
    known = models.list_models(module=models)
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"unknown encoder 'torchvision:{name}': did you mean 'torchvision:{near}'?"
        )


def _without_head(name: str) -> nn.Module:
    check_vision(name)
    model: nn.Module = models.get_model(name, weights=None)
    linear = [key for key, module in model.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise ValueError(
            f"torchvision:{name} has no linear layer at its end to take features before"
        )
    parent, _, last = linear[-1].rpartition(".")
    setattr(model.get_submodule(parent), last, nn.Identity())
    return model
