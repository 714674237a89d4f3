"""torchvision's classifiers without their last layer: x[B, 3, H, W] in [0, 1] -> h[B, D]."""

import difflib

import torch
from torch import Tensor, nn
from torchvision import models

IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
"""Mean and standard deviation of each channel with which torchvision's weights were trained."""


class VisionEncoder(nn.Module):
    """A torchvision classifier with random weights and without its last layer.

    It normalises its images first: x[B, 3, H, W] in [0, 1] -> h[B, D].

    Attributes:
        name: torchvision's name of the model.
        backbone: the torchvision model, with the identity as its last linear layer.

    Raises:
        ValueError: the name is unknown, or the model has no linear layer at its end.
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
        """Side of the images that the model needs; None if any size will do."""
        size = getattr(self.backbone, "image_size", None)
        return size if isinstance(size, int) else None

    def forward(self, x: Tensor) -> Tensor:
        """Return features h[B, D] of images x[B, 3, H, W] in [0, 1].

        Raises:
            ValueError: the images do not have 3 channels.
        """
        if x.shape[1] != 3:
            raise ValueError(
                f"torchvision:{self.name} takes 3 channels, the images have {x.shape[1]}"
            )
        return self.backbone(torch.addcmul(self.shift, x, self.scale))


def check_vision(name: str) -> None:
    """Refuse a name that torchvision has no classifier for.

    Raises:
        ValueError: the name is unknown; the message gives the nearest one.
    """
    known = models.list_models(module=models)
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.0)[0]
        raise ValueError(
            f"unknown encoder 'torchvision:{name}': did you mean 'torchvision:{nearest}'?"
        )


def _without_head(name: str) -> nn.Module:
    """Build the torchvision model `name`, with the identity as its last linear layer."""
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
