"""Settings of an encoder."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Self, cast

import torch
from torch import nn

from widefield.core.devices import on_meta
from widefield.core.errors import option
from widefield.core.form import COLOR_32, InputSpec
from widefield.core.rng import seeded
from widefield.core.settings import Settings
from widefield.core.types import Kind, Size, as_size
from widefield.encoders.config import EncoderConfig, Stem, encoder_config
from widefield.encoders.encoder import Encoder, build_from_config
from widefield.encoders.names import is_custom

# Sides of the data sets and of the networks of timm; chosen by hand.
_SIZES = (8, 16, 32, 48, 64, 80, 96, 128, 160, 192, 224, 240, 256, 288, 299, 320, 384, 448, 512)
"""Sides of square images that are tried if a size does not fit."""


@dataclass(frozen=True, kw_only=True)
class EncoderSettings(Settings):
    """Settings of one encoder."""

    name: str = "auto"
    """A timm model, dictionary-tiny, resnet-tiny, alexnet, conv1d, or your FILE.py:FUNCTION."""
    stem: Stem = "auto"
    """Small first layers, or timm's native ones; auto is small up to 64 pixels, cifar up to 32."""
    zero_init_last: bool = True
    """Initialize a ResNet's residual blocks as the identity, as in timm, not as in torchvision."""

    @classmethod
    def of(cls, config: EncoderConfig) -> Self:
        """Return the settings that build the architecture of `config`."""
        zero_init_last = (config.timm or {}).get("zero_init_last", True) is not False
        return cls(name=config.name, stem=cast(Stem, config.stem), zero_init_last=zero_init_last)

    def flat(self) -> dict[str, Any]:
        """Return every value under the name that it has in a run."""
        return {"encoder": self.name, "stem": self.stem, "zero_init_last": self.zero_init_last}

    def changed(self, values: Mapping[str, Any]) -> Self:
        """Return a copy with another `encoder` (a name, or whole), `stem` or `zero_init_last`."""
        encoder = values.get("encoder", self)
        if isinstance(encoder, str):
            encoder = replace(self, name=encoder)
        if not isinstance(encoder, type(self)):
            got = type(encoder).__name__ if isinstance(encoder, nn.Module) else repr(encoder)
            raise ValueError(f"encoder must be a string, got {got}")
        return replace(
            encoder,
            stem=values.get("stem", encoder.stem),
            zero_init_last=values.get("zero_init_last", encoder.zero_init_last),
        )

    def resolved(self, device: torch.device, kind: Kind = "images") -> Self:
        """Return the settings with `auto` replaced, for examples of this kind."""
        if self.name != "auto":
            return self
        if kind == "windows":
            return replace(self, name="conv1d")
        return replace(self, name="resnet18" if device.type == "cuda" else "dictionary-tiny")

    def width(self, inputs: InputSpec = COLOR_32) -> int:
        """Return D, the width of the features, without drawing any weights."""
        if is_custom(self.name):
            return self.build(inputs, seed=0).dim
        return _width(self, inputs.channels, as_size(inputs.image_size), inputs.rate)

    def build(self, inputs: InputSpec = COLOR_32, *, seed: int) -> Encoder:
        """Build the encoder for such examples on the CPU, its weights drawn from `seed`."""
        if self.name == "auto":
            raise ValueError(
                "the encoder 'auto' depends on the device: call resolved(device) first, or name "
                "one, such as 'dictionary-tiny'"
            )
        stem, zero_init_last = self.stem, self.zero_init_last
        config = encoder_config(self.name, inputs, stem=stem, zero_init_last=zero_init_last)
        with seeded(seed):
            return build_from_config(config)


@cache  # because it passes images through a network
def _width(settings: EncoderSettings, channels: int, size: Size, rate: int | None) -> int:
    inputs = InputSpec(channels=channels, image_size=size, rate=rate)
    result = _trial(settings, inputs)
    if isinstance(result, int):
        return result
    sizes = sorted(_SIZES, key=lambda side: abs(side - max(size)))
    others = ((side, replace(inputs, image_size=side)) for side in sizes)
    side = next((side for side, other in others if isinstance(_trial(settings, other), int)), None)
    hint = "another encoder" if side is None else f"{option('image_size', side)}, for example"
    raise ValueError(
        f"the encoder cannot take images of {size[0]}x{size[1]} ({result}): choose {hint}"
    )


def _trial(settings: EncoderSettings, inputs: InputSpec) -> int | str:
    """Return the width of the features of two images, or the reason why there are none."""
    try:
        with on_meta():
            encoder = settings.build(inputs, seed=0)
            if encoder.spectrogram is None:  # which has a constant size
                encoder(torch.empty(2, inputs.channels, *as_size(inputs.image_size)))
    except (AssertionError, RuntimeError) as error:  # of torch and timm
        return (str(error).splitlines() or ["it has no layer for them"])[0][:80]
    return encoder.dim
