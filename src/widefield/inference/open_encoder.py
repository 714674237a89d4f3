"""Open the frozen encoder that `RUN|ENCODER` on the command line names."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal, get_args, overload

from torch import nn

from widefield.core.errors import input_errors
from widefield.core.form import ANY_FORM, Form, InputSpec
from widefield.core.names import check_name
from widefield.encoders import (
    Encoder,
    EncoderSettings,
    Normalized,
    WeightMatch,
    Wide,
    cached_weights,
    custom_encoder,
    has_settings,
    is_custom,
    is_exported,
    is_model_folder,
    load_encoder,
    load_foreign,
    load_model_folder,
    load_readout,
    module_normalization,
    register_network,
    states_network,
)
from widefield.encoders.names import check_encoder_name, split_custom
from widefield.encoders.own import classifier_note
from widefield.encoders.weights.normalization import normalization_text
from widefield.inference.features import DEFAULT_ARCHITECTURE, FeatureExtractor, FeatureKind
from widefield.methods import load_projector
from widefield.train.run_dir import RunFolder

EncoderSpec = str | os.PathLike[str] | nn.Module


@overload
def load(
    path: str | os.PathLike[str],
    *,
    features: Literal["pooled"] = "pooled",
    network: nn.Module | None = None,
) -> Encoder: ...
@overload
def load(
    path: str | os.PathLike[str], *, features: Literal["wide"], network: nn.Module | None = None
) -> Wide: ...


@input_errors
def load(
    path: str | os.PathLike[str],
    *,
    features: Literal["pooled", "wide"] = "pooled",
    network: nn.Module | None = None,
) -> Encoder | Wide:
    """Load the encoder of a run, or of a file or folder that `export` wrote.

    It maps float images [B, C, H, W] in [0, 1] to features [B, D], and is in evaluation mode.

    Args:
        path: folder or file; `PATH@FILE.py:FUNCTION` for one of a network of your own.
        features: pooled, or wide for these and directions of earlier stages and of the input.
        network: a module of the architecture that was trained, where a module was given.

    Raises:
        ValueError: there is no encoder at `path`, or none with a readout for wide features.

    Example:
        >>> import tempfile
        >>> import torch
        >>> from widefield.encoders import build_encoder, save_encoder
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_encoder(build_encoder("resnet-tiny", seed=0), folder)
        ...     encoder = load(folder)
        >>> encoder(torch.rand(2, 3, 32, 32)).shape
        torch.Size([2, 128])
    """
    check_name("features", features, ("pooled", "wide"))
    path, network_name = split_custom(os.path.expanduser(path))
    if is_model_folder(Path(path)):
        encoder, _ = load_model_folder(Path(path))
    else:
        encoder = load_encoder(path, network=network_name if network is None else network).eval()
    if features == "pooled":
        return encoder
    readout = load_readout(path)
    if readout is None:
        raise ValueError(
            f"{path} has no readout, which a finished run has: resume the run, or compute the "
            "features by widefield.embed(..., features='wide'), which fits one"
        )
    return Wide(encoder, readout).eval()


@input_errors
def open_encoder(
    spec: EncoderSpec, features: FeatureKind | None = "pooled", *, dim: int | None = None
) -> FeatureExtractor:
    """Open the encoder that `spec` names, or a module, for the features of a kind.

    `features` of None are wide ones, or pooled ones of an encoder without stages.

    A name is a run's folder; a file that `export` wrote; a file of weights of timm, torchvision,
    lightly, solo-learn or Lightning, `FILE@ARCHITECTURE` if the architecture cannot be guessed;
    a Hugging Face model folder as timm writes it; a function of your own that returns a network,
    `FILE.py:FUNCTION`, and a run or file of such a network, `RUN@FILE.py:FUNCTION`; `timm:NAME` or
    `torchvision:NAME`, with pretrained weights if this machine has them already and random ones
    otherwise; `random`; `pixels`.

    Features `projected` use `projector.safetensors`, which a run saves beside its encoder, in its
    folder and in those of its checkpoints. Features `wide` use `readout.safetensors` in its folder;
    without it, or for another width `dim`,
    `FeatureExtractor.with_readout` fits one.

    Raises:
        ValueError: nothing of that name, weights that do not fit, or `projected` features of an
            encoder that has no projector.
    """
    if features is None:
        return replace(_open(spec), kind="wide", dim=dim, or_pooled=True)
    check_name("features", features, get_args(FeatureKind))
    return replace(_open(spec), kind=features, dim=dim)


def _open(spec: EncoderSpec) -> FeatureExtractor:
    if isinstance(spec, nn.Module):
        if isinstance(spec, Encoder):
            return _of_encoder(spec.config.name, spec)
        return _of_module(spec)
    # Names come before paths: a folder that is called so is given as ./pixels. Files are told from
    # runs last, because that reads them.
    name = encoder_name(spec)
    if name == "pixels":
        return FeatureExtractor(name=name)
    if name == "random":
        return FeatureExtractor(name=name, architecture=DEFAULT_ARCHITECTURE)
    if name.startswith(("timm:", "torchvision:")):
        return _open_named(name)
    path, network = split_custom(name)
    if is_custom(name) and not Path(name).exists() and network is None:
        return _custom_extractor(name)
    if network is not None:
        return _open_run(name, path, network)
    path, _, architecture = name.rpartition("@")
    if not Path(name).exists() and Path(path).is_file():
        return _with_match(name, path, *load_foreign(path, architecture))
    check_encoder_name(name)
    if states_network(Path(name)):
        return replace(_open(Path(name).parent), name=name)
    if Path(name).is_file() and not has_settings(name):
        return _with_match(name, name, *load_foreign(name, None))
    if is_model_folder(Path(name)):
        encoder, match = load_model_folder(Path(name))
        folder = _with_match(name, name, encoder, match)
        if is_exported(Path(name)):  # the whole form of its data is known
            folder = replace(_of_encoder(name, encoder), notes=folder.notes)
        return replace(folder, readout=load_readout(name))
    return _open_run(name, name, None)


def _open_run(name: str, path: str, network: str | None) -> FeatureExtractor:
    run = RunFolder(path=Path(path))
    encoder, notes = load_encoder(path, network=network).eval(), tuple[str, ...]()
    if network is not None and encoder.config.digest != register_network(network).digest:
        notes = (f"{network} has changed since {path} was trained: its features may differ",)
    return replace(
        _of_encoder(name, encoder),
        notes=notes,
        run=run if run.settings_file.exists() else None,
        projector=load_projector(path),
        readout=load_readout(path),
    )


def encoder_name(spec: str | os.PathLike[str]) -> str:
    if isinstance(spec, str | os.PathLike):
        return os.path.expanduser(spec)
    raise ValueError(
        f"an encoder is a name, a path, a torch module or what pretrain returned, not "
        f"{type(spec).__name__}"
    )


def _of_module(module: nn.Module) -> FeatureExtractor:
    """Return the extractor of a module, whose images are normalized as it states."""
    name = type(module).__name__
    normalization, guessed = module_normalization(module)
    if normalization is None:
        encoder = module
        note = f"{name}: images in [0, 1] are not normalized (guessed: it has no pretrained_cfg)"
    else:
        mean, std = normalization
        encoder = Normalized(module, mean=mean, std=std)
        note = f"{name}: {normalization_text(mean, std)} ({_origin(guessed)})"
    notes = (note, *classifier_note(name, module))
    return FeatureExtractor(name=name, encoder=encoder, form=_size_of(module), notes=notes)


def _size_of(module: nn.Module) -> Form:
    """Return the size of images of a module that states a fixed one in its `pretrained_cfg`."""
    value = getattr(module, "pretrained_cfg", None)
    cfg = value if isinstance(value, Mapping) else {}
    size = cfg.get("input_size")
    if not cfg.get("fixed_input_size") or not isinstance(size, list | tuple) or len(size) != 3:
        return ANY_FORM
    return Form(size=(int(size[1]), int(size[2])))


def _custom_extractor(name: str) -> FeatureExtractor:
    encoder = custom_encoder(name)
    config = encoder.config
    note = f"{name}: {normalization_text(config.mean, config.std)} ({_origin(config.guessed)})"
    notes = (note, *classifier_note(name, encoder, config.channels))
    form = Form(channels=config.channels)
    return FeatureExtractor(name=name, encoder=encoder, form=form, notes=notes)


def _origin(guessed: bool) -> str:
    return "guessed: it has no pretrained_cfg" if guessed else "its pretrained_cfg"


def _of_encoder(name: str, encoder: Encoder) -> FeatureExtractor:
    return FeatureExtractor(name=name, encoder=encoder, form=encoder.config.form)


def _open_named(name: str) -> FeatureExtractor:
    weights = cached_weights(name)
    if weights is not None:
        loaded = load_foreign(str(weights), name.removeprefix("timm:"), published=True)
        return _with_match(name, str(weights), *loaded)
    architecture = name.removeprefix("timm:")
    note = (
        f"{name}: random weights; no pretrained ones are on this machine, none are downloaded: "
        f"give a file of them, FILE@{architecture}, or fetch them with widefield pretrain DATA "
        f"--init {name} --download"
    )
    if architecture == name:  # a torchvision model may have no classifier to remove
        EncoderSettings(name=name).width(InputSpec(image_size=224))
    return FeatureExtractor(name=name, architecture=architecture, notes=(note,))


def _with_match(name: str, path: str, encoder: Encoder, match: WeightMatch) -> FeatureExtractor:
    # Networks of convolutions take the size of the data.
    size = encoder.config.image_size if encoder.size_is_fixed else None
    return FeatureExtractor(
        name=name,
        encoder=encoder,
        form=Form(size=size, channels=encoder.config.channels),
        notes=(f"{path}: {match.line()}",),
    )
