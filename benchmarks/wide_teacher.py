"""A network of ten times the weights of resnet-tiny: `benchmarks/wide_teacher.py:network`."""

import timm
from torch import nn

CHANNELS = (16, 32, 128, 512)


def network() -> nn.Module:
    """Return resnet-tiny with wider late stages, for images of 32 pixels."""
    model = timm.create_model(
        "resnet18",
        layers=[1, 1, 1, 1],
        channels=list(CHANNELS),
        stem_type="deep",
        stem_width=8,
        num_classes=0,
    )
    model.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model
