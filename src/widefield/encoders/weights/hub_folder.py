"""A folder of a Hugging Face model on disk, as timm writes it: `config.json` and weights."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeGuard

from widefield.core.files import check_plain_file
from widefield.core.types import InputSpec
from widefield.encoders.encoder import VARIANTS, Encoder, EncoderConfig, encoder_config
from widefield.encoders.weights.foreign import WeightMatch, load_fitting, skeleton
from widefield.encoders.weights.tensors import read_tensors

CONFIG = "config.json"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_LARGEST = 1e5
"""Size, mean and deviation at most."""
_BYTES = 2**20


def is_model_folder(path: Path) -> bool:
    """Return whether `path` holds a configuration and weights as the hub has them."""
    return (path / CONFIG).is_file() and any((path / name).is_file() for name in _WEIGHTS)


def load_model_folder(folder: Path) -> tuple[Encoder, WeightMatch]:
    """Load the encoder of a model folder, on the CPU in evaluation mode.

    Architecture, size, channels, mean and deviation are those of `config.json`; which first layers
    were built is told from the weights. Nothing of the folder is executed.

    Raises:
        ValueError: the folder is not one of timm's, or its weights do not fit what it says.
    """
    values = _read(folder / CONFIG)
    weights = next(folder / name for name in _WEIGHTS if (folder / name).is_file())
    name = values.get("architecture")
    if not isinstance(name, str):
        raise ValueError(
            f"{folder} is a model folder of {values.get('model_type', 'another library')!r}, and "
            "those that timm writes can be read, with an 'architecture' in config.json: load it "
            "in Python, or give its weights as FILE@NAME, NAME being a timm model"
        )
    candidates = [skeleton(config.name, config) for config in _configs(folder, name, values)]
    return load_fitting(weights, read_tensors(weights), candidates)


def _read(path: Path) -> dict[str, Any]:
    check_plain_file(path, largest=_BYTES)
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no JSON: restore it, or save the model again") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} describes no model: restore it, or save the model again")
    return values


def _configs(folder: Path, name: str, values: Mapping[str, Any]) -> list[EncoderConfig]:
    """Return every encoder that the configuration may mean: either stem, and our variants."""
    facts = values.get("pretrained_cfg", values)
    facts = facts if isinstance(facts, dict) else {}
    size, mean, std = (facts.get(key) for key in ("input_size", "mean", "std"))
    if not (_numbers(size) and len(size) == 3 and _numbers(mean) and _numbers(std)):
        raise ValueError(
            f"{folder / CONFIG} does not say input_size [C, H, W], mean and std in its "
            "pretrained_cfg: add them, as timm writes them"
        )
    channels, height, width = map(int, size)
    inputs = InputSpec(channels=channels, image_size=(height, width), mean=mean, std=std)
    variants = [own for own, arguments in VARIANTS.items() if arguments["model_name"] == name]
    configs = [encoder_config(model, inputs, stem="native") for model in (name, *variants)]
    for model in (name, *variants):
        with suppress(ValueError):  # not every family has a small stem
            configs.append(encoder_config(model, inputs, stem="small"))
    return configs


def _numbers(values: object) -> TypeGuard[list[float]]:
    """Return whether `values` are numbers that a configuration may hold."""
    return isinstance(values, list) and all(
        type(value) in (int, float) and abs(value) < _LARGEST for value in values
    )
