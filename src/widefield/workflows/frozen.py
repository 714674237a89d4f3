"""An encoder to look at, not to train: what `RUN|ENCODER` on the command line means."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from widefield.core.rng import seeded
from widefield.data import Dataset, open_dataset
from widefield.encoders import (
    Encoder,
    Prepool,
    VisionEncoder,
    build_encoder,
    cached_weights,
    has_settings,
    load_encoder,
    load_foreign,
    untrained_like,
)
from widefield.probes import extract, pixels
from widefield.train.folder import RunFolder
from widefield.train.hardware import choose_device, choose_precision

EncoderSpec = str | Path | nn.Module

DEFAULT_ARCHITECTURE = "resnet-tiny"
"""What stands for an architecture where there is none: for `random` and for `pixels`."""


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A source of features, with what is known of its training."""

    name: str
    encoder: nn.Module | None = None
    """A given encoder; without one, `untrained` says what to build, or pixels are the features."""
    untrained: str | None = None
    """Architecture of a random encoder, built for the images it sees."""
    run: RunFolder | None = None
    """The run that trained it, where there is one."""
    image_size: int | None = None
    """Side of the images that the encoder expects; None when it takes what it gets."""
    notes: tuple[str, ...] = ()
    """One-line facts to tell the user once: which weights these are."""
    prepool: bool = False
    """Whether features are taken before pooling."""

    def built_for(self, images: np.ndarray, *, seed: int = 0) -> nn.Module | None:
        """What turns `images` [n, H, W, C] into features; None for raw pixels.

        Raises:
            ValueError: features before pooling of an encoder that is not of our making.
        """
        encoder = self.encoder
        if self.untrained is not None:
            encoder = build_untrained(self.untrained, images, seed=seed)
        if not self.prepool or encoder is None:
            return encoder
        if not isinstance(encoder, Encoder):
            raise ValueError(f"{self.name} shows no features before pooling: probe the pooled ones")
        return Prepool(encoder)

    def floor_for(self, images: np.ndarray, *, seed: int = 1) -> nn.Module:
        """The same architecture, untrained; by default not from the seed that training began at."""
        if self.encoder is not None:
            return untrained_like(self.encoder, seed=seed)
        return build_untrained(self.untrained or DEFAULT_ARCHITECTURE, images, seed=seed)

    def features(self, images: np.ndarray) -> Tensor:
        """Features float32 [n, D] of images uint8 [n, H, W, C]."""
        encoder = self.built_for(images)
        return pixels(images) if encoder is None else encode(encoder, images)


def encode(encoder: nn.Module, images: np.ndarray) -> Tensor:
    """Features float32 [n, D] of images uint8 [n, H, W, C], on the device this machine has."""
    device = choose_device("auto")
    precision = choose_precision("auto", device)
    return extract(encoder.to(device), images, device=device, precision=precision)


def build_untrained(architecture: str, images: np.ndarray, *, seed: int) -> nn.Module:
    """A random encoder for `images` [n, H, W, C]: a timm model, or `torchvision:NAME`."""
    _, height, _, channels = images.shape
    if not architecture.startswith("torchvision:"):
        return build_encoder(architecture, channels=channels, image_size=height, seed=seed)
    with seeded(seed):
        return VisionEncoder(architecture.removeprefix("torchvision:"))


def load(path: str | Path) -> Encoder:
    """The encoder of a run, or of a file or folder that `export` wrote, ready for use.

    It maps float images [B, C, H, W] in [0, 1] to features [B, D], and is in evaluation mode.

    Raises:
        ValueError: there is no encoder at `path`.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from widefield.encoders import save_encoder
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_encoder(build_encoder("resnet-tiny", seed=0), folder)
        ...     encoder = load(folder)
        >>> encoder(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 128])
    """
    return load_encoder(path).eval()


def open_frozen(spec: EncoderSpec) -> Frozen:
    """What `spec` names, or the module that it is.

    A run's folder; a file of ours; a file of weights of timm, torchvision, lightly, solo-learn or
    Lightning, `FILE@ARCHITECTURE` where it cannot be guessed; `timm:NAME` or `torchvision:NAME`,
    with pretrained weights where this machine has them already and random ones otherwise;
    `random`; `pixels`.

    Raises:
        ValueError: nothing of that name, or weights that do not fit.
    """
    if isinstance(spec, nn.Module):
        if isinstance(spec, Encoder):
            return Frozen(name=spec.config.name, encoder=spec, image_size=spec.config.image_size)
        return Frozen(name=type(spec).__name__, encoder=spec)
    name = str(spec)
    if name == "pixels":
        return Frozen(name=name)
    if name == "random":
        return Frozen(name=name, untrained=DEFAULT_ARCHITECTURE)
    if name.startswith(("timm:", "torchvision:")):
        return _open_named(name)
    path, _, architecture = name.rpartition("@")
    if not Path(name).exists() and Path(path).is_file():
        return _open_foreign(name, path, architecture)
    if not Path(name).exists():
        raise ValueError(
            f"no encoder {name!r}: give a run's folder, a file of weights, timm:NAME, "
            "torchvision:NAME, random or pixels"
        )
    if Path(name).is_file() and not has_settings(name):
        return _open_foreign(name, name, None)
    run = RunFolder(path=Path(name))
    trained_here = run.settings_file.exists()
    encoder = load(name)
    return Frozen(
        name=name,
        encoder=encoder,
        run=run if trained_here else None,
        image_size=encoder.config.image_size,
    )


def _open_named(name: str) -> Frozen:
    source, _, rest = name.partition(":")
    weights = cached_weights(name)
    if weights is not None:
        return _open_foreign(name, str(weights), name.removeprefix("timm:"))
    note = f"{name}: random weights; no pretrained ones are on this machine, none are downloaded"
    size = _needed_size(VisionEncoder(rest)) if source == "torchvision" else None
    return Frozen(name=name, untrained=name.removeprefix("timm:"), image_size=size, notes=(note,))


def _open_foreign(name: str, path: str, architecture: str | None) -> Frozen:
    encoder, match = load_foreign(path, architecture)
    note = f"{path}: {match.line()}"
    return Frozen(name=name, encoder=encoder, image_size=_needed_size(encoder), notes=(note,))


def _needed_size(encoder: Encoder | VisionEncoder) -> int | None:
    """Side of the images that somebody else's encoder needs; convolutions take any."""
    if isinstance(encoder, VisionEncoder):
        return encoder.image_size
    return encoder.config.image_size if "img_size" in encoder.config.timm else None


def training_data(run: RunFolder) -> Dataset:
    """The data that a run was trained on, as it was."""
    recipe = run.recipe()
    spec = run.settings()["data"]
    dataset = open_dataset(spec, limit=recipe.limit, image_size=recipe.image_size, seed=recipe.seed)
    run.refuse_other_data(dataset)
    return replace(dataset, notes=())
