"""Encoders as files: safetensors with timm's keys, the configuration in JSON; ONNX."""

import copy
import dataclasses
import importlib.util
import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from widefield.core.files import write_atomically
from widefield.core.rng import seeded
from widefield.encoders.encoder import Encoder, EncoderConfig, assemble

WEIGHTS = "encoder.safetensors"
"""Name of the file of weights in a folder."""


def save_encoder(encoder: Encoder, folder: str | Path) -> None:
    """Write `encoder.safetensors` and `encoder.json` into `folder`, each whole or not at all.

    The weights have timm's keys. Both files hold the configuration: the safetensors file alone is
    enough for `load_encoder`, and the JSON is for people and for plain timm (`timm_snippet`).
    """
    save_encoder_file(encoder, Path(folder) / WEIGHTS)


def save_encoder_file(encoder: Encoder, file: Path) -> None:
    """Write the weights to `file`, and the configuration to a file with the suffix `.json`."""
    settings = json.dumps(dataclasses.asdict(encoder.config), indent=2)
    weights = {key: value.contiguous() for key, value in encoder.backbone.state_dict().items()}
    write_atomically(
        file.with_suffix(".json"), lambda draft: draft.write_text(settings + "\n", "utf-8")
    )
    write_atomically(
        file, lambda draft: save_file(weights, draft, metadata={"widefield": settings})
    )


def load_encoder(path: str | Path) -> Encoder:
    """Load the encoder that `save_encoder` wrote, on the CPU.

    Args:
        path: the encoder's folder or safetensors file.

    Raises:
        ValueError: there is no such file, it is damaged, or another program wrote it.
    """
    file = Path(path)
    file = file / WEIGHTS if file.is_dir() else file
    if not file.is_file():
        raise ValueError(f"no encoder at {path}: give a folder with {WEIGHTS}, or such a file")
    try:
        with safe_open(file, framework="pt") as opened:
            settings = (opened.metadata() or {}).get("widefield")
            weights = {key: opened.get_tensor(key) for key in opened.keys()}  # noqa: SIM118
    except SafetensorError as error:
        raise ValueError(
            f"{file} is damaged or no safetensors file ({error}): export the encoder again"
        ) from None
    if settings is None:
        raise ValueError(f"{file} is not an encoder of ours: it lacks the settings to rebuild one")
    try:
        with seeded(0):  # `assemble` draws weights, which those of the file then replace
            encoder = assemble(read_config(settings))
        encoder.backbone.load_state_dict(weights)
    except (ValueError, TypeError, KeyError, RuntimeError) as error:
        raise ValueError(
            f"{file} does not fit this version of widefield and timm "
            f"({str(error).splitlines()[0]}): export the encoder again"
        ) from error
    return encoder


def has_settings(path: str | Path) -> bool:
    """Return whether `save_encoder` wrote `path`, so that it says how to rebuild its encoder."""
    file = Path(path)
    file = file / WEIGHTS if file.is_dir() else file
    if file.suffix != ".safetensors" or not file.is_file():
        return False
    try:
        with safe_open(file, framework="pt") as opened:
            return "widefield" in (opened.metadata() or {})
    except SafetensorError:
        return False


def read_config(text: str) -> EncoderConfig:
    """Return the configuration in the text of an `encoder.json`."""
    fields = json.loads(text)
    fields |= {"mean": tuple(fields["mean"]), "std": tuple(fields["std"])}
    return EncoderConfig(**fields)


def timm_snippet(config: EncoderConfig, file_stem: str = "encoder") -> str:
    """Return Python lines that load a saved encoder with timm alone, without this library.

    A network that timm lacks is loaded by `load_encoder`.

    Args:
        config: configuration of the encoder.
        file_stem: name of the two files that the lines read, without `.json` and `.safetensors`.

    Returns:
        Lines that leave `model` in evaluation mode; it expects normalised images.

    Example:
        >>> from widefield.encoders import encoder_config
        >>> print(timm_snippet(encoder_config("mobilenetv3_small_050")))
        import json, pathlib, safetensors.torch, timm, torch
        config = json.loads(pathlib.Path("encoder.json").read_text())
        model = timm.create_model(**config["timm"]).eval()
        model.load_state_dict(safetensors.torch.load_file("encoder.safetensors"))
        # Normalise images in [0, 1] first, channel by channel: (x - config["mean"]) / config["std"]
    """
    if config.timm is None:
        return (
            "from widefield.encoders import load_encoder\n"
            f'model = load_encoder("{file_stem}.safetensors").eval()\n'
            "# It takes images in [0, 1] and normalises them itself."
        )
    lines = [
        "import json, pathlib, safetensors.torch, timm, torch",
        f'config = json.loads(pathlib.Path("{file_stem}.json").read_text())',
        'model = timm.create_model(**config["timm"]).eval()',
        'model.conv1, model.maxpool = torch.nn.Conv2d(**config["conv1"]), torch.nn.Identity()',
        f'model.load_state_dict(safetensors.torch.load_file("{file_stem}.safetensors"))',
        "# Normalise images in [0, 1] first, channel by channel: "
        '(x - config["mean"]) / config["std"]',
    ]
    if config.conv1 is None:
        del lines[3]
    return "\n".join(lines)


def export_onnx(encoder: Encoder, path: str | Path) -> None:
    """Write an ONNX model: `images` [B, C, H, W] in [0, 1] -> `features` [B, D], for any B.

    Normalisation is part of the model. The size of the images is that of `encoder.config`.

    Raises:
        ValueError: a package that writes ONNX is not installed.
    """
    for package in ("onnx", "onnxscript"):
        if importlib.util.find_spec(package) is None:
            raise ValueError(
                f"writing ONNX needs the package {package}: pip install 'widefield[onnx]'"
            )
    config = encoder.config
    frozen = copy.deepcopy(encoder).cpu().eval()
    # Tracing would take a batch of one for a constant.
    example = torch.zeros(2, config.channels, *config.image_size)
    torch.onnx.export(
        frozen,
        (example,),
        path,
        dynamo=True,
        input_names=["images"],
        output_names=["features"],
        dynamic_shapes={"x": {0: torch.export.Dim("batch")}},
        external_data=False,
        verbose=False,
    )
