"""Configuration of an encoder: the network that is built for a name and for the form of images."""

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, cast, get_args

from torch import nn

from widefield.core.devices import on_meta
from widefield.core.errors import option
from widefield.core.form import COLOR_32, InputSpec
from widefield.core.logmel import FrontEnd
from widefield.core.names import check_name
from widefield.core.types import Size, as_size
from widefield.encoders.arguments import AFTER_BUILD, OF_FAMILY, split_arguments
from widefield.encoders.cifar import AlexNet, WideResNet
from widefield.encoders.conv1d import SIGNAL_NETWORKS, Conv1d
from widefield.encoders.dictionary_net import DictionaryNet
from widefield.encoders.names import is_custom
from widefield.encoders.own import known_digest
from widefield.encoders.vision import TORCHVISION, check_vision

Stem = Literal["auto", "cifar", "small", "native"]
"""First layers: `small` for small images, `native` as in timm, the others by image size.

`cifar` is small for images of CIFAR's size alone, as in S-DIET (2025), appendix C.
"""

# 64 was chosen by hand: timm's stem leaves a map of 2 x 2 positions of such images.
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
    }
}
"""Variants of timm models: name -> arguments of `timm.create_model`."""

LIBRARY_NETWORKS: dict[str, Callable[[int, Size], nn.Module]] = {
    "alexnet": lambda channels, size: AlexNet(channels),
    "wide-resnet-34-5": lambda channels, size: WideResNet(channels),
    "conv1d": lambda channels, size: Conv1d(channels, size[1]),
    "dictionary-tiny": DictionaryNet,
}
"""Networks of this library by name, from the number of channels and the size of the input."""

SOLO_LEARN_PADDING = 2
"""Padding of the small first layer in solo-learn's ResNets; here it is 1."""

WITH_ARGUMENTS = ("vision_transformer", "eva")
"""timm's modules of models whose names may have arguments."""

TOKEN_FAMILIES = {"vision_transformer", "deit", "eva", "beit", "cait"}
"""timm's modules of models with one constant grid of patches."""
# Chosen by hand: 64 frames are then four samples apart.
_MIN_SAMPLES = 256
"""Smallest number of samples of a spectrogram."""


@dataclass(frozen=True, kw_only=True)
class EncoderConfig(InputSpec):
    """Configuration from which an encoder is rebuilt; every field is plain JSON."""

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
    def input_size(self) -> Size:
        """Height and width of the network's input: those of spectrograms for most of sounds."""
        front_end = self.front_end
        return self.image_size if front_end is None else (front_end.bands, front_end.frames)

    @property
    def front_end(self) -> FrontEnd | None:
        """Spectrogram that is the network's input; None if it takes the examples themselves."""
        if self.rate is None or self.name in SIGNAL_NETWORKS:
            return None
        return FrontEnd(rate=self.rate, samples=self.image_size[1])


def encoder_config(
    name: str, inputs: InputSpec = COLOR_32, *, stem: Stem = "auto", zero_init_last: bool = True
) -> EncoderConfig:
    """Return the configuration of `build_encoder` with the same settings and errors."""
    name = name.removeprefix("timm:")  # as written for `init`
    model, changed = (name, {}) if is_custom(name) else split_arguments(name)
    if stem == "auto" and "patch_size" in changed:
        stem = "native"
    check_name("stem", stem, get_args(Stem))
    mean, std = _normalization(inputs)
    size, rate = as_size(inputs.image_size), inputs.rate
    seen = _input_size(name, size, inputs.channels, rate)
    one_each = len(mean) == len(std) == inputs.channels
    if not one_each or min(std) <= 0 or not all(map(math.isfinite, mean + std)):
        raise ValueError(
            f"mean and std need one finite number for each of {inputs.channels} channels, std "
            f"above 0; got mean={mean}, std={std}"
        )
    arguments, conv1 = None, None
    if name in LIBRARY_NETWORKS or name.startswith(TORCHVISION) or is_custom(name):
        _check_one_stem(name, stem, zero_init_last=zero_init_last)
        stem = "native"
    else:
        arguments = _timm_arguments(
            name, model, changed, channels=inputs.channels, zero_init_last=zero_init_last
        )
        # Spectrograms are coarse already, and the small stem takes seven times as long on them.
        stem = "native" if rate is not None and stem == "auto" else stem
        stem, conv1 = _select_stem(name, stem, arguments, seen)
    # Every value is final here: a file of the encoder is read back to an equal configuration.
    values = inputs.record() | {"image_size": size, "mean": mean, "std": std}
    return EncoderConfig(
        **values, name=name, stem=stem, timm=arguments, conv1=conv1, digest=known_digest(name)
    )


def _normalization(inputs: InputSpec) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return mean and deviation of each channel; by default images in [0, 1] become [-2, 2]."""
    mean = (0.5,) * inputs.channels if inputs.mean is None else tuple(map(float, inputs.mean))
    std = (0.25,) * inputs.channels if inputs.std is None else tuple(map(float, inputs.std))
    return mean, std


def _check_one_stem(name: str, stem: Stem, *, zero_init_last: bool) -> None:
    """Check the settings of a network that timm does not build, which has no variants."""
    if name.startswith(TORCHVISION):
        check_vision(name.removeprefix(TORCHVISION))
    if stem == "small":
        raise ValueError(
            f"encoder {name!r} has one stem, for all images: choose stem native or auto"
        )
    if not zero_init_last:
        raise ValueError(f"{name} has no {option('zero_init_last')}: leave it out")


def _timm_arguments(
    name: str, model: str, changed: dict[str, Any], *, channels: int, zero_init_last: bool
) -> dict[str, Any]:
    arguments = dict(VARIANTS.get(model) or {"model_name": timm_name(model)})
    arguments |= {"pretrained": False, "num_classes": 0, "in_chans": channels}
    family = timm_module(arguments["model_name"])
    if changed and family not in WITH_ARGUMENTS:
        raise ValueError(f"encoder {model!r} takes no arguments: leave {name[len(model) :]} out")
    other = next((key for key in changed if OF_FAMILY.get(key, family) != family), None)
    if other is not None:
        raise ValueError(f"encoder {model!r} has no argument {other}: leave it out")
    arguments |= {key: value for key, value in changed.items() if key not in AFTER_BUILD}
    if not zero_init_last:
        if family != "resnet":
            raise ValueError(
                f"encoder {name!r} has no residual blocks for {option('zero_init_last')}: "
                "leave it out"
            )
        arguments["zero_init_last"] = False
    return arguments


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
    if is_custom(name) and rate is None and size[0] == 1:
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


def timm_name(name: str) -> str:
    """Return `name` if timm can build it."""
    if in_timm(name):
        return name
    import timm

    known = [*VARIANTS, *LIBRARY_NETWORKS, *timm.list_models()]
    check_name("encoder", name, known, list_command="timm.list_models()")
    return name


def in_timm(name: str) -> bool:
    """Return whether timm has a model of this name."""
    import timm

    return timm.is_model(name)


def published_cfg(model: str) -> Any:
    """Return timm's `PretrainedCfg` of the weights of `model`; None without any."""
    import timm

    return timm.get_pretrained_cfg(model)


def timm_module(model: str) -> str:
    """Return timm's module that builds `model`, as `resnet` or `vision_transformer`."""
    import timm

    module: str = timm.models.model_entrypoint(model).__module__
    return module.rsplit(".", 1)[-1]


def _select_stem(
    name: str, stem: Stem, arguments: dict[str, Any], size: Size
) -> tuple[Stem, dict[str, Any] | None]:
    """Add the arguments of the stem to those of `create_model`; return its name and `conv1`."""
    model = arguments["model_name"]
    family = timm_module(model)
    if family == "convit" and size[0] != size[1]:  # its positions are those of a square
        raise ValueError(
            f"encoder {name!r} takes squares, not {size[0]}x{size[1]} pixels: choose an "
            f"{option('image_size')} of one number"
        )
    cfg = published_cfg(model)
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
    # The last map then has 4 x 4 positions, as that of a ResNet with the small stem at 32 pixels,
    # and a transformer has 8 x 8 patches.
    if family == "convnext":
        arguments["patch_size"] = max(1, min(size) // 32)
    else:
        arguments |= {"img_size": _timm_size(size), "patch_size": max(1, min(size) // 8)}
    return "small", None


def _timm_size(size: Size) -> int | Size:
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
    import timm

    with on_meta():
        return cast(nn.BatchNorm2d, timm.create_model(**json.loads(arguments)).bn1).num_features
