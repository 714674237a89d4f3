"""A folder of a Hugging Face model in timm's format: `config.json` and weights."""

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeGuard

from widefield.core.files import check_plain_file
from widefield.core.types import InputSpec
from widefield.encoders.encoder import VARIANTS, Encoder, EncoderConfig, encoder_config
from widefield.encoders.weights.foreign import (
    WeightMatch,
    architecture_spec,
    best_match,
    load_matched,
)
from widefield.encoders.weights.tensors import read_tensors

CONFIG = "config.json"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_MAX_VALUE = 1e5
"""Largest size, mean and deviation."""
_MAX_BYTES = 2**20


def is_model_folder(path: Path) -> bool:
    """Return whether `path` has a configuration and weights in the format of the hub."""
    return (path / CONFIG).is_file() and any((path / name).is_file() for name in _WEIGHTS)


def load_model_folder(folder: Path) -> tuple[Encoder, WeightMatch]:
    """Load the encoder of a model folder, on the CPU in evaluation mode.

    Architecture, size, channels, mean and deviation are those of `config.json`; the stem follows
    from the weights. Nothing of the folder is executed.

    Raises:
        ValueError: the folder is not in timm's format, or its weights do not fit.
    """
    values = _read(folder / CONFIG)
    weights = next(folder / name for name in _WEIGHTS if (folder / name).is_file())
    name = values.get("architecture")
    if not isinstance(name, str):
        raise ValueError(
            f"{folder} is a model folder of {values.get('model_type', 'another library')!r}, and "
            "only timm's are supported, with an 'architecture' in config.json: load it "
            "in Python, or give its weights as FILE@NAME, NAME being a timm model"
        )
    candidates = [
        architecture_spec(config.name, config) for config in _configs(folder, name, values)
    ]
    tensors = read_tensors(weights)
    best = best_match(weights, tensors, candidates)
    return load_matched(tensors, best), best


def _read(path: Path) -> dict[str, Any]:
    check_plain_file(path, largest=_MAX_BYTES)
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no JSON: restore it, or save the model again") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} describes no model: restore it, or save the model again")
    return values


def _configs(folder: Path, name: str, values: Mapping[str, Any]) -> list[EncoderConfig]:
    """Return the possible configurations: with both stems, and our variants."""
    cfg = values.get("pretrained_cfg", values)
    cfg = cfg if isinstance(cfg, dict) else {}
    size, mean, std = (cfg.get(key) for key in ("input_size", "mean", "std"))
    if not (_numbers(size) and len(size) == 3 and _numbers(mean) and _numbers(std)):
        raise ValueError(
            f"{folder / CONFIG} lacks input_size [C, H, W], mean and std in its "
            "pretrained_cfg: add them, as timm writes them"
        )
    channels, height, width = map(int, size)
    inputs = InputSpec(channels=channels, image_size=(height, width), mean=mean, std=std)
    variants = [
        variant for variant, arguments in VARIANTS.items() if arguments["model_name"] == name
    ]
    configs = [encoder_config(model, inputs, stem="native") for model in (name, *variants)]
    for model in (name, *variants):
        with suppress(ValueError):  # not every family has a small stem
            configs.append(encoder_config(model, inputs, stem="small"))
    return configs


def _numbers(values: object) -> TypeGuard[list[float]]:
    """Return whether `values` are valid numbers of a configuration."""
    return isinstance(values, list) and all(
        type(value) in (int, float) and abs(value) < _MAX_VALUE for value in values
    )
