"""An encoder: examples are normalized, then encoded, x[B, C, H, W] -> h[B, D].

Images lie in [0, 1]. An encoder of sounds takes waveforms, and makes spectrograms of them first.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

import timm
import torch
from torch import Tensor, nn

from widefield.core.batch import check_examples
from widefield.core.errors import option
from widefield.core.logmel import FrontEnd, LogMel
from widefield.core.names import check_name
from widefield.core.rng import seeded
from widefield.core.types import COLOR_32, BlackWhite, InputSpec, Kind, Size, as_size
from widefield.encoders.arguments import AFTER_BUILD, set_after_build, split_arguments
from widefield.encoders.cifar import CIFAR_NETWORKS
from widefield.encoders.conv1d import SIGNAL_NETWORKS
from widefield.encoders.names import is_own
from widefield.encoders.own import build_own, known_digest
from widefield.encoders.vision import TORCHVISION, check_vision, vision_network

Stem = Literal["auto", "cifar", "small", "native"]
"""First layers: `small` for small images, `native` as in timm, the others by image size.

`cifar` is small for images of CIFAR's size alone, as in S-DIET (2025), appendix C.
"""

SMALL_IMAGE = {"auto": 64, "cifar": 32}
"""Largest side in pixels with the small stem; those of timm are made for 224 pixels."""

VARIANTS: dict[str, dict[str, Any]] = {
    # 0.3 M weights in timm's ResNet class: one basic block per stage, 16 channels in the stem.
    "resnet-tiny": {
        "model_name": "resnet18",
        "layers": [1, 1, 1, 1],
        "channels": [16, 32, 64, 128],
        "stem_type": "deep",
        "stem_width": 8,
    },
}
"""Variants of timm models: name -> arguments of `timm.create_model`."""

SOLO_LEARN_PADDING = 2
"""Padding of the small first layer in solo-learn's ResNets; here it is 1."""

TOKEN_FAMILIES = {"vision_transformer", "deit", "eva", "beit", "cait"}
"""timm's modules of models with one constant grid of patches."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(InputSpec):
    """Configuration from which an encoder is rebuilt; every field is plain JSON.

    It is the record of preprocessing, with the mean and deviation of each channel and the height
    and width of the images that it is trained on, and the architecture.
    """

    name: str
    channels: int
    image_size: Size
    mean: tuple[float, ...]
    std: tuple[float, ...]
    stem: str
    """Stem that was built: `small` or `native`."""
    timm: dict[str, Any] | None
    """Arguments of `timm.create_model`; None for networks of this library and of torchvision."""
    conv1: dict[str, Any] | None
    """Arguments of the `nn.Conv2d` that replaces a ResNet's stem and max-pool, if it is small."""
    digest: str | None = None
    """SHA-256 of the code of a network of one's own; None for others."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "image_size", as_size(self.image_size))

    @property
    def kind(self) -> Kind:
        """Kind of the examples that it is trained on."""
        if self.rate is not None:
            return "sounds"
        over_time = self.name in SIGNAL_NETWORKS or self.image_size[0] == 1
        return "windows" if over_time else "images"

    @property
    def front_end(self) -> FrontEnd | None:
        """Spectrogram that is the network's input; None if it takes the examples themselves."""
        if self.rate is None or self.name in SIGNAL_NETWORKS:
            return None
        return FrontEnd(rate=self.rate, samples=self.image_size[1])


class Encoder(nn.Module):
    """A network that normalizes its examples first: x[B, C, H, W] -> h[B, D].

    Images lie in [0, 1], sounds [B, 1, 1, T] in [-1, 1). Most encoders of sounds turn them into
    log-mel spectrograms [B, 1, 64, 64] in [0, 1] first, and also accept these.

    Attributes:
        config: configuration to rebuild the encoder, without weights.
        backbone: the network, with timm's names of the weights.
        dim: D, the width of h.

    Example:
        >>> import torch
        >>> encoder = build_encoder("resnet-tiny", seed=0)
        >>> encoder(torch.rand(2, 3, 32, 32)).shape, encoder.dim
        (torch.Size([2, 128]), 128)
    """

    scale: Tensor
    shift: Tensor

    def __init__(self, config: EncoderConfig, backbone: nn.Module) -> None:
        super().__init__()
        self.config = config
        self.backbone = backbone
        self.dim = int(backbone.head_hidden_size)  # type: ignore[arg-type]
        front_end = config.front_end
        self.spectrogram = None if front_end is None else LogMel(front_end)
        mean = torch.tensor(config.mean).view(1, -1, 1, 1)
        std = torch.tensor(config.std).view(1, -1, 1, 1)
        self.register_buffer("scale", 1 / std, persistent=False)
        self.register_buffer("shift", -mean / std, persistent=False)

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor:
            """Call `forward`, with its types."""
            ...

    def extra_repr(self) -> str:
        """Return what the encoder takes and gives, for the repr."""
        config = self.config
        return (
            f"name={config.name!r}, kind={config.kind!r}, channels={config.channels}, "
            f"image_size={config.image_size}, dim={self.dim}"
        )

    @property
    def size_is_fixed(self) -> bool:
        """Whether the weights need images of `config.image_size`."""
        return "img_size" in (self.config.timm or {}) or hasattr(self.backbone, "image_size")

    @property
    def has_map(self) -> bool:
        """Whether `feature_map` is available, which torchvision's models lack."""
        return hasattr(self.backbone, "forward_features")

    def normalize(self, x: Tensor) -> Tensor:
        """Return (x - mean) / std in the same memory format, of sounds for their spectrograms.

        Raises:
            ValueError: `x` are no examples as described for the class.
        """
        self._check(x)
        if self.spectrogram is not None and x.shape[2] == 1:
            x = self.spectrogram(x)
        return torch.addcmul(self.shift, x, self.scale)

    def _check(self, x: Tensor) -> None:
        """Check shape, type and, on a CPU, the range of examples."""
        config = self.config
        is_sound = config.rate is not None and x.ndim == 4 and x.shape[2] == 1
        # Views may reach twice the range.
        limits = None if config.kind == "windows" else (-2 if is_sound else 0, 2)
        check_examples(x, channels=config.channels, limits=limits)
        if self.size_is_fixed and config.rate is None and x.shape[2:] != config.image_size:
            raise ValueError(
                f"the images are {x.shape[2]}x{x.shape[3]} pixels, and {config.name} takes "
                f"{config.image_size[0]}x{config.image_size[1]}: resize them"
            )
        is_exact = torch.promote_types(x.dtype, self.scale.dtype) == self.scale.dtype
        if not (is_exact or torch.is_autocast_enabled(x.device.type)):
            raise ValueError(
                f"the examples are {x.dtype} and the encoder is {self.scale.dtype}: give "
                "x.to(encoder.scale.dtype)"
            )
        if x.device != self.scale.device:
            raise ValueError(
                f"the examples are on {x.device} and the encoder on {self.scale.device}: move "
                "both to one device"
            )

    def forward(self, x: Tensor) -> Tensor:
        """Return pooled features h[B, D] of examples x[B, C, H, W]."""
        return self.backbone(self.normalize(x))

    def feature_map(self, x: Tensor) -> Tensor:
        """Return features before pooling, as timm's `forward_features` lays them out.

        They are [B, K, h, w] for most convolutional networks and tokens [B, T, K] for ViTs. K
        differs from `dim` if the family has a layer between pooling and h.
        """
        return self.backbone.forward_features(self.normalize(x))  # type: ignore[operator]


def build_encoder(
    name: str,
    *,
    stem: Stem = "auto",
    zero_init_last: bool = True,
    channels: int = 3,
    image_size: int | Size = 32,
    mean: Sequence[float] | None = None,
    std: Sequence[float] | None = None,
    black_white: BlackWhite | None = None,
    rate: int | None = None,
    seed: int,
) -> Encoder:
    """Build a randomly initialized encoder.

    Its name is that of a timm model, for vision transformers with arguments (`NAME,depth=2`),
    `torchvision:NAME`, or of a network of this library: `resnet-tiny`, `alexnet` and
    `wide-resnet-34-5`, the last two in their CIFAR forms, and `conv1d` for windows and waveforms.
    Networks of one's own have the names of `encoders/own.py`. Nothing is downloaded, and the global
    random state does not change.

    The small stem of a ResNet is one 3x3 convolution of stride 1 without max-pool, that of ViTs has
    patches of an eighth of the side, that of ConvNeXts patches of a 32nd. With `stem="auto"` these
    families have it up to 64 pixels, with `stem="cifar"` up to 32, and never for spectrograms of
    sounds. Other families have timm's stem only.

    Args:
        name: name of the model, such as `resnet18`, `vit_tiny_patch16_224` or `resnet-tiny`.
        stem: first layers; `config.stem` is the one that was built.
        zero_init_last: initialize the weight of the last norm of a ResNet's residual blocks to 0,
            as in timm, instead of 1, as in torchvision.
        channels: C of the images.
        image_size: side of the images, or their height and width, pixels.
        mean: mean of each channel of images in [0, 1]; default 0.5.
        std: standard deviation of each channel; default 0.25.
        black_white: the values that become 0 and 1 in images of more than 8 bits.
        rate: samples per second of sounds, whose `image_size` is (1, samples); None for others.
        seed: seed of the initial weights.

    Raises:
        ValueError: the name is unknown, the family has no small stem, or sizes and statistics do
            not fit together.

    Example:
        >>> encoder = build_encoder("resnet-tiny", seed=0)
        >>> encoder(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 128])
    """
    inputs = InputSpec(
        channels=channels,
        image_size=image_size,
        mean=mean,
        std=std,
        black_white=black_white,
        rate=rate,
    )
    config = encoder_config(name, inputs, stem=stem, zero_init_last=zero_init_last)
    with seeded(seed):
        return build_from_config(config)


def encoder_config(
    name: str,
    inputs: InputSpec = COLOR_32,
    *,
    stem: Stem = "auto",
    zero_init_last: bool = True,
) -> EncoderConfig:
    """Return the configuration of `build_encoder` with the same settings and errors."""
    name = name.removeprefix("timm:")  # as written for `init`
    model, changed = (name, {}) if is_own(name) else split_arguments(name)
    if stem == "auto" and "patch_size" in changed:
        stem = "native"
    check_name("stem", stem, get_args(Stem))
    channels, size, rate = inputs.channels, as_size(inputs.image_size), inputs.rate
    mean = (0.5,) * channels if inputs.mean is None else tuple(map(float, inputs.mean))
    std = (0.25,) * channels if inputs.std is None else tuple(map(float, inputs.std))
    seen = _input_size(name, size, channels, rate)
    if len(mean) != channels or len(std) != channels or min(std) <= 0:
        raise ValueError(
            f"mean and std need one number for each of {channels} channels, std above 0; "
            f"got mean={mean}, std={std}"
        )
    arguments: dict[str, Any] | None = None
    conv1: dict[str, Any] | None = None
    if name in (*CIFAR_NETWORKS, *SIGNAL_NETWORKS) or name.startswith(TORCHVISION) or is_own(name):
        if name.startswith(TORCHVISION):
            check_vision(name.removeprefix(TORCHVISION))
        if stem == "small":
            raise ValueError(
                f"encoder {name!r} has one stem, for all images: choose stem native or auto"
            )
        stem = "native"
        if not zero_init_last:
            raise ValueError(f"{name} has no {option('zero_init_last')}: leave it out")
    else:
        arguments = dict(VARIANTS.get(model) or {"model_name": timm_name(model)})
        arguments |= {"pretrained": False, "num_classes": 0, "in_chans": channels}
        if changed and family_of(arguments["model_name"]) not in ("vision_transformer", "eva"):
            raise ValueError(
                f"encoder {model!r} takes no arguments: leave {name[len(model) :]} out"
            )
        arguments |= {key: value for key, value in changed.items() if key not in AFTER_BUILD}
        if not zero_init_last:
            if family_of(arguments["model_name"]) != "resnet":
                raise ValueError(
                    f"encoder {name!r} has no residual blocks for {option('zero_init_last')}: "
                    "leave it out"
                )
            arguments["zero_init_last"] = False
        # Spectrograms are coarse already, and the small stem takes seven times as long on them.
        stem = "native" if rate is not None and stem == "auto" else stem
        stem, conv1 = select_stem(name, stem, arguments, seen)
    return EncoderConfig(
        name=name,
        channels=channels,
        image_size=size,
        mean=mean,
        std=std,
        stem=stem,
        timm=arguments,
        conv1=conv1,
        black_white=inputs.black_white,
        rate=rate,
        fit=inputs.fit,
        guessed=inputs.guessed,
        digest=known_digest(name),
    )


def _input_size(name: str, size: Size, channels: int, rate: int | None) -> Size:
    """Return the size of the network's input: that of the examples, or of their spectrograms."""
    over_time = name in SIGNAL_NETWORKS
    if channels >= 1 and rate is not None and size[0] == 1 and size[1] >= _MIN_SAMPLES:
        front_end = FrontEnd(rate=rate, samples=size[1])
        return size if over_time else (front_end.bands, front_end.frames)
    if over_time and (size[0] != 1 or size[1] < 16):
        raise ValueError(
            f"encoder {name!r} takes windows and sounds of 16 steps or more, and these are images "
            f"of {size[0]}x{size[1]}: name another encoder, such as 'resnet-tiny'"
        )
    if is_own(name) and rate is None and size[0] == 1:
        return size  # a network of windows, or it fails in its first pass
    if not over_time and rate is None and size[0] == 1:
        raise ValueError(
            f"encoder {name!r} takes images or sounds, and these are windows of {size[1]} steps: "
            "choose encoder 'conv1d'"
        )
    if channels < 1 or (min(size) < 8 and not over_time):
        raise ValueError(
            f"an encoder needs 1 channel and 8 pixels or more, "
            f"got channels={channels}, image_size={size}"
        )
    return size


_MIN_SAMPLES = 256
"""Smallest number of samples of a spectrogram."""


def timm_name(name: str) -> str:
    """Return `name` if timm can build it.

    Raises:
        ValueError: timm cannot; the message names the nearest model.
    """
    if timm.is_model(name):
        return name
    known = [*VARIANTS, *CIFAR_NETWORKS, *SIGNAL_NETWORKS, *timm.list_models()]
    check_name("encoder", name, known, list_command="timm.list_models()")
    return name


def family_of(model: str) -> str:
    """Return timm's module that builds `model`, as `resnet` or `vision_transformer`."""
    module: str = timm.models.model_entrypoint(model).__module__
    return module.rsplit(".", 1)[-1]


def select_stem(
    name: str, stem: Stem, arguments: dict[str, Any], size: Size
) -> tuple[Stem, dict[str, Any] | None]:
    """Add the arguments of the stem to those of `create_model`; return its name and `conv1`.

    Raises:
        ValueError: the family of the encoder has no small stem.
    """
    model = arguments["model_name"]
    family = family_of(model)
    cfg = timm.get_pretrained_cfg(model)
    if cfg is not None and cfg.fixed_input_size:
        arguments["img_size"] = _timm_size(size)
    has_small = family in TOKEN_FAMILIES or family in ("convnext", "resnet")
    if stem == "small" and not has_small:
        raise ValueError(
            f"encoder {name!r} has no small stem, as ResNets, ViTs and ConvNeXts have: "
            "choose stem native or auto"
        )
    if stem == "native" or not has_small or max(size) > SMALL_IMAGE.get(stem, max(size)):
        return "native", None
    if family == "resnet":
        return "small", _small_conv(arguments)
    if family == "convnext":
        arguments["patch_size"] = max(1, min(size) // 32)
    else:
        arguments |= {"img_size": _timm_size(size), "patch_size": max(1, min(size) // 8)}
    return "small", None


def _timm_size(size: Size) -> int | Size:
    """Return the side of a square, or both sides."""
    return size[0] if size[0] == size[1] else size


def _small_conv(arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments of the convolution that replaces a ResNet's stem, of the same width."""
    return {
        "in_channels": arguments["in_chans"],
        "out_channels": _stem_width(json.dumps(arguments)),
        "kernel_size": 3,
        "padding": 1,
        "bias": False,
    }


@cache  # because it builds a network
def _stem_width(arguments: str) -> int:
    with torch.device("meta"):
        return cast(nn.BatchNorm2d, timm.create_model(**json.loads(arguments)).bn1).num_features


def build_from_config(config: EncoderConfig) -> Encoder:
    """Build the encoder of `config`, with weights drawn from torch's global generator."""
    if config.name.startswith(TORCHVISION):
        name = config.name.removeprefix(TORCHVISION)
        return Encoder(config, vision_network(name, config.channels, config.image_size))
    if is_own(config.name):
        front_end, size = config.front_end, config.image_size
        seen = size if front_end is None else (front_end.bands, front_end.frames)
        return Encoder(config, build_own(config.name, config.channels, seen))
    if config.name in SIGNAL_NETWORKS:
        network = SIGNAL_NETWORKS[config.name](config.channels, config.image_size[1])
        return Encoder(config, network)
    if config.timm is None:
        return Encoder(config, CIFAR_NETWORKS[config.name](config.channels))
    backbone = timm.create_model(**config.timm)
    set_after_build(backbone, split_arguments(config.name)[1])
    if config.conv1 is not None:
        backbone.conv1, backbone.maxpool = nn.Conv2d(**config.conv1), nn.Identity()
        # timm initializes every other convolution of a ResNet in this way.
        nn.init.kaiming_normal_(backbone.conv1.weight, mode="fan_out", nonlinearity="relu")
    return Encoder(config, backbone)
