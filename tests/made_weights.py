"""Files of weights as another library would leave them."""

from pathlib import Path

import safetensors.torch
import timm
import torch


def resnet_file(path: Path) -> Path:
    """Write the weights of timm's `resnet10t`, drawn from a seed; return where they are."""
    torch.manual_seed(0)
    safetensors.torch.save_file(timm.create_model("resnet10t").state_dict(), path)
    return path
