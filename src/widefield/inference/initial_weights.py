"""The encoder that a run begins from, where it does not begin from random weights."""

import os
from dataclasses import dataclass

from torch import nn

from widefield.config.recipe import Recipe
from widefield.core.names import printable
from widefield.data import Dataset
from widefield.encoders import (
    Encoder,
    adapted,
    download_weights,
    load_encoder,
    load_module,
)
from widefield.inference.open_encoder import EncoderSpec, encoder_name, open_encoder
from widefield.train.run_dir import RunFolder

_PUBLISHED = ("timm:", "torchvision:")


@dataclass(frozen=True, kw_only=True)
class InitialEncoder:
    """Pretrained weights to go on from, and what to tell the user of them."""

    encoder: Encoder
    notes: tuple[str, ...] = ()
    """Which weights were found, and what was changed for the images."""

    def fitted(self, dataset: Dataset) -> "InitialEncoder":
        """Return the same encoder for the images of `dataset`.

        Raises:
            ValueError: it was trained on examples of another kind, or cannot be carried over to
                their size.
        """
        kind = self.encoder.config.kind
        if dataset.kind != kind:
            raise ValueError(
                f"{printable(dataset.spec)} holds {dataset.kind}, and the initial encoder was "
                f"trained on {kind}: give it such data, or leave init out"
            )
        _, height, width, channels = dataset.images.shape
        encoder, notes = adapted(
            self.encoder, channels=channels, image_size=(height, width), max_value=dataset.max_value
        )
        config, (h, w) = encoder.config, self.encoder.config.image_size
        mean, std = ([round(x, 3) for x in values] for values in (config.mean, config.std))
        lines = [f"{config.name}, its mean {mean} and deviation {std} are kept", *notes]
        if (h, w) != (height, width):
            lines.append(
                f"trained at {h}x{w} pixels, goes on at {height}x{width}"
                if kind == "images"
                else f"trained on {kind} of {w} steps, goes on with {width}"
            )
        return InitialEncoder(
            encoder=encoder, notes=(*self.notes, *(f"init: {line}" for line in lines))
        )


def init_name(spec: EncoderSpec) -> str:
    """Return the entry of `run.yaml` for an initial encoder; a path is absolute."""
    if isinstance(spec, nn.Module):
        return type(spec).__name__
    name = encoder_name(spec)
    path, at, architecture = name.rpartition("@")
    if not os.path.exists(path):
        path, at, architecture = name, "", ""
    return f"{os.path.abspath(path) if os.path.exists(path) else path}{at}{architecture}"


def open_init(spec: EncoderSpec, *, download: bool) -> InitialEncoder:
    """Open the encoder that a run begins from; `download` lets published weights be fetched.

    Raises:
        ValueError: there is no such encoder, it has no trained weights, or it is none whose
            architecture is known.
    """
    if isinstance(spec, nn.Module):
        return InitialEncoder(encoder=_of_module(spec))
    name = encoder_name(spec)
    if download and name.startswith(_PUBLISHED):
        download_weights(name)
    extractor = open_encoder(name)
    if extractor.encoder is None:
        if name.startswith(_PUBLISHED):
            raise ValueError(
                f"no weights of {name} are on this machine: add --download to fetch them, or give "
                f"a file of them, FILE@{name.removeprefix('timm:')}"
            )
        raise ValueError(f"{name} has no trained weights to start from: leave init out")
    assert isinstance(extractor.encoder, Encoder)
    return InitialEncoder(encoder=extractor.encoder, notes=extractor.notes)


def _of_module(module: nn.Module) -> Encoder:
    """Return an encoder with the weights of a module.

    Raises:
        ValueError: its architecture is none that we know.
    """
    if isinstance(module, Encoder):
        return module
    return load_module(module)


def kept_init(folder: RunFolder, recipe: Recipe) -> Encoder | None:
    """Load the initial encoder of a run, as it was before the first step; None if it has none.

    Raises:
        ValueError: it is gone or damaged.
    """
    if recipe.init is None:
        return None
    folder.name_start()
    return load_encoder(folder.start_folder)
