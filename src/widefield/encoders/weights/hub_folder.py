"""A folder of a Hugging Face model of timm or transformers: `config.json` and weights."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from widefield.core.files import check_plain_file
from widefield.core.types import InputSpec
from widefield.encoders.encoder import VARIANTS, Encoder, EncoderConfig, encoder_config
from widefield.encoders.weights.adapt import adapted_config
from widefield.encoders.weights.files import read_config, read_inputs
from widefield.encoders.weights.foreign import (
    WeightMatch,
    architecture_spec,
    architecture_specs,
    best_match,
    load_matched,
)
from widefield.encoders.weights.key_maps import rename_to_timm
from widefield.encoders.weights.normalization import (
    MAX_STATED,
    are_numbers,
    per_channel,
    stated_normalization,
)
from widefield.encoders.weights.tensors import read_tensors
from widefield.encoders.weights.timm_entry import NAME
from widefield.encoders.weights.vit_names import authors_arguments, vit_names

CONFIG = "config.json"
RECORD = "widefield"
"""Entry of the configuration with the record of preprocessing."""
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_MAX_BYTES = 2**20


def is_model_folder(path: Path) -> bool:
    """Return whether `path` has a configuration and weights in the format of the hub."""
    return (path / CONFIG).is_file() and any((path / name).is_file() for name in _WEIGHTS)


def is_exported(folder: Path) -> bool:
    """Return whether the model folder has a whole record of preprocessing."""
    return RECORD in _read(folder / CONFIG)


def load_model_folder(folder: Path) -> tuple[Encoder, WeightMatch]:
    """Load the encoder of a model folder, on the CPU in evaluation mode.

    Architecture, size, channels, mean and deviation are those of timm's `config.json`; the stem
    follows from the weights. That of transformers has the heads and layers of a vision transformer;
    the rest follows from the weights. Nothing of the folder is executed.

    Raises:
        ValueError: the folder is in another format, or its weights do not fit.
    """
    values = _read(folder / CONFIG)
    weights = next(folder / name for name in _WEIGHTS if (folder / name).is_file())
    name = values.get("architecture")
    if name is None and "num_attention_heads" in values:
        return _load_transformers(folder, weights, values)
    if name == NAME:
        return _load_entry(folder, weights, values)
    if not isinstance(name, str):
        raise ValueError(
            f"{folder} is a model folder of {values.get('model_type', 'another library')!r}, and "
            "only timm's and vision transformers of transformers are supported: load it "
            "in Python, or give its weights as FILE@NAME, NAME being a timm model"
        )
    candidates = [
        architecture_spec(config.name, config) for config in _configs(folder, name, values)
    ]
    tensors = read_tensors(weights)
    best = best_match(weights, tensors, candidates)
    return load_matched(tensors, best), best


def _load_entry(
    folder: Path, weights: Path, values: Mapping[str, Any]
) -> tuple[Encoder, WeightMatch]:
    """Load an encoder that timm has no arguments for."""
    try:
        config = read_config(json.dumps(values["model_args"]["encoder"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{folder / CONFIG} has no encoder of this version ({error}): export the model again"
        ) from None
    tensors = read_tensors(weights)
    best = best_match(weights, tensors, [architecture_spec(config.name, config)])
    return load_matched(tensors, best), best


def _load_transformers(
    folder: Path, weights: Path, values: Mapping[str, Any]
) -> tuple[Encoder, WeightMatch]:
    """Load a vision transformer of transformers, with the sizes that its weights do not show."""
    heads, depth = (values.get(key) for key in ("num_attention_heads", "num_hidden_layers"))
    eps, period = values.get("layer_norm_eps", 1e-6), values.get("rope_theta", 100.0)
    if not (type(heads) is int and type(depth) is int and heads > 0 and are_numbers([eps, period])):
        raise ValueError(
            f"{folder / CONFIG} lacks num_attention_heads or num_hidden_layers: restore it"
        )
    for key, allowed in {"hidden_act": ("gelu", "silu"), "rope_theta": (100.0,)}.items():
        if values.get(key, allowed[0]) not in allowed:
            raise ValueError(
                f"{folder / CONFIG} has {key} {values[key]!r}, which no encoder here has: load the "
                "model in Python"
            )
    tensors = read_tensors(weights)
    known = authors_arguments(tensors) | {"depth": depth, "num_heads": heads}
    known |= {"norm_eps": eps} if "layer_norm_eps" in values else {}
    tensors = rename_to_timm(tensors)
    names = vit_names(tensors, known)
    if not names:
        raise ValueError(
            f"{folder} is a model folder of {values.get('model_type')!r}, whose weights are none "
            "of the vision transformers known here: load it in Python"
        )
    specs = [architecture_specs(name)[0] for name in names]
    size = values.get("image_size")
    if type(size) is int and 8 <= size < MAX_STATED:  # where no position embeddings show it
        specs = [
            architecture_spec(each.architecture, adapted_config(each.config, 3, size, None))
            for each in specs
        ]
    best = best_match(weights, tensors, specs)
    stated = stated_normalization(folder)
    mean, std = stated or (best.config.mean, best.config.std)
    if len(mean) == best.config.channels:
        config = replace(best.config, mean=mean, std=std, guessed=stated is None)
        best = replace(best, config=config)
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
    inputs = _inputs(folder, values)
    variants = [
        variant for variant, arguments in VARIANTS.items() if arguments["model_name"] == name
    ]
    configs = [encoder_config(model, inputs, stem="native") for model in (name, *variants)]
    for model in (name, *variants):
        with suppress(ValueError):  # not every family has a small stem
            configs.append(encoder_config(model, inputs, stem="small"))
    return configs


def _inputs(folder: Path, values: Mapping[str, Any]) -> InputSpec:
    """Return the record of preprocessing, or as much of it as timm or transformers state."""
    if RECORD in values:
        try:
            return read_inputs(values[RECORD])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{folder / CONFIG} has no record of preprocessing of this version ({error}): "
                "export the model again"
            ) from None
    cfg = values.get("pretrained_cfg", values)
    size = cfg.get("input_size") if isinstance(cfg, dict) else None
    stated = stated_normalization(folder)
    if not (are_numbers(size) and len(size) == 3 and stated):
        raise ValueError(
            f"{folder / CONFIG} lacks input_size [C, H, W], mean and std in its "
            "pretrained_cfg: add them, as timm writes them"
        )
    channels, height, width = map(int, size)
    mean, std = (per_channel(numbers, channels) for numbers in stated)
    return InputSpec(channels=channels, image_size=(height, width), mean=mean, std=std)
