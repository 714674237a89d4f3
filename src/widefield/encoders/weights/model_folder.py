"""Folders of models, `config.json` and weights: those of timm and transformers, and our own.

Networks that timm cannot build from arguments are a model of timm once it is registered.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from PIL import Image
from safetensors.torch import save_file
from torch import nn

from widefield.core.files import write_atomically
from widefield.core.form import Form, InputSpec
from widefield.core.types import Fit, as_size
from widefield.encoders.arguments import (
    AFTER_BUILD,
    TIMM_ACTIVATIONS,
    explicit_arguments,
    split_arguments,
)
from widefield.encoders.config import (
    VARIANTS,
    WITH_ARGUMENTS,
    EncoderConfig,
    encoder_config,
    in_timm,
    timm_module,
)
from widefield.encoders.encoder import Encoder, build_from_config
from widefield.encoders.names import is_custom
from widefield.encoders.readout import Readout, save_readout
from widefield.encoders.weights.adapt import adapted_config
from widefield.encoders.weights.files import READOUT_FILE, read_config, read_inputs
from widefield.encoders.weights.key_maps import rename_to_timm
from widefield.encoders.weights.match import (
    WeightMatch,
    architecture_spec,
    architecture_specs,
    best_match,
    load_matched,
)
from widefield.encoders.weights.normalization import (
    MAX_VALUE,
    are_numbers,
    per_channel,
    read_json,
    recorded_normalization,
)
from widefield.encoders.weights.tensors import read_tensors
from widefield.encoders.weights.vit_names import inferred_arguments, vit_names, with_arguments

CONFIG = "config.json"
RECORD = "widefield"
"""Entry of the configuration with the record of preprocessing."""
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_UNSUPPORTED = {
    "global_pool": ("max", "avgmax", "catavgmax"),
    "output_stride": (8, 16),
    "pool_include_prefix": (True,),
}
"""Arguments of timm that no encoder has, and that show in no tensor."""
_HIDDEN = (
    *("act_layer", "norm_layer", "norm_eps", "bn_eps", "pad_type", "always_partition"),
    *("ref_feat_shape", "rope_temperature", "rope_grid_offset", "rope_rotate_half"),
    *("use_rot_pos_emb", "use_post_norm", "pretrained_window_sizes"),
)
"""Arguments that show in no tensor, whatever their value."""


def is_model_folder(path: Path) -> bool:
    """Return whether `path` has a configuration and weights in the format of the hub."""
    return (path / CONFIG).is_file() and any((path / name).is_file() for name in _WEIGHTS)


def states_network(file: Path) -> bool:
    """Return whether the folder of a file of weights has the configuration of a known network."""
    if file.name not in _WEIGHTS or not (file.is_file() and is_model_folder(file.parent)):
        return False
    try:
        values = read_json(file.parent / CONFIG)
    except (OSError, ValueError):
        return False
    name, kind = str(values.get("architecture")), str(values.get("model_type"))
    has_heads = "num_attention_heads" in values and not kind.startswith("clip")
    return has_heads or name == TIMM_NAME or in_timm(name)


def is_exported(folder: Path) -> bool:
    """Return whether the model folder has a whole record of preprocessing."""
    return RECORD in read_json(folder / CONFIG)


def load_model_folder(folder: Path) -> tuple[Encoder, WeightMatch]:
    """Load the encoder of a model folder, on the CPU in evaluation mode.

    Architecture, size, channels, mean and deviation are those of timm's `config.json`; the stem
    follows from the weights. That of transformers has the heads and layers of a vision transformer;
    the rest follows from the weights. Nothing of the folder is executed.
    """
    values = read_json(folder / CONFIG)
    weights = next(folder / name for name in _WEIGHTS if (folder / name).is_file())
    name = values.get("architecture")
    if name is None and "num_attention_heads" in values:
        return _load_transformers(folder, weights, values)
    if name == TIMM_NAME:
        return _load_entry(folder, weights, values)
    if not isinstance(name, str):
        raise ValueError(
            f"{folder} is a model folder of {values.get('model_type', 'another library')!r}, and "
            "only timm's and vision transformers of transformers are supported: load it "
            "in Python, or give its weights as FILE@TIMM_NAME, TIMM_NAME being a timm model"
        )
    return _best_of(weights, _configs(folder, name, values))


def _best_of(weights: Path, configs: Sequence[EncoderConfig]) -> tuple[Encoder, WeightMatch]:
    tensors = read_tensors(weights)
    best = best_match(weights, tensors, [architecture_spec(c.name, c) for c in configs])
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
    return _best_of(weights, [config])


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
    # A value that is not in the file is the usual one.
    act, gated = values.get("hidden_act", "gelu"), values.get("use_gated_mlp")
    for key, value, allowed in (
        ("hidden_act", act, ("silu",) if gated else TIMM_ACTIVATIONS),
        ("rope_theta", period, (100.0,)),
    ):
        if value not in allowed:
            raise ValueError(
                f"{folder / CONFIG} has {key} {value!r}, which no encoder here has: load the "
                "model in Python"
            )
    tensors = read_tensors(weights)
    known = inferred_arguments(tensors) | {"depth": depth, "num_heads": heads}
    known |= {"act_layer": act}
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
    if type(size) is int and 8 <= size < MAX_VALUE:  # where no position embeddings show it
        form = Form(channels=3, size=(size, size))
        specs = [
            architecture_spec(each.architecture, adapted_config(each.config, form))
            for each in specs
        ]
    best = best_match(weights, tensors, specs)
    recorded = recorded_normalization(folder)
    default = (best.config.mean, best.config.std)
    best = best.normalized(recorded or default, guessed=recorded is None)
    return load_matched(tensors, best), best


def _configs(folder: Path, name: str, values: Mapping[str, Any]) -> list[EncoderConfig]:
    inputs = _inputs(folder, values)
    arguments = values.get("model_args")
    has_arguments = in_timm(name) and timm_module(name) in WITH_ARGUMENTS
    explicit = explicit_arguments(arguments) if has_arguments else {}
    for key, value in arguments.items() if isinstance(arguments, dict) else ():
        is_hidden = key in _HIDDEN and key not in explicit and value is not None
        if is_hidden or value in _UNSUPPORTED.get(key, ()):
            raise ValueError(
                f"{folder / CONFIG} has {key} {value!r}, which no encoder here has: load the "
                "model in Python"
            )
    whole = with_arguments(name, explicit)
    explicit.pop("patch_size", None)  # which may be that of the small stem
    plain = with_arguments(name, explicit)
    models = [plain, *(v for v, options in VARIANTS.items() if options["model_name"] == name)]
    configs = [encoder_config(model, inputs, stem="native") for model in models]
    for model in models:
        with suppress(ValueError):  # not every family has a small stem
            configs.append(encoder_config(model, inputs, stem="small"))
    return configs if whole == plain else [*configs, encoder_config(whole, inputs, stem="native")]


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
    recorded = recorded_normalization(folder)
    if not (are_numbers(size) and len(size) == 3 and recorded):
        raise ValueError(
            f"{folder / CONFIG} lacks input_size [C, H, W], mean and std in its "
            "pretrained_cfg: add them, as timm writes them"
        )
    channels, height, width = map(int, size)
    mean, std = (per_channel(numbers, channels) for numbers in recorded)
    return InputSpec(channels=channels, image_size=(height, width), mean=mean, std=std)


MODEL_FILES = (CONFIG, "model.safetensors", "README.md", "preprocessor_config.json", READOUT_FILE)
"""Files of the folder; the last two are there if transformers can do the same preprocessing, and if
the encoder has a wide readout."""


def check_timm_support(config: EncoderConfig) -> None:
    """Check that timm can build an encoder, with `register_with_timm` or without."""
    if config.front_end is not None:
        raise ValueError(
            f"timm has no spectrograms of sounds, which {config.name} needs: export to a "
            ".safetensors or .onnx file"
        )
    if is_custom(config.name):
        raise ValueError(
            f"timm cannot build {config.name}, a network of yours: export to a .onnx or "
            ".safetensors file"
        )


def save_model_folder(
    encoder: Encoder, folder: Path, *, card: str, readout: Readout | None = None
) -> None:
    """Write `config.json`, `model.safetensors`, the model card `README.md` and the readout.

    `timm.create_model("local-dir:FOLDER", pretrained=True)` then gives the same features for images
    that `timm.data.create_transform` prepares as `timm.data.resolve_model_data_config` says; where
    `needs_entry`, once `register_with_timm` was called. The
    record of preprocessing is in `config.json`, and for squares of three channels in
    `preprocessor_config.json`, whose cut may differ by one pixel.
    """
    check_timm_support(encoder.config)
    weights = {key: value.contiguous() for key, value in encoder.backbone.state_dict().items()}
    text = json.dumps(timm_config(encoder), indent=2) + "\n"
    config, model, readme, preprocessor, readout_file = (folder / name for name in MODEL_FILES)
    # Those of another encoder must not stay beside this one, even after a kill.
    readout_file.unlink(missing_ok=True)
    preprocessor.unlink(missing_ok=True)
    write_atomically(config, lambda tmp: tmp.write_text(text, "utf-8"))
    write_atomically(readme, lambda tmp: tmp.write_text(card, "utf-8"))
    write_atomically(model, lambda tmp: save_file(weights, tmp, metadata={"format": "pt"}))
    processor = preprocessor_config(encoder.config)
    if processor is not None:
        content = json.dumps(processor, indent=2) + "\n"
        write_atomically(preprocessor, lambda tmp: tmp.write_text(content, "utf-8"))
    if readout is not None:
        save_readout(readout, folder)


def timm_config(encoder: Encoder) -> dict[str, Any]:
    """Return the content of `config.json`, as timm reads it."""
    config = encoder.config
    if needs_entry(config):
        name, known = TIMM_NAME, dict[str, Any]()
        arguments = {"encoder": json.loads(json.dumps(asdict(config))), "num_classes": 0}
    else:
        assert config.timm is not None
        name = config.timm["model_name"]
        arguments = {k: v for k, v in config.timm.items() if k not in ("model_name", "pretrained")}
        known = cast(dict[str, Any], encoder.backbone.pretrained_cfg)
    return {
        "architecture": name,
        "num_classes": 0,
        "num_features": encoder.dim,
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": [config.channels, *config.image_size],
            "fixed_input_size": encoder.size_is_fixed,
            "mean": list(config.mean),
            "std": list(config.std),
            "interpolation": config.interpolation,
            "crop_pct": 1.0,
            "crop_mode": _CROP_MODES[config.fit],
            "pool_size": None,
            "num_classes": 0,
            "first_conv": known.get("first_conv"),
            "classifier": known.get("classifier"),
        },
        RECORD: config.record(),
    }


_CROP_MODES: dict[Fit, str] = {"crop": "center", "pad": "border", "squash": "squash"}
"""timm's names; it pads with the mean."""


def preprocessor_config(inputs: InputSpec) -> dict[str, Any] | None:
    """Return transformers' `preprocessor_config.json`; None if it cannot express the record."""
    height, width = as_size(inputs.image_size)
    if height != width or inputs.channels != 3 or inputs.fit != "crop":
        return None
    assert inputs.mean is not None
    assert inputs.std is not None
    return {
        "image_processor_type": "CLIPImageProcessor",
        "do_convert_rgb": True,
        "do_resize": True,
        "size": {"shortest_edge": height},
        "resample": Image.Resampling.BICUBIC.value,
        "do_center_crop": True,
        "crop_size": {"height": height, "width": width},
        "do_rescale": True,
        "rescale_factor": 1 / 255,
        "do_normalize": True,
        "image_mean": list(inputs.mean),
        "image_std": list(inputs.std),
    }


TIMM_NAME = "widefield_encoder"
"""Name of the model; its argument `encoder` is an `EncoderConfig` in JSON."""


def register_with_timm() -> None:
    """Add `widefield_encoder` to the models of timm, for folders that `export` wrote.

    timm has no arguments for the small stem of ResNets and for the networks of this library.
    `timm.create_model("local-dir:FOLDER", pretrained=True)` builds them once this was called.

    Example:
        >>> import timm
        >>> register_with_timm()
        >>> timm.is_model("widefield_encoder")
        True
    """
    from timm.models import register_model

    if not in_timm(TIMM_NAME):
        register_model(widefield_encoder)


def widefield_encoder(pretrained: bool = False, **arguments: Any) -> nn.Module:
    """Return the network of an encoder, as timm calls it; nothing in `encoder` is executed."""
    from timm.models import build_model_with_cfg

    return build_model_with_cfg(_network, TIMM_NAME, pretrained, **arguments)


def _network(encoder: dict[str, Any], num_classes: int = 0, **_: Any) -> nn.Module:
    if num_classes:
        raise ValueError(f"{TIMM_NAME} has no classifier: give num_classes=0, and add a layer")
    return build_from_config(read_config(json.dumps(encoder))).backbone


def needs_entry(config: EncoderConfig) -> bool:
    """Return whether timm cannot build the network of an encoder from its own arguments."""
    custom = is_custom(config.name)
    missing = not custom and any(key in AFTER_BUILD for key in split_arguments(config.name)[1])
    return config.timm is None or config.conv1 is not None or missing
