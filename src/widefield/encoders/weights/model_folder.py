"""Export of an encoder as a folder for `timm.create_model`, local or on Hugging Face."""

import json
from pathlib import Path
from typing import Any, cast

from safetensors.torch import save_file

from widefield.core.files import write_atomically
from widefield.encoders.arguments import AFTER_BUILD, split_arguments
from widefield.encoders.encoder import Encoder, EncoderConfig
from widefield.encoders.readout import Readout
from widefield.encoders.readout_file import READOUT_FILE, save_readout

MODEL_FILES = ("config.json", "model.safetensors", "README.md", READOUT_FILE)
"""Files of the folder; the last one is there if the encoder has a wide readout."""


def check_timm_support(config: EncoderConfig) -> None:
    """Check that timm can build an encoder from arguments.

    Raises:
        ValueError: it cannot.
    """
    if config.front_end is not None:
        raise ValueError(
            f"timm has no spectrograms of sounds, which {config.name} needs: export to a "
            ".safetensors or .onnx file"
        )
    missing = [key for key in split_arguments(config.name)[1] if key in AFTER_BUILD]
    if missing:
        raise ValueError(
            f"timm has no argument {missing[0]}, which {config.name} needs: export to a "
            ".safetensors or .onnx file"
        )
    if config.timm is None or config.conv1 is not None:
        model = config.name if config.timm is None else f"{config.name} with its small stem"
        raise ValueError(
            f"timm cannot build {model} from a config.json: export to a .safetensors file, or "
            "train a ResNet with --stem native, a ViT or a ConvNeXt"
        )


def save_model_folder(
    encoder: Encoder, folder: Path, *, card: str, readout: Readout | None = None
) -> None:
    """Write `config.json`, `model.safetensors`, the model card `README.md` and the readout.

    `timm.create_model("local-dir:FOLDER", pretrained=True)` then gives the same features for images
    normalized as `timm.data.resolve_model_data_config` says.

    Raises:
        ValueError: timm cannot build this encoder.
    """
    check_timm_support(encoder.config)
    weights = {key: value.contiguous() for key, value in encoder.backbone.state_dict().items()}
    text = json.dumps(timm_config(encoder), indent=2) + "\n"
    config, model, readme, readout_file = (folder / name for name in MODEL_FILES)
    # That of another encoder must not stay beside this one, even after a kill.
    readout_file.unlink(missing_ok=True)
    write_atomically(config, lambda tmp: tmp.write_text(text, "utf-8"))
    write_atomically(readme, lambda tmp: tmp.write_text(card, "utf-8"))
    write_atomically(model, lambda tmp: save_file(weights, tmp, metadata={"format": "pt"}))
    if readout is not None:
        save_readout(readout, folder)


def timm_config(encoder: Encoder) -> dict[str, Any]:
    """Return the content of `config.json`, as timm reads it."""
    config = encoder.config
    assert config.timm is not None, "check_timm_support refuses it"
    arguments = {k: v for k, v in config.timm.items() if k not in ("model_name", "pretrained")}
    known = cast(dict[str, Any], encoder.backbone.pretrained_cfg)
    return {
        "architecture": config.timm["model_name"],
        "num_classes": 0,
        "num_features": encoder.dim,
        "model_args": arguments,
        "pretrained_cfg": {
            "input_size": [config.channels, *config.image_size],
            "fixed_input_size": "img_size" in arguments,
            "mean": list(config.mean),
            "std": list(config.std),
            "interpolation": "bilinear",
            "crop_pct": 1.0,
            "crop_mode": "squash",
            "pool_size": None,
            "num_classes": 0,
            "first_conv": known.get("first_conv"),
            "classifier": known.get("classifier"),
        },
    }
