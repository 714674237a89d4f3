"""Features of images, windows and sounds, by a frozen encoder."""

from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
from rich.console import Console
from torch import Tensor, nn

from widefield.core.devices import device_of, on_device
from widefield.core.errors import option
from widefield.core.form import ANY_FORM, Form, InputSpec
from widefield.core.hardware import choose_device, choose_precision
from widefield.core.logmel import FrontEnd
from widefield.core.names import printable
from widefield.core.types import (
    ImageSize,
    Inputs,
    Kind,
    OnNote,
    ProgressCallback,
    Segmented,
    kind_of,
    parse_size,
)
from widefield.data import Dataset, kind_of_source
from widefield.data.open import open_with
from widefield.data.open_options import DEFAULT_OPTIONS, OpenOptions
from widefield.data.source import Data
from widefield.data.spec import BUILTIN, parse
from widefield.encoders import (
    Encoder,
    EncoderSettings,
    FeatureMap,
    Projected,
    Readout,
    Wide,
    adapt_encoder,
    is_custom,
    load_encoder,
    untrained_like,
    untrained_starts,
)
from widefield.encoders.own import feature_width
from widefield.encoders.stages import find_stages
from widefield.methods import load_projector
from widefield.probes import Pixels, extract
from widefield.probes.checks import all_finite
from widefield.probes.features import FLOOR_RATE, byte_pixels, image_batch
from widefield.probes.kept import kept_features
from widefield.probes.wide import fit_on_dataset, has_stages
from widefield.train.progress import images_bar
from widefield.train.run_dir import RunFolder

FeatureKind = Literal["pooled", "wide", "feature-map", "projected"]
"""The output of the encoder, the wide readout, before pooling, or after the projector."""

FeaturePrecision = Literal["auto", "32"]
"""Precision of features: bf16 on devices that have it, or float32."""

DEFAULT_ARCHITECTURE = "resnet-tiny"
"""The architecture of `random`, and of the untrained floor of `pixels`."""


@dataclass(frozen=True, kw_only=True)
class FeatureExtractor:
    """A frozen encoder, and the form of the data that it was trained on.

    Without `encoder`, an untrained `architecture` is built for the size and channels of the images;
    without either, features are the pixels.
    """

    name: str
    encoder: nn.Module | None = None
    architecture: str | None = None
    run: RunFolder | None = None
    """The run that trained the encoder; None if another program did."""
    form: Form = ANY_FORM
    """What the encoder expects, as far as it is known."""
    notes: tuple[str, ...] = ()
    """Which weights these are, one line each."""
    kind: FeatureKind = "pooled"
    """Which features are computed."""
    projector: nn.Module | None = None
    """The projector that the encoder was trained with, if it was saved."""
    readout: Readout | None = None
    """The wide readout of the encoder; None if none was saved or fitted."""
    dim: int | None = None
    """Width of wide features; None for that of the readout that was saved, or the default."""
    or_pooled: bool = False
    """Take pooled features in place of wide ones of an encoder without stages."""

    def __post_init__(self) -> None:
        if self.kind == "projected" and self.projector is None:
            raise ValueError(
                f"{self.name} has no projector, as a run keeps one beside its encoder: take "
                "features pooled or feature-map"
            )
        if self.dim is not None and self.kind != "wide":
            raise ValueError(
                f"dim {self.dim} is for wide features: add {option('features', 'wide')}, or leave "
                "it out"
            )

    @property
    def pooled(self) -> int | None:
        """Return the number of pooled features among wide ones, the first; None for other kinds."""
        if isinstance(self.encoder, Wide):
            return self.encoder.readout.config.pooled
        if self.kind == "wide" and self.readout is not None:
            return self.readout.config.pooled
        return None

    def ready(
        self,
        dataset: Dataset,
        *,
        notes: Iterable[str] | None = None,
        on_note: OnNote | None = None,
        quiet: bool = True,
    ) -> "FeatureExtractor":
        """Return the extractor that computes features of other examples in the form of `dataset`.

        Two examples are encoded first; then `on_note` is called with each of `notes`, by default
        those of the encoder and of the data. Long work comes last: for wide features, the readout
        is fitted on `dataset`.
        """
        # In this order an input that cannot work is refused before anything is printed, and notes
        # are read while the work goes on.
        self.check(dataset)
        send_notes((*self.notes, *dataset.notes) if notes is None else notes, on_note)
        return self.with_readout(dataset, quiet=quiet)

    def with_readout(self, dataset: Dataset, *, quiet: bool = True) -> "FeatureExtractor":
        """Return the extractor with a readout, fitted on `dataset` unless a run saved one.

        One of another width than `dim` is fitted again. For other features than wide ones it is the
        same extractor.
        """
        if self.kind != "wide":
            return self
        readout, notes = self.readout, self.notes
        if readout is not None and self.dim not in (None, readout.dim):
            readout = None
        if readout is None:
            pooled = replace(self, kind="pooled", dim=None)
            encoder = pooled.build(dataset.images)
            if self.or_pooled and not has_stages(encoder, dataset.images):
                return pooled
            if self.run is not None and self.readout is None:
                notes += (f"{self.name} has no readout, as a finished run has: one is fitted here",)
            with images_progress(quiet, "fitting the wide readout") as progress:
                readout = fit_on_dataset(
                    encoder, dataset, dim=self.dim, device=choose_device("auto"), progress=progress
                )
        return replace(self, readout=readout, notes=(*notes, readout.config.line()))

    def at_size(self, size: ImageSize | None) -> "FeatureExtractor":
        """Return the extractor for images of another size; None for that of the encoder."""
        if size is None:
            return self
        wanted = parse_size(size)
        if self.run is not None or self.form.kind not in (None, "images"):
            raise ValueError(
                f"{printable(self.name)} was trained on examples of its own size: leave "
                f"{option('image_size')} out"
            )
        encoder, notes = self.encoder, tuple[str, ...]()
        if isinstance(encoder, Encoder) and encoder.config.image_size != wanted:
            encoder, notes = adapt_encoder(encoder, replace(encoder.config.form, size=wanted))
        notes = (*self.notes, *(f"{self.name}: {note}" for note in notes))
        # A saved readout is of maps of the former size.
        form = replace(self.form, size=wanted)
        return replace(self, encoder=encoder, form=form, readout=None, notes=notes)

    def require_run(self, hint: str) -> RunFolder:
        if self.run is None:
            raise ValueError(f"{self.name} is not a widefield run: {hint}")
        return self.run

    def check(self, dataset: Dataset) -> None:
        """Check on two examples, before long work, that the encoder has these features."""
        images = dataset.images[:2]
        if self.encoder is not None and not isinstance(self.encoder, Encoder):
            device = choose_device("auto")
            with on_device(self.encoder, device):
                batch = image_batch(images.repeat(2, 0)[:2], device)
                feature_width(self.name, self.encoder, batch)
        if self.kind != "wide" or self.readout is not None:
            self.features(images)
            return
        pooled = replace(self, kind="pooled", dim=None)
        pooled.features(images)
        if not self.or_pooled:
            encoder = pooled.build(images)
            find_stages(encoder, image_batch(images, device_of(encoder)))

    def open(
        self,
        data: Data,
        options: OpenOptions = DEFAULT_OPTIONS,
        *,
        like: Dataset | None = None,
        quiet: bool = False,
    ) -> Dataset:
        """Open data in the form that the encoder expects, or else in that of the dataset `like`.

        The form of `like` fills in what the encoder leaves open.
        """
        form = self.form
        if self.kind == "wide" and self.readout is not None:
            form = form.filled(self.readout.config.form)
        others = Form(rate=self._rate_for(data)) if like is None else like.form
        form = form.filled(others)
        options = replace(
            options,
            image_size=form.size,
            sample_rate=form.rate,
            black_white=form.black_white,
            eight_bits=form.kind == "images" and form.black_white is None,
            fit=form.fit or "crop",
        )
        try:
            with images_progress(quiet, "reading images") as progress:
                dataset = open_with(data, replace(options, progress=progress))
        except ValueError:
            self._check_kind(*kind_of_source(data))  # a more specific message
            raise
        self._check_kind(dataset.spec, dataset.kind)
        if like is None:
            dataset = replace(dataset, notes=(*dataset.notes, *self._size_note(dataset)))
        return _with_channels(dataset, form, self.name if like is None else like.spec)

    def _size_note(self, dataset: Dataset) -> tuple[str, ...]:
        """Return a note if images are less than half as large as those of the weights."""
        if self.form.size is not None or not isinstance(self.encoder, Encoder):
            return ()
        side = max(dataset.images.shape[1:3])
        hint = resize_hint(self.encoder, side)
        if dataset.kind != "images" or not hint:
            return ()
        trained = min(self.encoder.config.image_size)
        return (
            f"{printable(self.name)} is for images of about {trained} pixels, and these have "
            f"{side}{hint}",
        )

    def _rate_for(self, data: Data) -> int | None:
        """Return the sampling rate to open sounds at; None for their own.

        Without an encoder, frequencies would differ between data of different rates.
        """
        if self.encoder is not None:
            return self.form.rate
        is_builtin = isinstance(data, str) and parse(data).base in BUILTIN  # needs no resampling
        return None if is_builtin else FLOOR_RATE

    @property
    def front_end(self) -> FrontEnd | None:
        """The encoder's spectrogram of sounds; None if there is none."""
        return self.encoder.config.front_end if isinstance(self.encoder, Encoder) else None

    def _check_kind(self, spec: str, kind: Kind) -> None:
        names = (printable(spec), printable(self.name))
        mismatch = Form(kind=kind).mismatch(self.form, names)
        if mismatch is not None:
            raise ValueError(f"{mismatch}: give {self.form.kind}, or another encoder")

    def build(self, images: np.ndarray) -> nn.Module:
        """Return the module x[B, C, H, W] -> h[B, D] for `images` [n, H, W, C]."""
        if self.architecture is not None:
            encoder: nn.Module = build_untrained(self.architecture, images, seed=0)
        elif self.encoder is not None:
            encoder = self.encoder
        else:
            return Pixels.of(images)
        return self._select_features(encoder, self.projector)

    def _select_features(self, encoder: nn.Module, projector: nn.Module | None) -> nn.Module:
        if self.kind == "pooled":
            return encoder
        if self.kind == "wide":
            assert self.readout is not None, "`ready` has fitted it"
            return Wide(encoder, self.readout)
        if self.kind == "projected":
            assert projector is not None, "__post_init__ has checked it"
            return Projected(encoder, projector)
        if not isinstance(encoder, Encoder) or not encoder.has_map:
            raise ValueError(f"{self.name} has no features before pooling: take the pooled ones")
        return FeatureMap(encoder)

    def untrained_encoders(self, images: np.ndarray, *, seed: int = 1) -> list[nn.Module]:
        """Return the untrained architecture of each usual initialization, its own first.

        Those of an extractor of wide features return pooled ones. The default seed differs from
        that of training.
        """
        # Seed 0 is the default of runs: the floor would be drawn as the encoder's own weights were.
        like = self.encoder
        if like is None:
            like = build_untrained(self.architecture or DEFAULT_ARCHITECTURE, images, seed=seed)
        projector = None if self.projector is None else untrained_like(self.projector, seed=seed)
        select = replace(self, kind="pooled", dim=None) if self.kind == "wide" else self
        return [
            select._select_features(encoder, projector)
            for encoder in untrained_starts(like, seed=seed)
        ]

    def at_epoch(self, folder: Path) -> "FeatureExtractor":
        """Return the extractor of the encoder in the folder of a checkpoint."""
        encoder, projector = load_encoder(folder).eval(), load_projector(folder)
        return replace(self, encoder=encoder, projector=projector, readout=None)

    def features(
        self, images: Inputs, *, quiet: bool = True, precision: FeaturePrecision = "auto"
    ) -> Tensor:
        """Return the features float32 [n, D] of images uint8 [n, H, W, C], or of segments."""
        plain = images.images if isinstance(images, Segmented) else images
        encoder, device = self.build(plain), choose_device("auto")
        exact = choose_precision(precision, device)

        def encode() -> Tensor:
            with images_progress(quiet, "encoding images") as progress:
                return extract(encoder, images, device=device, precision=exact, progress=progress)

        h = kept_features(encode, encoder, images, device=device, precision=exact)
        if not all_finite(h):
            raise ValueError(f"features of {self.name} are NaN or infinite: use another encoder")
        return h

    def probe_features(self, images: Inputs) -> Tensor:
        """Return the features [n, D] of images, or uint8 pixels, which a probe takes as well."""
        if self.encoder is None and self.architecture is None:
            found = byte_pixels(images)
            if found is not None:
                return found.to(choose_device("auto"))
        return self.features(images)


def resize_hint(encoder: Encoder, side: int) -> str:
    """Return the remedy if images are less than half as large as those of an encoder's weights.

    It is empty otherwise, and for a network of one's own, of which no size is known.
    """
    # ImageNet weights on CIFAR-10 lose a third of their accuracy at 32 pixels instead of 128, in
    # one run of which no result is committed (docs/first_hour.md shows it at 128).
    trained = min(encoder.config.image_size)
    if is_custom(encoder.config.name) or 2 * side >= trained:
        return ""
    return f": features may be much better with {option('image_size', trained)}, or a half of it"


def send_notes(notes: Iterable[str], on_note: OnNote | None) -> None:
    """Call `on_note` with each note, once all input is checked and before the work begins."""
    if on_note is not None:
        for note in notes:
            on_note(note)


def images_progress(quiet: bool, description: str) -> AbstractContextManager[ProgressCallback]:
    """Return a progress bar; in a log file, a line a minute."""
    return images_bar(Console(stderr=True, quiet=quiet), description)


def _with_channels(dataset: Dataset, form: Form, expected_by: str) -> Dataset:
    """Return the images with the channels of a form; gray ones are repeated three times."""
    *shape, count = dataset.images.shape
    names = (printable(dataset.spec), printable(expected_by))
    mismatch = dataset.form.mismatch(Form(channels=form.channels), names)
    if mismatch is None:
        return dataset
    if (count, form.channels) != (1, 3) or dataset.kind != "images":
        raise ValueError(f"{mismatch}: give {dataset.kind} of {form.channels} channels")
    plain = dataset.plain
    return replace(
        dataset,
        images=np.broadcast_to(dataset.images, (*shape, 3)),
        plain=None if plain is None else np.broadcast_to(plain, (*shape, 3)),
        notes=(*dataset.notes, "gray images are converted to three equal channels"),
    )


def build_untrained(architecture: str, images: np.ndarray, *, seed: int) -> nn.Module:
    """Build an untrained encoder for `images` [n, H, W, C]: a timm model, or `torchvision:NAME`."""
    _, height, width, channels = images.shape
    kind = kind_of(images)
    if kind == "windows" and architecture == DEFAULT_ARCHITECTURE:
        architecture = "conv1d"
    rate = FLOOR_RATE if kind == "sounds" else None
    inputs = InputSpec(channels=channels, image_size=(height, width), rate=rate)
    settings = EncoderSettings(name=architecture)
    settings.width(inputs)  # raises if it does not fit
    return settings.build(inputs, seed=seed)
