"""The features of a frozen encoder: what images, windows and sounds become."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.console import Console
from torch import Tensor, nn

from widefield.core.hardware import choose_device, choose_precision
from widefield.core.logmel import FrontEnd
from widefield.core.modes import on_device
from widefield.core.names import printable
from widefield.core.types import InputSpec, Kind, ProgressCallback, Size
from widefield.data import Dataset, kind_of_source, open_dataset
from widefield.encoders import (
    Encoder,
    EncoderSettings,
    FeatureMap,
    Projected,
    load_encoder,
    untrained_like,
    untrained_starts,
)
from widefield.methods import load_projector
from widefield.probes import Pixels, extract
from widefield.probes.features import FLOOR_RATE
from widefield.train.progress import images_bar
from widefield.train.run_dir import RunFolder

FeatureKind = Literal["pooled", "feature-map", "projected"]
"""What to take: the encoder's output, what it is pooled from, or what its projector makes of it."""

Arithmetic = Literal["auto", "32"]
"""What an encoder computes in: bf16 where the machine has it, or float32."""

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
    kind: FeatureKind = "pooled"
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
            with images_progress(quiet, "reading images") as progress:
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
        earlier = replace(
            self, encoder=load_encoder(folder).eval(), projector=load_projector(folder)
        )
        return with_projector(earlier)

    def features(
        self, images: np.ndarray, *, quiet: bool = True, arithmetic: Arithmetic = "auto"
    ) -> Tensor:
        """Return the features float32 [n, D] of images uint8 [n, H, W, C]."""
        with images_progress(quiet, "encoding images") as progress:
            return encode(self.build(images), images, progress, arithmetic=arithmetic)


def images_progress(quiet: bool, doing: str) -> AbstractContextManager[ProgressCallback]:
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
    progress: ProgressCallback | None = None,
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


def with_projector(extractor: FeatureExtractor) -> FeatureExtractor:
    """Refuse an extractor of projected features that has no projector."""
    if extractor.kind == "projected" and extractor.projector is None:
        raise ValueError(
            f"{extractor.name} has no projector, as a run keeps one beside its encoder: take "
            "features pooled or feature-map"
        )
    return extractor
