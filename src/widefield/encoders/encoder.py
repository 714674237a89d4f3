"""An encoder: images in [0, 1] are normalised, then encoded, x[B, C, H, W] -> h[B, D]."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import timm
import torch
from torch import Tensor, nn

from widefield.core.rng import seeded

SMALL_IMAGE = 64
"""Up to this many pixels a side, an encoder made for 224 pixels gets a finer stem."""

OWN: dict[str, dict[str, Any]] = {
    # 0.3 M weights in timm's own ResNet class: one basic block per stage, 16 channels in the stem.
    "resnet-tiny": {
        "model_name": "resnet18",
        "layers": [1, 1, 1, 1],
        "channels": [16, 32, 64, 128],
        "stem_type": "deep",
        "stem_width": 8,
    },
}
"""Names of ours: each is a variant that `timm.create_model` builds from these arguments."""

TOKEN_FAMILIES = {"vision_transformer", "deit", "eva", "beit", "cait"}
"""timm's modules whose models cut the image into one grid of patches and keep it."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig:
    """Everything needed to build the encoder again; every field is plain JSON."""

    name: str
    channels: int
    image_size: int
    mean: tuple[float, ...]
    """Per channel, in [0, 1] space: the encoder's first operation is (x - mean) / std."""
    std: tuple[float, ...]
    stem: str
    """`small`: finer than timm's, for images up to 64 pixels; `native`: as timm builds it."""
    timm: dict[str, Any]
    """Arguments of `timm.create_model`."""
    conv1: dict[str, Any] | None
    """Arguments of the `nn.Conv2d` that replaces a ResNet's stem, its max-pool removed."""


class Encoder(nn.Module):
    """Normalises images in [0, 1], then encodes them: x[B, C, H, W] -> h[B, D].

    Attributes:
        config: what rebuilds this encoder, without its weights.
        backbone: the timm model, with timm's names for the weights.
        dim: D, the width of h.
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, config: EncoderConfig, backbone: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.dim = int(backbone.head_hidden_size)  # type: ignore[arg-type]
        mean = torch.tensor(config.mean).view(1, -1, 1, 1)
        std = torch.tensor(config.std).view(1, -1, 1, 1)
        self.register_buffer("scale", 1 / std, persistent=False)
        self.register_buffer("shift", -mean / std, persistent=False)

    def normalise(self, x: Tensor) -> Tensor:
        """(x - mean) / std in one pass; the memory format is kept."""
        return torch.addcmul(self.shift, x, self.scale)

    def forward(self, x: Tensor) -> Tensor:
        """Pooled features h[B, D] of images x[B, C, H, W] in [0, 1]."""
        h: Tensor = self.backbone(self.normalise(x))
        return h

    def feature_map(self, x: Tensor) -> Tensor:
        """Features before pooling, as timm's `forward_features` lays them out.

        [B, K, h, w] of most convolutional nets, tokens [B, T, K] of ViTs; K differs from `dim`
        where the family has a layer between pooling and h.
        """
        features: Tensor = self.backbone.forward_features(self.normalise(x))  # type: ignore[operator]
        return features


def build_encoder(
    name: str,
    *,
    channels: int = 3,
    image_size: int = 32,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    seed: int,
) -> Encoder:
    """Randomly initialised encoder: any timm image model by name, or `resnet-tiny`.

    Nothing is downloaded, and the global random state is left as it was. Up to 64 pixels
    ResNets (one 3x3 convolution of stride 1, no max-pool), ViTs and their kin (patches of an
    eighth of the side) and ConvNeXts (patches of a 32nd) get a small-image stem; other families
    keep their own. `config.stem` says which.

    Args:
        name: `resnet18`, `vit_tiny_patch16_224`, ..., or `resnet-tiny`.
        channels: C of the images.
        image_size: H = W of the images, pixels.
        mean: of each channel of images in [0, 1]; default 0.5.
        std: of each channel; default 0.25.
        seed: of the initial weights.

    Raises:
        ValueError: unknown name, or sizes and statistics that do not fit together.

    Example:
        >>> encoder = build_encoder("resnet-tiny", seed=0)
        >>> encoder(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 128])
    """
    config = encoder_config(name, channels=channels, image_size=image_size, mean=mean, std=std)
    with seeded(seed):
        return assemble(config)


def encoder_config(
    name: str,
    *,
    channels: int = 3,
    image_size: int = 32,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
) -> EncoderConfig:
    """What `build_encoder` would build; same arguments, same errors."""
    mean = (0.5,) * channels if mean is None else tuple(map(float, mean))
    std = (0.25,) * channels if std is None else tuple(map(float, std))
    if channels < 1 or image_size < 8:
        raise ValueError(
            f"an encoder needs 1 channel and 8 pixels or more, "
            f"got channels={channels}, image_size={image_size}"
        )
    if len(mean) != channels or len(std) != channels or min(std) <= 0:
        raise ValueError(
            f"mean and std need one number for each of {channels} channels, std above 0; "
            f"got mean={mean}, std={std}"
        )
    arguments = dict(OWN.get(name) or {"model_name": known(name)})
    arguments |= {"pretrained": False, "num_classes": 0, "in_chans": channels}
    stem, conv1 = choose_stem(arguments, image_size)
    return EncoderConfig(
        name=name,
        channels=channels,
        image_size=image_size,
        mean=mean,
        std=std,
        stem=stem,
        timm=arguments,
        conv1=conv1,
    )


def known(name: str) -> str:
    """`name` where timm can build it; else a ValueError with the nearest name."""
    if timm.is_model(name):
        return name
    nearest = difflib.get_close_matches(name, [*OWN, *timm.list_models()], n=1, cutoff=0.0)
    raise ValueError(f"unknown encoder {name!r}: did you mean {nearest[0]!r}?")


def choose_stem(arguments: dict[str, Any], image_size: int) -> tuple[str, dict[str, Any] | None]:
    """Adds the stem's settings to the arguments of `create_model`: (stem, conv1)."""
    name = arguments["model_name"]
    family = timm.models.model_entrypoint(name).__module__.rsplit(".", 1)[-1]
    small = image_size <= SMALL_IMAGE
    facts = timm.get_pretrained_cfg(name)
    if facts is not None and facts.fixed_input_size:
        arguments["img_size"] = image_size
    if small and family in TOKEN_FAMILIES:
        arguments |= {"img_size": image_size, "patch_size": max(1, image_size // 8)}
        return "small", None
    if small and family == "convnext":
        arguments["patch_size"] = max(1, image_size // 32)
        return "small", None
    if small and family == "resnet":
        with torch.device("meta"):
            width = cast(nn.BatchNorm2d, timm.create_model(**arguments).bn1).num_features
        return "small", {
            "in_channels": arguments["in_chans"],
            "out_channels": width,
            "kernel_size": 3,
            "padding": 1,
            "bias": False,
        }
    return "native", None


def assemble(config: EncoderConfig) -> Encoder:
    """The encoder of `config`, its weights drawn from torch's global generator."""
    backbone = timm.create_model(**config.timm)
    if config.conv1 is not None:
        backbone.conv1, backbone.maxpool = nn.Conv2d(**config.conv1), nn.Identity()
        # As timm initialises every other convolution of a ResNet.
        nn.init.kaiming_normal_(backbone.conv1.weight, mode="fan_out", nonlinearity="relu")
    return Encoder(config, backbone)
