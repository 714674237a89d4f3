"""Pretrained weights that a run is initialized from."""

import os
from dataclasses import dataclass

from torch import nn

from widefield.core.errors import option
from widefield.core.form import Form
from widefield.core.names import printable
from widefield.data import Dataset
from widefield.encoders import (
    Encoder,
    adapt_encoder,
    cached_weights,
    custom_encoder,
    download_weights,
    is_custom,
    load_module,
)
from widefield.encoders.names import split_custom
from widefield.encoders.own import classifier_note
from widefield.inference.features import resize_hint
from widefield.inference.open_encoder import EncoderSpec, encoder_name, open_encoder
from widefield.probes import extract

_PREFIXES = ("timm:", "torchvision:")
_CHECKED = 16
"""Examples that the initial encoder has to tell apart."""
_CONSTANT = 1e-6
"""Largest deviation of constant features, relative to their largest value: rounding of float32."""


@dataclass(frozen=True, kw_only=True)
class InitialEncoder:
    encoder: Encoder
    notes: tuple[str, ...] = ()
    """Which weights these are, and how they were adapted."""

    def adapted(self, dataset: Dataset) -> "InitialEncoder":
        """Return the encoder, adapted to the form of `dataset`."""
        kind = self.encoder.config.kind
        names = (printable(dataset.spec), "the initial encoder")
        mismatch = dataset.form.mismatch(Form(kind=kind), names)
        if mismatch is not None:
            raise ValueError(f"{mismatch}: give {kind}, or leave init out")
        encoder, notes = adapt_encoder(self.encoder, dataset.form)
        _check_features(encoder, dataset)
        _, height, width, _ = dataset.images.shape
        config, (h, w) = encoder.config, self.encoder.config.image_size
        mean, std = ([round(x, 3) for x in values] for values in (config.mean, config.std))
        lines = [f"{config.name}, mean {mean} and standard deviation {std} are kept", *notes]
        if (h, w) != (height, width):
            lines.append(
                f"trained at {h}x{w} pixels, continues at {height}x{width}"
                + resize_hint(self.encoder, max(height, width))
                if kind == "images"
                else f"trained on {kind} of {w} steps, continues with {width}"
            )
        return InitialEncoder(
            encoder=encoder, notes=(*self.notes, *(f"init: {line}" for line in lines))
        )


def _check_features(encoder: Encoder, dataset: Dataset) -> None:
    """Check that the features of different examples differ.

    If they are constant, the run would end with "no significant difference" from its start.
    """
    images = dataset.subset(dataset.spread_rows(_CHECKED)).first_read().images
    h = extract(encoder, images)
    spread = (h.amax(0) - h.amin(0)).max()
    if (images != images[:1]).any() and spread <= _CONSTANT * h.abs().max():
        raise ValueError(
            f"the initial encoder has the same features for {len(images)} different examples: give "
            "other weights, or leave init out"
        )


def init_name(spec: EncoderSpec) -> str:
    """Return the entry of `run.yaml` for an initial encoder; a path is absolute."""
    if isinstance(spec, nn.Module):
        return type(spec).__name__
    run, network = split_custom(encoder_name(spec))
    if network is not None:
        return f"{os.path.abspath(run)}@{init_name(network)}"
    if is_custom(encoder_name(spec)):
        # Absolute, because a resume may start in another folder.
        file, _, function = os.fspath(spec).rpartition(":")
        return f"{os.path.abspath(file)}:{function}"
    name = encoder_name(spec)
    path, at, architecture = name.rpartition("@")
    if not os.path.exists(path):
        path, at, architecture = name, "", ""
    return f"{os.path.abspath(path) if os.path.exists(path) else path}{at}{architecture}"


def open_init(spec: EncoderSpec, *, download: bool) -> InitialEncoder:
    """Open the encoder that a run is initialized from; `download` permits to fetch weights."""
    if isinstance(spec, nn.Module):
        if isinstance(spec, Encoder):
            return InitialEncoder(encoder=spec)
        encoder, name = load_module(spec), type(spec).__name__
        notes = classifier_note(name, encoder, encoder.config.channels)
        return InitialEncoder(encoder=encoder, notes=notes)
    name = encoder_name(spec)
    if is_custom(name) and split_custom(name)[1] is None:
        return InitialEncoder(encoder=custom_encoder(name))
    check_published(name, download=download)
    extractor = open_encoder(name)
    if extractor.encoder is None:
        raise ValueError(f"{name} has no trained weights to start from: leave init out")
    assert isinstance(extractor.encoder, Encoder)
    return InitialEncoder(encoder=extractor.encoder, notes=extractor.notes)


def check_published(name: str, *, download: bool) -> None:
    """Check that the weights of `timm:NAME` or `torchvision:NAME` are on this machine.

    With `download` they are fetched if they are not. Other names are not checked.
    """
    if not name.startswith(_PREFIXES) or cached_weights(name) is not None:
        return
    if not download:
        raise ValueError(
            f"no weights of {name} are on this machine: add {option('download', True)} to fetch "
            f"them, or give a file of them, FILE@{name.removeprefix('timm:')}"
        )
    download_weights(name)
