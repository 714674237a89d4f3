"""Mean and deviation that weights of others expect: stated beside them, or guessed.

Few files of weights state how their images were normalized. Folders of models do, in the files of
timm, transformers or open_clip. Otherwise it is guessed from the layout of the file, and the guess
is reported.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeGuard

from torch import Tensor, nn

from widefield.core.files import check_plain_file
from widefield.encoders.layers import first_weight
from widefield.encoders.vision import IMAGENET

Normalization = tuple[tuple[float, ...], tuple[float, ...]]
"""Mean and standard deviation of each channel of images in [0, 1]."""

HALF: Normalization = ((0.5,) * 3, (0.5,) * 3)

NORMALIZATIONS: dict[str, Normalization] = {
    "imagenet": IMAGENET,
    "half": HALF,
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "none": ((0.0,) * 3, (1.0,) * 3),
    "cifar10": ((0.4914, 0.4822, 0.4465), (0.247, 0.243, 0.261)),
    "cifar100": ((0.5071, 0.4865, 0.4409), (0.2673, 0.2564, 0.2762)),
}
"""Usual normalizations, by name; those of CIFAR are solo-learn's."""

MAX_VALUE = 1e5
"""Largest size, mean and deviation in a file."""

_MODEL_FILES = (
    "model.safetensors",
    "pytorch_model.bin",
    "open_clip_model.safetensors",
    "open_clip_pytorch_model.bin",
)
"""Names of files of weights in a folder of a model; other files may only be neighbors."""
_MAX_BYTES = 2**20


def recorded_normalization(path: Path) -> Normalization | None:
    """Return the normalization that the folder of a model states; None if it states none.

    It is that of timm's `pretrained_cfg` in `config.json`, of `open_clip_config.json`, or of
    transformers' `preprocessor_config.json`.
    """
    if path.is_file() and path.name not in _MODEL_FILES:
        return None
    folder = path if path.is_dir() else path.parent
    config = _object(folder / "config.json")
    return (
        _pair(config.get("pretrained_cfg", config), "mean", "std")
        or _pair(_object(folder / "open_clip_config.json").get("preprocess_cfg"), "mean", "std")
        or _of_transformers(_object(folder / "preprocessor_config.json"))
    )


def states_quick_gelu(path: Path) -> bool:
    """Return whether the folder of a file states CLIP's first activation, x sigmoid(1.702 x)."""
    if path.name not in _MODEL_FILES:
        return False
    config, clip = (
        _object(path.parent / name) for name in ("config.json", "open_clip_config.json")
    )
    vision, model = config.get("vision_config", config), clip.get("model_cfg")
    default = "quick_gelu" if config.get("model_type") in ("clip", "clip_vision_model") else None
    of_transformers = isinstance(vision, dict) and vision.get("hidden_act", default) == "quick_gelu"
    return of_transformers or (isinstance(model, dict) and model.get("quick_gelu") is True)


def _of_transformers(values: Mapping[str, Any]) -> Normalization | None:
    if not values:
        return None
    if values.get("do_normalize", True) is False:
        mean, std = NORMALIZATIONS["none"]
    else:
        found = _pair(values, "image_mean", "image_std")
        if found is None:
            return None
        mean, std = found
    factor = values.get("rescale_factor", 1 / 255) if values.get("do_rescale", True) else 1
    if type(factor) not in (int, float) or not 0 < factor < MAX_VALUE:
        return None
    # Of pixels p = 255 x they take (factor p - mean) / std.
    return tuple(m / (255 * factor) for m in mean), tuple(s / (255 * factor) for s in std)


def _pair(values: object, mean: str, std: str) -> Normalization | None:
    if not isinstance(values, dict):
        return None
    means, stds = values.get(mean), values.get(std)
    if not (are_numbers(means) and are_numbers(stds) and len(means) == len(stds)):
        return None
    return (tuple(means), tuple(stds)) if min(stds, default=0) > 0 else None


def are_numbers(values: object) -> TypeGuard[list[float]]:
    """Return whether `values` are valid numbers of a configuration."""
    return isinstance(values, list | tuple) and all(
        type(value) in (int, float) and abs(value) < MAX_VALUE for value in values
    )


def read_json(path: Path) -> dict[str, Any]:
    check_plain_file(path, largest=_MAX_BYTES)
    try:
        values = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no JSON: restore it, or save the model again") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} describes no model: restore it, or save the model again")
    return values


def _object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one if there is none."""
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}


def guessed_normalization(
    tensors: Mapping[str, Tensor], prefix: str, default: Normalization, *, cifar: bool
) -> Normalization:
    """Guess the normalization of a file of weights by its layout.

    timm's own supervised ViTs take 0.5. Those of DINO, iBOT, MSN, MAE, MoCo v3, DeiT and DINOv2
    have the same tensors, below a prefix or without a classifier, and take ImageNet's.
    """
    classes = next((len(x) for key, x in tensors.items() if key.endswith("classifier.weight")), 0)
    if cifar:
        return NORMALIZATIONS["cifar100" if classes == 100 else "cifar10"]
    supervised = "head.weight" in tensors or "pooler.dense.weight" in tensors or classes > 0
    is_vit = f"{prefix}patch_embed.proj.weight" in tensors
    is_half = {*default[0], *default[1]} == {0.5}  # for any number of channels
    if is_vit and is_half and not (supervised and prefix in ("", "vit.")):
        return IMAGENET
    return default


def is_solo_learn(tensors: Mapping[str, Tensor]) -> bool:
    """Return whether a file has the online classifier of solo-learn beside its `backbone`."""
    first = "backbone.conv1.weight"
    prefixes = [key.removesuffix(first) for key in tensors if key.endswith(first)]
    return any(f"{prefix}classifier.weight" in tensors for prefix in prefixes)


def module_normalization(module: nn.Module) -> tuple[Normalization | None, bool]:
    """Return the normalization of a module's images, and whether it is a guess.

    It is that of its `pretrained_cfg`, as timm's modules have one and any other may have; a guess
    is ImageNet's for torchvision's modules, and None, images in [0, 1], for others.
    """
    recorded = _pair(getattr(module, "pretrained_cfg", None), "mean", "std")
    if recorded is None and not type(module).__module__.startswith("torchvision."):
        return None, True
    mean, std = recorded or IMAGENET
    weight = module.state_dict()[first_weight(module)]
    channels = weight.shape[1] if weight.ndim == 4 else len(mean)
    return (per_channel(mean, channels), per_channel(std, channels)), recorded is None


def normalization_text(mean: Sequence[float], std: Sequence[float]) -> str:
    numbers = (", ".join(f"{value:.4g}" for value in values) for values in (mean, std))
    return f"images normalized by mean {' and deviation '.join(numbers)}"


def per_channel(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """Return values for another number of channels: their mean for one, else in turn."""
    if channels == 1:
        return (sum(values) / len(values),)
    return tuple(values[c % len(values)] for c in range(channels))
