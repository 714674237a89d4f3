"""An encoder: examples are normalized, then encoded, x[B, C, H, W] -> h[B, D].

Images lie in [0, 1]. An encoder of sounds takes waveforms, and makes spectrograms of them first.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from widefield.core.batch import check_examples
from widefield.core.form import InputSpec
from widefield.core.logmel import LogMel
from widefield.core.rng import seeded
from widefield.core.types import BlackWhite, Size
from widefield.core.validation import check
from widefield.encoders.arguments import set_after_build, split_arguments
from widefield.encoders.config import LIBRARY_NETWORKS, EncoderConfig, Stem, encoder_config
from widefield.encoders.dictionary_net import DictionaryNet
from widefield.encoders.names import is_custom
from widefield.encoders.own import build_custom
from widefield.encoders.vision import TORCHVISION, vision_network


class FeatureModule(nn.Module):
    """A module that maps examples x[B, C, H, W] to features [B, D]."""

    if TYPE_CHECKING:

        def __call__(self, x: Tensor) -> Tensor: ...


class Encoder(FeatureModule):
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
        # By numpy, because arithmetic on the device meta imports two seconds of torch's compiler.
        mean, std = (
            np.array(x, dtype=np.float32).reshape(1, -1, 1, 1) for x in (config.mean, config.std)
        )
        self.register_buffer("scale", torch.tensor(1 / std), persistent=False)
        self.register_buffer("shift", torch.tensor(-mean / std), persistent=False)

    def extra_repr(self) -> str:
        config = self.config
        return (
            f"name={config.name!r}, kind={config.kind!r}, channels={config.channels}, "
            f"image_size={config.image_size}, dim={self.dim}"
        )

    @property
    def size_is_fixed(self) -> bool:
        """Whether the weights need images of `config.image_size`."""
        # torchvision's vision transformers state it; of other networks it may be a default.
        is_vision = type(self.backbone).__module__.startswith("torchvision.")
        has_size = is_vision and hasattr(self.backbone, "image_size")
        return has_size or "img_size" in (self.config.timm or {})

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

    def fit(self, batches: Callable[[], Iterable[Tensor]], *, seed: int) -> None:
        """Fit what the network takes from data before its training: its dictionary, if it has one.

        Args:
            batches: returns the same examples x[n, C, H, W] at each call.
            seed: seed of the fit.

        Raises:
            ValueError: as `normalize`.
        """
        if isinstance(self.backbone, DictionaryNet):
            self.backbone.fit(lambda: map(self.normalize, batches()), seed=seed)

    def forward(self, x: Tensor) -> Tensor:
        """Return pooled features h[B, D] of examples x[B, C, H, W]."""
        return self.backbone(self.normalize(x))

    def feature_map(self, x: Tensor) -> Tensor:
        """Return features before pooling, as timm's `forward_features` lays them out.

        They are [B, K, h, w] for most convolutional networks and tokens [B, T, K] for ViTs. K
        differs from `dim` if the family has a layer between pooling and h.
        """
        return self.backbone.forward_features(self.normalize(x))  # type: ignore[operator]


class FeatureMap(FeatureModule):
    """An encoder without its pooling: x[B, C, H, W] -> h[B, K h w], the feature map flattened.

    These features keep positions, over which pooling averages.

    Source: Feature Dropout (Tamkin et al. 2022), section 3.2.
    """

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, x: Tensor) -> Tensor:
        """Return the feature maps of images x[B, C, H, W], one row for each image."""
        return self.encoder.feature_map(x).flatten(1)


class Projected(FeatureModule):
    """An encoder with its projection head: x[B, C, H, W] -> z[B, m], the input of the loss.

    Source: S-DIET (2025), table 4 and figure 1c.
    """

    def __init__(self, encoder: nn.Module, projector: nn.Module) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = projector

    def forward(self, x: Tensor) -> Tensor:
        """Return the projections of images x[B, C, H, W], one row for each image."""
        return self.projector(self.encoder(x))


class Normalized(FeatureModule):
    """A module with the normalization of its images: x[B, C, H, W] -> module((x - mean) / std)."""

    mean: Tensor
    std: Tensor

    def __init__(self, module: nn.Module, *, mean: Sequence[float], std: Sequence[float]) -> None:
        super().__init__()
        self.module = module
        # A new module is in training mode, and would say so of one that is frozen.
        self.training = module.training
        for name, values in (("mean", mean), ("std", std)):
            self.register_buffer(name, torch.tensor(values).view(1, -1, 1, 1), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the module for images in [0, 1]."""
        return self.module((x - self.mean) / self.std)


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
    `torchvision:NAME`, or of a network of this library: `resnet-tiny`, `dictionary-tiny` (which is
    fitted to data by `Encoder.fit`), `alexnet` and `wide-resnet-34-5` in their CIFAR forms, and
    `conv1d` for windows and waveforms.
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
        ValueError: the name is unknown, the family has no small stem, sizes and statistics do not
            fit together, or the seed is no whole number.

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
    with seeded(check("seed", int, seed)):
        return build_from_config(config)


def build_from_config(config: EncoderConfig) -> Encoder:
    """Build the encoder of `config`, with weights drawn from torch's global generator."""
    if config.name.startswith(TORCHVISION):
        name = config.name.removeprefix(TORCHVISION)
        return Encoder(config, vision_network(name, config.channels, config.image_size))
    if is_custom(config.name):
        return Encoder(config, build_custom(config.name, config.channels, config.input_size))
    if config.name in LIBRARY_NETWORKS:
        build = LIBRARY_NETWORKS[config.name]
        return Encoder(config, build(config.channels, config.input_size))
    import timm

    assert config.timm is not None
    arguments = split_arguments(config.name)[1]
    try:
        backbone = timm.create_model(**config.timm)
    except AssertionError as error:
        if "num_heads" not in arguments:
            raise
        raise ValueError(f"{config.name}: give num_heads that divide the width") from error
    set_after_build(backbone, arguments)
    if config.conv1 is not None:
        backbone.conv1, backbone.maxpool = nn.Conv2d(**config.conv1), nn.Identity()
        # timm initializes every other convolution of a ResNet in this way.
        nn.init.kaiming_normal_(backbone.conv1.weight, mode="fan_out", nonlinearity="relu")
    return Encoder(config, backbone)
