"""Encoders as files: safetensors with timm's keys, the configuration in JSON; ONNX."""

import copy
import dataclasses
import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from widefield.core.files import check_plain_file, write_atomically
from widefield.core.rng import seeded
from widefield.core.types import InputSpec
from widefield.encoders.conv1d import SIGNAL_NETWORKS
from widefield.encoders.encoder import (
    SOLO_LEARN_PADDING,
    Encoder,
    EncoderConfig,
    assemble,
    encoder_config,
)

_WEIGHTS = "encoder.safetensors"
"""Name of the file of weights in a folder."""


def save_encoder(encoder: Encoder, folder: str | Path) -> None:
    """Write `encoder.safetensors` and `encoder.json` into `folder`, each whole or not at all.

    The weights have timm's keys. Both files hold the configuration: the safetensors file alone is
    enough for `load_encoder`, and the JSON is for people and for plain timm (`timm_snippet`).
    """
    save_encoder_file(encoder, Path(folder) / _WEIGHTS)


def save_encoder_file(encoder: Encoder, file: Path) -> None:
    """Write the weights to `file`, and the configuration to a file with the suffix `.json`."""
    settings = _config_text(encoder.config)
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
    file = file / _WEIGHTS if file.is_dir() else file
    if not file.is_file():
        raise ValueError(f"no encoder at {path}: give a folder with {_WEIGHTS}, or such a file")
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
        return _rebuilt(read_config(settings), weights)
    except (ValueError, TypeError, KeyError, RuntimeError, AssertionError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(
            f"{file} holds no encoder of this version of widefield and timm "
            f"({reason}): train or export it again"
        ) from error


def _rebuilt(config: EncoderConfig, weights: dict[str, Tensor]) -> Encoder:
    """Return the encoder of `config` with `weights`.

    Raises:
        ValueError: they are not the encoder's.
    """
    with torch.device("meta"):  # takes no memory, whatever sizes the file names
        wanted = assemble(config).backbone.state_dict()
    refuse_other_weights(wanted, weights)
    with seeded(0):  # `assemble` draws weights, which those of the file then replace
        encoder = assemble(config)
    encoder.backbone.load_state_dict(weights)
    return encoder


def refuse_other_weights(wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Refuse weights that are not those of a network, or no numbers.

    Raises:
        ValueError: a tensor is missing, unknown, of another shape, or has a NaN or an infinity.
    """
    for key in wanted.keys() | weights.keys():
        if key not in wanted or key not in weights:
            raise ValueError(f"tensor {key!r} is {'missing' if key in wanted else 'unknown'}")
        shape, expected = tuple(weights[key].shape), tuple(wanted[key].shape)
        if shape != expected:
            raise ValueError(f"tensor {key!r} has shape {shape}, not {expected}")
    broken = no_numbers(weights)
    if broken is not None:
        raise ValueError(f"tensor {broken!r} holds NaN or infinity")


def no_numbers(weights: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor with a NaN or an infinity; None if there is none.

    Example:
        >>> no_numbers({"a": torch.ones(2), "b": torch.tensor([1.0, float("nan")])})
        'b'
    """
    for key, value in weights.items():
        if value.is_floating_point() and not bool(torch.isfinite(value.float()).all()):
            return key
    return None


def has_settings(path: str | Path) -> bool:
    """Return whether `save_encoder` wrote `path`, so that it says how to rebuild its encoder."""
    file = Path(path)
    file = file / _WEIGHTS if file.is_dir() else file
    if file.suffix != ".safetensors" or not file.is_file():
        return False
    try:
        with safe_open(file, framework="pt") as opened:
            return "widefield" in (opened.metadata() or {})
    except SafetensorError:
        return False


def is_config(path: Path) -> bool:
    """Return whether `path` is a file beside an encoder, which `save_encoder` may replace."""
    try:
        check_plain_file(path, largest=2**20)
        read_config(path.read_text("utf-8"))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return False
    return True


def read_config(text: str) -> EncoderConfig:
    """Return the configuration in the text of an `encoder.json`.

    The file decides on nothing but what `encoder_config` is asked for: what it says of timm's
    arguments has to be what that call makes of them. So no file chooses what is fetched or run.

    Raises:
        ValueError: it is another one.
    """
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.keys() != EncoderConfig.__dataclass_fields__.keys():
        raise ValueError("its configuration has other fields")
    sides = fields["image_size"]
    if not isinstance(sides, list) or len(sides) != 2:
        raise ValueError(f"image_size is {sides!r}")
    for name, kind in {"name": str, "stem": str, "channels": int}.items():
        if type(fields[name]) is not kind:
            raise ValueError(f"{name} is {fields[name]!r}")
    for name, counts in {"channels": [fields["channels"]], "image_size": sides}.items():
        if not all(type(count) is int and 0 < count < _LARGEST for count in counts):
            raise ValueError(f"{name} is {fields[name]!r}")
    least, most = 1 / _LARGEST, _LARGEST
    if fields["name"] in SIGNAL_NETWORKS:  # windows keep their units, whatever these are
        least, most = _FLOAT32.tiny, _FLOAT32.max
    max_value = [] if fields["max_value"] is None else [fields["max_value"]]
    for name, low in {"mean": -most, "std": least, "max_value": least}.items():
        numbers = max_value if name == "max_value" else fields[name]
        numbers = numbers if isinstance(numbers, list) else [numbers]
        # Written so that a NaN is refused too.
        if not all(type(x) in (int, float) and low <= x <= most for x in numbers):
            raise ValueError(f"{name} is {fields[name]!r}")
    rate = fields["rate"]
    if not (rate is None or (type(rate) is int and 0 < rate < _LARGEST)):
        raise ValueError(f"rate is {rate!r}")
    arguments = fields["timm"] if isinstance(fields["timm"], dict) else {}
    inputs = InputSpec(
        channels=fields["channels"],
        image_size=(sides[0], sides[1]),
        mean=fields["mean"],
        std=fields["std"],
        max_value=fields["max_value"],
        rate=rate,
    )
    config = encoder_config(
        fields["name"],
        inputs,
        stem=fields["stem"],
        zero_init_last=arguments.get("zero_init_last", True) is not False,
    )
    solo_learn = {**(config.conv1 or {}), "padding": SOLO_LEARN_PADDING}
    if config.conv1 is not None and fields["conv1"] == solo_learn:
        config = dataclasses.replace(config, conv1=solo_learn)
    if json.loads(_config_text(config)) != fields:
        raise ValueError(f"its arguments for timm are not those of {config.name}")
    return config


_LARGEST = 1e6
"""Size, channels and mean at most, and how far a deviation may be from 1 either way; mean and
deviation of images alone."""
_FLOAT32 = torch.finfo(torch.float32)
"""What mean and deviation of windows are computed in."""


def _config_text(config: EncoderConfig) -> str:
    return json.dumps(dataclasses.asdict(config), indent=2)


def timm_snippet(config: EncoderConfig, file_stem: str = "encoder") -> str:
    """Return Python lines that load a saved encoder with timm alone, without this library.

    A network that timm lacks is loaded by `load_encoder`.

    Args:
        config: configuration of the encoder.
        file_stem: path of the two files that the lines read, without `.json` and `.safetensors`.

    Returns:
        Lines that leave `model` in evaluation mode; it expects normalized images.

    Example:
        >>> from widefield.encoders import encoder_config
        >>> print(timm_snippet(encoder_config("mobilenetv3_small_050")))
        import json, pathlib, safetensors.torch, timm, torch
        config = json.loads(pathlib.Path("encoder.json").read_text())
        model = timm.create_model(**config["timm"]).eval()
        model.load_state_dict(safetensors.torch.load_file("encoder.safetensors"))
        # Normalize images in [0, 1] first, channel by channel: (x - config["mean"]) / config["std"]
    """
    weights, settings = (json.dumps(file_stem + end) for end in (".safetensors", ".json"))
    if config.timm is None:
        return (
            "from widefield.encoders import load_encoder\n"
            f"model = load_encoder({weights}).eval()\n"
            "# It takes images in [0, 1] and normalizes them itself."
        )
    lines = [
        "import json, pathlib, safetensors.torch, timm, torch",
        f"config = json.loads(pathlib.Path({settings}).read_text())",
        'model = timm.create_model(**config["timm"]).eval()',
        'model.conv1, model.maxpool = torch.nn.Conv2d(**config["conv1"]), torch.nn.Identity()',
        f"model.load_state_dict(safetensors.torch.load_file({weights}))",
        "# Normalize images in [0, 1] first, channel by channel: "
        '(x - config["mean"]) / config["std"]',
    ]
    if config.conv1 is None:
        del lines[3]
    return "\n".join(lines)


def export_onnx(encoder: Encoder, path: str | Path) -> None:
    """Write an ONNX model: `images` [B, C, H, W] in [0, 1] -> `features` [B, D], for any B.

    Normalization is part of the model. The size of the images is that of `encoder.config`.

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
