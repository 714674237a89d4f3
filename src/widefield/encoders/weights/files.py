"""Files of encoders: safetensors with timm's keys, and configuration in JSON."""

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import torch
from annotated_types import Interval
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from widefield.core.devices import on_meta
from widefield.core.files import check_plain_file, write_atomically
from widefield.core.form import InputSpec
from widefield.core.rng import seeded
from widefield.core.types import Fit, as_black_white, is_black_white
from widefield.core.validation import is_valid
from widefield.encoders.arguments import lines_after_build, split_arguments
from widefield.encoders.config import SOLO_LEARN_PADDING, EncoderConfig, encoder_config
from widefield.encoders.conv1d import SIGNAL_NETWORKS
from widefield.encoders.encoder import Encoder, build_from_config
from widefield.encoders.names import is_custom
from widefield.encoders.own import register_network, registered_network

ENCODER_FILE = "encoder.safetensors"
"""Name of the file of weights in a folder."""
READOUT_FILE = "readout.safetensors"
"""Name of the file of the wide readout beside it."""

Module = TypeVar("Module", bound=nn.Module)


def save_encoder(encoder: Encoder, folder: str | Path) -> None:
    """Write `encoder.safetensors` and `encoder.json` into `folder`, each atomically.

    The weights have timm's keys. Both files have the configuration: `load_encoder` needs the
    safetensors file only, and the JSON is for plain timm (`timm_snippet`). The wide readout of
    another encoder is removed: call `save_readout` after it.
    """
    (Path(folder) / READOUT_FILE).unlink(missing_ok=True)  # first, so that a kill leaves none
    save_encoder_file(encoder, Path(folder) / ENCODER_FILE)


def save_encoder_file(encoder: Encoder, file: Path) -> None:
    """Write the weights to `file`, and the configuration to a file with the suffix `.json`."""
    settings = _config_text(encoder.config)
    weights = {key: value.contiguous() for key, value in encoder.backbone.state_dict().items()}
    if is_custom(encoder.config.name):  # tensors of two names, which the format does not have
        weights = {key: value.clone() for key, value in weights.items()}
    write_atomically(
        file.with_suffix(".json"), lambda tmp: tmp.write_text(settings + "\n", "utf-8")
    )
    write_atomically(file, lambda tmp: save_file(weights, tmp, metadata={"widefield": settings}))


def load_encoder(path: str | Path, *, network: str | nn.Module | None = None) -> Encoder:
    """Load the encoder that `save_encoder` wrote, on the CPU.

    Args:
        path: the encoder's folder or safetensors file.
        network: the network that it was trained with, where that is one of your own:
            `FILE.py:FUNCTION`, which is executed, or a module. Its weights are replaced.

    Raises:
        ValueError: there is no such file, it is damaged, another program wrote it, or it is of a
            network of your own that is not given.

    Example:
        >>> import tempfile
        >>> from widefield.encoders import build_encoder
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_encoder(build_encoder("resnet-tiny", seed=0), Path(folder))
        ...     load_encoder(folder).dim
        128
    """
    file = Path(path)
    file = file / ENCODER_FILE if file.is_dir() else file
    if not file.is_file():
        raise ValueError(f"no encoder at {path}: give a folder with {ENCODER_FILE}, or such a file")
    hint = "export the encoder again"
    if network is not None:
        hint = "load weights of another program in your function, by load_state_dict"
    try:
        metadata, weights = _read_file(file)
    except SafetensorError as error:
        raise ValueError(f"{file} is damaged or no safetensors file ({error}): {hint}") from None
    if "widefield" not in metadata:
        raise ValueError(
            f"{file} is not a widefield encoder, as it lacks the settings to rebuild one: {hint}"
        )
    try:
        config = read_config(metadata["widefield"])
    except _READ_ERRORS as error:
        raise _no_encoder(file, error) from error
    if network is not None:
        if not is_custom(config.name):
            raise ValueError(f"{file} is of {config.name}, no network of your own: leave it out")
        register_network(network, recorded=config.name)
    if is_custom(config.name):
        registered_network(config.name)
    try:
        return _build_with_weights(config, weights)
    except _READ_ERRORS as error:
        raise _no_encoder(file, error) from error


_READ_ERRORS = (ValueError, TypeError, KeyError, RuntimeError, AssertionError)
"""What settings and weights of another program or version raise."""


def _read_file(file: Path) -> tuple[dict[str, str], dict[str, Tensor]]:
    with safe_open(file, framework="pt") as handle:
        tensors = {key: handle.get_tensor(key) for key in handle.keys()}  # noqa: SIM118
        return handle.metadata() or {}, tensors


def _no_encoder(file: Path, error: Exception) -> ValueError:
    return ValueError(
        f"{file} holds no encoder of this version of widefield and timm "
        f"({_first_line(error)}): train or export it again"
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def save_module(module: nn.Module, file: Path, entry: str, arguments: Any) -> None:
    """Write weights atomically; `entry` of the metadata has the arguments to build the module."""
    metadata = {entry: json.dumps(arguments)}
    weights = {key: value.contiguous().cpu() for key, value in module.state_dict().items()}
    write_atomically(file, lambda temp_path: save_file(weights, temp_path, metadata=metadata))


def load_saved_module(
    file: Path, entry: str, build: Callable[[Any, Mapping[str, Tensor]], Module]
) -> Module | None:
    """Return the module that `save_module` wrote, on the CPU, in evaluation mode; None without one.

    `build` makes it from its arguments and the shapes of its weights.
    """
    if not file.is_file():
        return None
    try:
        metadata, weights = _read_file(file)
        arguments = json.loads(metadata[entry])
        with on_meta():  # takes no memory, whatever the sizes in the file
            check_weights(build(arguments, weights).state_dict(), weights)
        module = build(arguments, weights)
        module.load_state_dict(weights)
    except (SafetensorError, *_READ_ERRORS) as error:
        raise ValueError(
            f"{file} cannot be read ({_first_line(error)}): take pooled features instead"
        ) from error
    return module.eval()


def _build_with_weights(config: EncoderConfig, weights: dict[str, Tensor]) -> Encoder:
    with on_meta():  # takes no memory, whatever the sizes in the file
        wanted = build_from_config(config).backbone.state_dict()
    check_weights(wanted, weights)
    with seeded(0):  # its random weights are replaced below
        encoder = build_from_config(config)
    encoder.backbone.load_state_dict(weights)
    return encoder


def check_weights(wanted: Mapping[str, Tensor], weights: Mapping[str, Tensor]) -> None:
    """Check that `weights` have the names and shapes of `wanted`, and are finite."""
    for key in wanted.keys() | weights.keys():
        if key not in wanted or key not in weights:
            raise ValueError(f"tensor {key!r} is {'missing' if key in wanted else 'unknown'}")
        shape, expected = tuple(weights[key].shape), tuple(wanted[key].shape)
        if shape != expected:
            raise ValueError(f"tensor {key!r} has shape {shape}, not {expected}")
    tensor_name = first_invalid(weights)
    if tensor_name is not None:
        raise ValueError(f"tensor {tensor_name!r} holds NaN or infinity")


def first_invalid(weights: Mapping[str, Tensor]) -> str | None:
    """Return the name of the first tensor with NaN or infinity; None if there is none."""
    for key, value in weights.items():
        if value.is_floating_point() and not bool(torch.isfinite(value.float()).all()):
            return key
    return None


def has_settings(path: str | Path) -> bool:
    """Return whether `save_encoder` wrote `path`."""
    file = Path(path)
    file = file / ENCODER_FILE if file.is_dir() else file
    if file.suffix != ".safetensors" or not file.is_file():
        return False
    try:
        with safe_open(file, framework="pt") as file_handle:
            return "widefield" in (file_handle.metadata() or {})
    except SafetensorError:
        return False


def is_config(path: Path) -> bool:
    """Return whether `path` is a configuration of `save_encoder`, which may be replaced."""
    try:
        check_plain_file(path, largest=2**20)
        read_config(path.read_text("utf-8"))
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return False
    return True


def read_config(text: str) -> EncoderConfig:
    """Return the configuration in the text of an `encoder.json`.

    The arguments of timm in the file have to be those that `encoder_config` returns for its other
    fields, so that a file cannot select what is downloaded or executed.
    """
    fields = json.loads(text)
    if not isinstance(fields, dict) or fields.keys() != EncoderConfig.__dataclass_fields__.keys():
        raise ValueError("its configuration has other fields")
    for name in ("name", "stem"):
        if type(fields[name]) is not str:
            raise ValueError(f"{name} is {fields[name]!r}")
    custom = is_custom(fields["name"])
    inputs = read_inputs(fields, signals=custom or fields["name"] in SIGNAL_NETWORKS)
    arguments = fields["timm"] if isinstance(fields["timm"], dict) else {}
    config = encoder_config(
        fields["name"],
        inputs,
        stem=fields["stem"],
        zero_init_last=arguments.get("zero_init_last", True) is not False,
    )
    solo_learn = {**(config.conv1 or {}), "padding": SOLO_LEARN_PADDING}
    if config.conv1 is not None and fields["conv1"] == solo_learn:
        config = dataclasses.replace(config, conv1=solo_learn)
    if custom and (fields["digest"] is None or _DIGEST.fullmatch(str(fields["digest"]))):
        config = dataclasses.replace(config, digest=fields["digest"])
    if json.loads(_config_text(config)) != fields:
        raise ValueError(f"its arguments for timm are not those of {config.name}")
    return config


def read_inputs(fields: Mapping[str, Any], *, signals: bool = False) -> InputSpec:
    """Return the record of preprocessing in a file; that of `signals` keeps their units."""
    values: dict[str, Any] = {k: tuple(x) if isinstance(x, list) else x for k, x in fields.items()}
    for name, hint in (_FIELDS | (_OF_SIGNALS if signals else {})).items():
        if not is_valid(hint, values[name]):
            raise ValueError(f"{name} is {values[name]!r}")
    black_white = values["black_white"]
    if black_white is not None and not is_black_white(black_white):
        raise ValueError(f"black_white is {black_white!r}")
    others = {name: values[name] for name in _FIELDS}
    return InputSpec(black_white=as_black_white(black_white), **others)


_Count = Annotated[int, Interval(gt=0, lt=1e6)]
_FLOAT32 = torch.finfo(torch.float32)
_FIELDS: dict[str, Any] = {
    "channels": _Count,
    "image_size": tuple[_Count, _Count],
    "mean": tuple[Annotated[float, Interval(ge=-1e6, le=1e6)], ...],
    "std": tuple[Annotated[float, Interval(ge=1e-6, le=1e6)], ...],
    "rate": Annotated[int | None, Interval(gt=0, lt=1e6)],
    "interpolation": Literal["bicubic"],
    "fit": Fit,
    "guessed": bool,
}
"""Types of the fields of `InputSpec` in a file, with limits that no images exceed."""
_OF_SIGNALS: dict[str, Any] = {
    "mean": tuple[Annotated[float, Interval(ge=-_FLOAT32.max, le=_FLOAT32.max)], ...],
    "std": tuple[Annotated[float, Interval(ge=_FLOAT32.tiny, le=_FLOAT32.max)], ...],
}
"""Those of windows, whose units may be any."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


def _config_text(config: EncoderConfig) -> str:
    return json.dumps(dataclasses.asdict(config), indent=2)


def timm_snippet(config: EncoderConfig, file_stem: str = "encoder") -> str:
    """Return Python lines that load a saved encoder with timm alone, without this library.

    A network that timm lacks is loaded by `load_encoder`.
    """
    weights, settings = (json.dumps(file_stem + end) for end in (".safetensors", ".json"))
    if config.timm is None:
        network = f", network={json.dumps(config.name)}" if is_custom(config.name) else ""
        return (
            "from widefield.encoders import load_encoder\n"
            f"model = load_encoder({weights}{network}).eval()\n"
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
    lines[3:3] = lines_after_build(split_arguments(config.name)[1])
    return "\n".join(lines)
