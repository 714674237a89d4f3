"""A frozen encoder as a source of features: what `RUN|ENCODER` on the command line means."""

import os
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from rich.console import Console
from torch import Tensor, nn

from widefield.core.hardware import choose_device, choose_precision
from widefield.core.input_errors import input_errors
from widefield.core.logmel import FrontEnd
from widefield.core.modes import on_device
from widefield.core.names import check_name, printable
from widefield.core.types import InputSpec, Kind, Size
from widefield.data import Dataset, held_out_split, kind_of_source, open_dataset
from widefield.data.decode.images import Progress
from widefield.data.spec import MEMORY
from widefield.encoders import (
    Encoder,
    EncoderSettings,
    FeatureMap,
    Projected,
    WeightMatch,
    cached_weights,
    has_settings,
    is_model_folder,
    load_encoder,
    load_foreign,
    load_model_folder,
    untrained_like,
    untrained_starts,
)
from widefield.methods import load_projector
from widefield.probes import Pixels, extract
from widefield.probes.features import FLOOR_RATE
from widefield.train.progress import images_bar
from widefield.train.run_dir import RunFolder

Features = Literal["pooled", "feature-map", "projected"]
"""What to take: the encoder's output, what it is pooled from, or what its projector makes of it."""

Arithmetic = Literal["auto", "32"]
"""What an encoder computes in: bf16 where the machine has it, or float32."""

EncoderSpec = str | os.PathLike[str] | nn.Module

DEFAULT_ARCHITECTURE = "resnet-tiny"
"""The architecture of `random`, and of the untrained encoder beside `pixels`."""


@dataclass(frozen=True, kw_only=True)
class FeatureExtractor:
    """Images -> features, by a frozen encoder, with what is known of the encoder's training."""

    # One of three modes: `encoder` is given; or `architecture` is built, untrained, for the images
    # that it gets, because their size and channels decide its shape; or, with neither, the pixels
    # are the features.
    name: str
    encoder: nn.Module | None = None
    """The encoder, where there is one already."""
    architecture: str | None = None
    """What to build, untrained, where there is none."""
    run: RunFolder | None = None
    """The run that trained the encoder, if one did."""
    image_size: Size | None = None
    """Height and width of the images that the encoder expects; None if it takes any."""
    channels: int | None = None
    """Channels of the images that the encoder expects; None if it takes any."""
    max_value: float | None = None
    """The value that was white in training images of more than 8 bits."""
    kind_of_data: Kind | None = None
    """What the encoder was trained on; None if that is not known."""
    rate: int | None = None
    """Samples a second of the sounds that the encoder was trained on, Hz."""
    notes: tuple[str, ...] = ()
    """One-line facts to tell the user once: which weights these are."""
    kind: Features = "pooled"
    """Which of the encoder's features to take."""
    projector: nn.Module | None = None
    """The projection head that the encoder was trained with, where it was kept."""

    def tell(self, *, quiet: bool) -> None:
        """Say on stderr, unless `quiet`, which weights these are, before work begins on them."""
        console = Console(stderr=True, quiet=quiet)
        for note in self.notes:
            console.print(printable(note), highlight=False, markup=False, soft_wrap=True)

    def open(
        self, data: Any, *, like: Dataset | None = None, quiet: bool = False, **options: Any
    ) -> Dataset:
        """Open images as the encoder expects them: their size, channels, and what is white.

        What the encoder does not say is as in `like`. Progress is shown unless `quiet`; `options`
        are those of `open_dataset`.

        Raises:
            ValueError: data that cannot be read, or that have other channels.
        """
        size, channels, max_value = self.image_size, self.channels, self.max_value
        if like is not None:
            size, channels = like.images.shape[1:3], like.images.shape[3]
            max_value = like.max_value if max_value is None else max_value
        rate = self.rate if like is None else like.rate
        options |= {"image_size": size, "sample_rate": rate, "max_value": max_value}
        try:
            with _bar(quiet, "reading images") as progress:
                dataset = open_dataset(data, progress=progress, **options)
        except ValueError:
            self._refuse_other_kind(*kind_of_source(data))  # which may be why
            raise
        self._refuse_other_kind(dataset.spec, dataset.kind)
        return _with_channels(dataset, channels, self.name if like is None else like.spec)

    @property
    def front_end(self) -> FrontEnd | None:
        """Spectrogram that the encoder makes of sounds; None where it sees the examples."""
        return self.encoder.config.front_end if isinstance(self.encoder, Encoder) else None

    def _refuse_other_kind(self, spec: str, kind: Kind) -> None:
        """Refuse windows for an encoder of images, and the like.

        Raises:
            ValueError: the data are of another kind.
        """
        if self.kind_of_data not in (None, kind):
            raise ValueError(
                f"{printable(spec)} holds {kind}, and {printable(self.name)} was "
                f"trained on {self.kind_of_data}: give it such data, or train another encoder"
            )

    def build(self, images: np.ndarray, *, seed: int = 0) -> nn.Module:
        """Return the module that turns `images` [n, H, W, C] into features, x[B, C, H, W] -> h.

        Raises:
            ValueError: features before pooling of an encoder that widefield did not make.
        """
        if self.architecture is not None:
            encoder: nn.Module = build_untrained(self.architecture, images, seed=seed)
        elif self.encoder is not None:
            encoder = self.encoder
        else:
            return Pixels.of(images)
        return self._showing(encoder, self.projector)

    def _showing(self, encoder: nn.Module, projector: nn.Module | None) -> nn.Module:
        """Return `encoder`, or what shows the chosen features of it."""
        if self.kind == "pooled":
            return encoder
        if self.kind == "projected":
            assert projector is not None, "open_encoder has refused it"
            return Projected(encoder, projector)
        if not isinstance(encoder, Encoder) or not encoder.has_map:
            raise ValueError(f"{self.name} shows no features before pooling: take the pooled ones")
        return FeatureMap(encoder)

    def untrained(self, images: np.ndarray, *, seed: int = 1) -> nn.Module:
        """Return the same architecture, untrained: what training must beat.

        The seed is by default not the one that trainings begin at.
        """
        return self.untrained_starts(images, seed=seed)[0]

    def untrained_starts(self, images: np.ndarray, *, seed: int = 1) -> list[nn.Module]:
        """Return `untrained(images)` from each usual start of the architecture, its own first."""
        like = self.encoder
        if like is None:
            like = build_untrained(self.architecture or DEFAULT_ARCHITECTURE, images, seed=seed)
        head = None if self.projector is None else untrained_like(self.projector, seed=seed)
        return [self._showing(encoder, head) for encoder in untrained_starts(like, seed=seed)]

    def at_epoch(self, folder: Path) -> "FeatureExtractor":
        """Return the same of an earlier encoder of the run, from the folder of a checkpoint."""
        earlier = replace(self, encoder=load(folder), projector=load_projector(folder))
        return _with_projector(earlier)

    def features(
        self, images: np.ndarray, *, quiet: bool = True, arithmetic: Arithmetic = "auto"
    ) -> Tensor:
        """Return the features float32 [n, D] of images uint8 [n, H, W, C]."""
        with _bar(quiet, "encoding images") as progress:
            return encode(self.build(images), images, progress, arithmetic=arithmetic)


def _bar(quiet: bool, doing: str) -> AbstractContextManager[Progress]:
    """Return a bar for what is done with images; in a log file, a line a minute."""
    return images_bar(Console(stderr=True, quiet=quiet), doing)


def _with_channels(dataset: Dataset, channels: int | None, whose: str) -> Dataset:
    """Return the images with as many `channels`: gray ones three times, others are refused."""
    *shape, have = dataset.images.shape
    if channels in (None, have):
        return dataset
    if (have, channels) != (1, 3) or dataset.kind != "images":
        raise ValueError(
            f"{printable(dataset.spec)} has {dataset.kind} of {have} channels, and "
            f"{printable(whose)} of {channels}: give {dataset.kind} with {channels}"
        )
    plain = dataset.plain
    return replace(
        dataset,
        images=np.broadcast_to(dataset.images, (*shape, 3)),
        plain=None if plain is None else np.broadcast_to(plain, (*shape, 3)),
        notes=(*dataset.notes, "gray images are shown in three equal channels"),
    )


def encode(
    encoder: nn.Module,
    images: np.ndarray,
    progress: Progress | None = None,
    *,
    arithmetic: Arithmetic = "auto",
) -> Tensor:
    """Return the features float32 [n, D] of images uint8 [n, H, W, C], on this machine's device.

    `progress` gets (images done, images in all) after every batch.
    """
    device = choose_device("auto")
    precision = choose_precision(arithmetic, device)
    with on_device(encoder, device):
        return extract(encoder, images, device=device, precision=precision, progress=progress)


def build_untrained(architecture: str, images: np.ndarray, *, seed: int) -> nn.Module:
    """Build a random encoder for `images` [n, H, W, C]: a timm model, or `torchvision:NAME`."""
    _, height, width, channels = images.shape
    if images.dtype == np.float32 and architecture == DEFAULT_ARCHITECTURE:
        architecture = "conv1d"  # of windows
    rate = FLOOR_RATE if images.dtype == np.int16 else None
    inputs = InputSpec(channels=channels, image_size=(height, width), rate=rate)
    settings = EncoderSettings(name=architecture)
    settings.width(inputs)  # it fits
    return settings.build(inputs, seed=seed)


@input_errors
def load(path: str | os.PathLike[str]) -> Encoder:
    """Load the encoder of a run, or of a file or folder that `export` wrote, ready for use.

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
    return load_encoder(os.fspath(path)).eval()


@input_errors
def open_encoder(spec: EncoderSpec, features: Features = "pooled") -> FeatureExtractor:
    """Open the encoder that `spec` names, and say which features to take; a module is as it is.

    A name is a run's folder; a file that `export` wrote; a file of weights of timm, torchvision,
    lightly, solo-learn or Lightning, `FILE@ARCHITECTURE` if the architecture cannot be guessed;
    a Hugging Face model folder as timm writes it; `timm:NAME` or `torchvision:NAME`, with
    pretrained weights if this machine has them already and random ones otherwise; `random`;
    `pixels`.

    Features `projected` are read through `projector.safetensors`, which a run keeps beside its
    encoder, in its folder and in those of its checkpoints.

    Raises:
        ValueError: nothing of that name, weights that do not fit, or `projected` features of an
            encoder that has no projector.
    """
    check_name("features", features, get_args(Features))
    return _with_projector(replace(_open(spec), kind=features))


def _with_projector(extractor: FeatureExtractor) -> FeatureExtractor:
    """Refuse an extractor of projected features that has no projector."""
    if extractor.kind == "projected" and extractor.projector is None:
        raise ValueError(
            f"{extractor.name} has no projector, as a run keeps one beside its encoder: take "
            "features pooled or feature-map"
        )
    return extractor


def _open(spec: EncoderSpec) -> FeatureExtractor:
    if isinstance(spec, nn.Module):
        if isinstance(spec, Encoder):
            return _of_encoder(spec.config.name, spec)
        return FeatureExtractor(name=type(spec).__name__, encoder=spec)
    name = encoder_name(spec)
    if name == "pixels":
        return FeatureExtractor(name=name)
    if name == "random":
        return FeatureExtractor(name=name, architecture=DEFAULT_ARCHITECTURE)
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
    if is_model_folder(Path(name)):
        return _of_foreign(name, name, *load_model_folder(Path(name)))
    run = RunFolder(path=Path(name))
    trained_here = run.settings_file.exists()
    return replace(
        _of_encoder(name, load(name)),
        run=run if trained_here else None,
        projector=load_projector(name),
    )


def encoder_name(spec: str | os.PathLike[str]) -> str:
    """Return the name or path of an encoder.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(spec, str | os.PathLike):
        return os.fspath(spec)
    raise ValueError(
        f"an encoder is a name, a path, a torch module or what pretrain returned, not "
        f"{type(spec).__name__}"
    )


def _of_encoder(name: str, encoder: Encoder) -> FeatureExtractor:
    """Return the extractor of an encoder that was trained here, with all that it expects."""
    config = encoder.config
    return FeatureExtractor(
        name=name,
        encoder=encoder,
        image_size=config.image_size,
        channels=config.channels,
        max_value=config.max_value,
        kind_of_data=config.kind,
        rate=config.rate,
    )


def _open_named(name: str) -> FeatureExtractor:
    weights = cached_weights(name)
    if weights is not None:
        return _open_foreign(name, str(weights), name.removeprefix("timm:"))
    architecture = name.removeprefix("timm:")
    note = (
        f"{name}: random weights; no pretrained ones are on this machine, none are downloaded: "
        f"give a file of them, FILE@{architecture}, or fetch them with widefield pretrain DATA "
        f"--init {name} --download"
    )
    if architecture == name:  # of torchvision, whose models may have no last layer to leave out
        EncoderSettings(name=name).width(InputSpec(image_size=224))
    return FeatureExtractor(name=name, architecture=architecture, notes=(note,))


def _open_foreign(name: str, path: str, architecture: str | None) -> FeatureExtractor:
    return _of_foreign(name, path, *load_foreign(path, architecture))


def _of_foreign(name: str, path: str, encoder: Encoder, match: WeightMatch) -> FeatureExtractor:
    note = f"{path}: {match.line()}"
    return FeatureExtractor(
        name=name,
        encoder=encoder,
        image_size=encoder.config.image_size if encoder.size_is_fixed else None,
        channels=encoder.config.channels,
        notes=(note,),
    )


def own_data(run: RunFolder, remedy: str) -> str:
    """Return the name of the data that a run was trained on; `remedy` says what to give instead.

    Raises:
        ValueError: they were arrays in memory.
    """
    data = str(run.settings()["data"])
    if data == MEMORY:
        raise ValueError(
            f"{run.path} was trained on arrays in memory, which were not kept: {remedy}"
        )
    return data


def training_data(run: RunFolder, *, quiet: bool = False) -> Dataset:
    """Open the data that a run was trained on, and refuse them if they changed."""
    data = own_data(run, "say what to fit on with train_data=DATA (--train-data DATA)")
    with _bar(quiet, "reading images") as progress:
        opening = run.recipe().opening() | run.form()
        dataset = open_dataset(data, **opening, progress=progress)
    dataset = run.manifest.in_order(dataset)
    run.manifest.refuse_other(dataset)
    return dataset


def scoring_data(extractor: FeatureExtractor, data: Any | None) -> Any:
    """Return what to score on: `data`, by default the test split of the data of a run.

    Raises:
        ValueError: there is neither.
    """
    if data is not None:
        return data
    if extractor.run is None:
        raise ValueError(f"{extractor.name} is no run of ours: say what to score on")
    return held_out_split(own_data(extractor.run, "say what to score on"))
