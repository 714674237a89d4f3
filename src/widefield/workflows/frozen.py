"""An encoder to look at, not to train: what `RUN|ENCODER` on the command line means."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from torch import Tensor, nn

from widefield.data import Dataset, open_dataset
from widefield.encoders import Encoder, Prepool, build_encoder, load_encoder
from widefield.probes import extract, pixels
from widefield.train.folder import RunFolder
from widefield.train.hardware import choose_device, choose_precision

EncoderSpec = str | Path | Encoder


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A source of features, with what is known of its training."""

    name: str
    encoder: Encoder | None = None
    """A given encoder; without one, `untrained` says what to build, or pixels are the features."""
    untrained: str | None = None
    """Architecture of a random encoder, built for the images it sees."""
    run: RunFolder | None = None
    """The run that trained it, where there is one."""
    prepool: bool = False
    """Whether features are taken before pooling."""

    @property
    def image_size(self) -> int | None:
        """Side of the images that the encoder expects; None when it takes what it gets."""
        return None if self.encoder is None else self.encoder.config.image_size

    def built_for(self, images: np.ndarray) -> nn.Module | None:
        """What turns `images` [n, H, W, C] into features; None for raw pixels."""
        encoder = self.encoder
        if self.untrained is not None:
            _, height, _, channels = images.shape
            encoder = build_encoder(self.untrained, channels=channels, image_size=height, seed=0)
        return Prepool(encoder) if self.prepool and encoder is not None else encoder

    def features(self, images: np.ndarray) -> Tensor:
        """Features float32 [n, D] of images uint8 [n, H, W, C]."""
        encoder = self.built_for(images)
        if encoder is None:
            return pixels(images)
        device = choose_device("auto")
        precision = choose_precision("auto", device)
        return extract(encoder.to(device), images, device=device, precision=precision)


def load(path: str | Path) -> Encoder:
    """The encoder of a run, or of a file or folder that `export` wrote, ready for use.

    It maps float images [B, C, H, W] in [0, 1] to features [B, D], and is in evaluation mode.

    Raises:
        ValueError: there is no encoder at `path`.

    Example:
        >>> import tempfile
        >>> from widefield.encoders import save_encoder
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_encoder(build_encoder("resnet-tiny", seed=0), folder)
        ...     encoder = load(folder)
        >>> encoder(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 128])
    """
    return load_encoder(path).eval()


def open_frozen(spec: EncoderSpec) -> Frozen:
    """What `spec` names: a run, `timm:NAME`, `random`, `pixels`, a file of ours, or an encoder.

    Raises:
        ValueError: nothing of that name.
    """
    if isinstance(spec, Encoder):
        return Frozen(name=spec.config.name, encoder=spec)
    name = str(spec)
    if name == "pixels":
        return Frozen(name=name)
    if name == "random":
        return Frozen(name=name, untrained="resnet-tiny")
    if name.startswith("timm:"):
        return Frozen(name=name, untrained=name.removeprefix("timm:"))
    if not Path(name).exists():
        raise ValueError(
            f"no encoder {name!r}: give a run's folder, a .safetensors file, timm:NAME, random "
            "or pixels"
        )
    run = RunFolder(path=Path(name))
    trained_here = run.settings_file.exists()
    return Frozen(name=name, encoder=load(name), run=run if trained_here else None)


def training_data(run: RunFolder) -> Dataset:
    """The data that a run was trained on, as it was."""
    recipe = run.recipe()
    spec = run.settings()["data"]
    dataset = open_dataset(spec, limit=recipe.limit, image_size=recipe.image_size, seed=recipe.seed)
    run.refuse_other_data(dataset)
    return replace(dataset, notes=())
