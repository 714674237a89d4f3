"""Export of an encoder as a folder for `timm.create_model`, local or on Hugging Face."""

import json
from pathlib import Path
from typing import Any, cast

from PIL import Image
from safetensors.torch import save_file

from widefield.core.files import write_atomically
from widefield.core.types import Fit, InputSpec, as_size
from widefield.encoders.encoder import Encoder, EncoderConfig
from widefield.encoders.names import is_own
from widefield.encoders.readout import Readout
from widefield.encoders.readout_file import save_readout
from widefield.encoders.weights.files import READOUT_FILE
from widefield.encoders.weights.hub_folder import CONFIG, RECORD
from widefield.encoders.weights.timm_entry import NAME, entry_arguments, needs_entry

MODEL_FILES = (
    CONFIG,
    "model.safetensors",
    "README.md",
    "preprocessor_config.json",
    READOUT_FILE,
)
"""Files of the folder; the last two are there if transformers can do the same preprocessing, and if
the encoder has a wide readout."""


def check_timm_support(config: EncoderConfig) -> None:
    """Check that timm can build an encoder, with `register_with_timm` or without.

    Raises:
        ValueError: it cannot.
    """
    if config.front_end is not None:
        raise ValueError(
            f"timm has no spectrograms of sounds, which {config.name} needs: export to a "
            ".safetensors or .onnx file"
        )
    if is_own(config.name):
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

    Raises:
        ValueError: timm cannot build this encoder.
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
        name, arguments, known = NAME, entry_arguments(config), dict[str, Any]()
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
    """Return the content of transformers' `preprocessor_config.json`; None if it cannot express it.

    It has the cut at the center, for squares only, and converts to three channels.
    """
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
