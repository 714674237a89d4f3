"""Weights that another library wrote: timm, torchvision, lightly, solo-learn, Lightning.

Such a file names its tensors but not its architecture. Tensors are found by shape and by the end
of their names, below one common prefix such as `state_dict.backbone.`; a network that was made an
`nn.Sequential` of its children gets their names back by order. The architecture is the one that
fits best among a few common ones, or the one that the caller names.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, NamedTuple

import timm
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torchvision import models

from widefield.core.rng import seeded
from widefield.encoders.cifar import CIFAR_NETWORKS
from widefield.encoders.encoder import (
    VARIANTS,
    Encoder,
    EncoderConfig,
    assemble,
    encoder_config,
    timm_name,
)
from widefield.encoders.vision import VisionEncoder, check_vision

COMMON = (
    "resnet18",
    "resnet34",
    "resnet50",
    "resnet101",
    "wide_resnet50_2",
    "resnext50_32x4d",
    "resnet-tiny",
    "vit_tiny_patch16_224",
    "vit_small_patch16_224",
    "vit_base_patch16_224",
    "convnext_tiny",
    "efficientnet_b0",
    "mobilenetv3_large_100",
    "torchvision:vit_b_16",
    "torchvision:mobilenet_v2",
)
"""Architectures that a file is compared with if the caller names none."""

ENOUGH = 0.9
"""Share of the architecture's tensors that a file must hold."""

Tensors = Mapping[str, Tensor]


class _Skeleton(NamedTuple):
    """An architecture, how to build it, and its tensors without values."""

    architecture: str
    config: EncoderConfig | None
    wanted: Tensors


@dataclass(frozen=True, kw_only=True)
class Match:
    """An architecture, and which tensors of a file are its weights."""

    architecture: str
    keys: dict[str, str]
    """Name of a tensor in the architecture -> its name in the file."""
    random: tuple[str, ...]
    """Tensors of the architecture that the file lacks; they keep random values."""
    prefix: str
    """Text before the architecture's names in the file."""
    config: EncoderConfig | None
    """Configuration to build it from; None for torchvision's."""

    @property
    def wanted(self) -> int:
        """Number of tensors in the architecture."""
        return len(self.keys) + len(self.random)

    def line(self) -> str:
        """Return what was matched, in one plain line."""
        place = f" below '{self.prefix}'" if self.prefix else ""
        rest = f"; random: {', '.join(self.random[:3])}" if self.random else ""
        return f"{self.architecture}: {len(self.keys)} of {self.wanted} tensors found{place}{rest}"


def load_foreign(
    path: str | Path, architecture: str | None = None
) -> tuple[Encoder | VisionEncoder, Match]:
    """Load the encoder in a file of weights, on the CPU in evaluation mode.

    Args:
        path: a `.safetensors` file, or one that `torch.load(weights_only=True)` reads.
        architecture: a timm model, or `torchvision:NAME`; by default the best of `COMMON`.

    Returns:
        The encoder, and which tensors were matched.

    Raises:
        ValueError: the file cannot be read, or holds too little of any architecture.
    """
    tensors = read_tensors(Path(path))
    names = COMMON if architecture is None else (architecture,)
    fits = [match(tensors, skeleton) for name in names for skeleton in _skeletons(name)]
    best = max(fits, key=lambda fit: (len(fit.keys) >= ENOUGH * fit.wanted, len(fit.keys)))
    if len(best.keys) < ENOUGH * best.wanted:
        raise ValueError(
            f"{path} fits no encoder: the nearest, {best.architecture}, finds {len(best.keys)} of "
            f"its {best.wanted} tensors there; append @NAME to the file, NAME being a timm "
            "model or torchvision:NAME"
        )
    with seeded(0):
        encoder = build(best.architecture, best.config)
    weights = {key: tensors[file_key] for key, file_key in best.keys.items()}
    encoder.backbone.load_state_dict(weights, strict=False)
    return encoder.eval(), best


def cached_weights(name: str) -> Path | None:
    """Return the file of pretrained weights that this machine has already, if any.

    Nothing is downloaded: only the caches of the Hugging Face hub and of torch are searched.

    Args:
        name: `timm:NAME` or `torchvision:NAME`.

    Raises:
        ValueError: the name is unknown.
    """
    source, _, model = name.partition(":")
    if source == "torchvision":
        check_vision(model)
        return _in_torch_hub(models.get_model_weights(model).DEFAULT.url)
    ours = model in VARIANTS or model in CIFAR_NETWORKS
    facts = None if ours else timm.get_pretrained_cfg(timm_name(model))
    if facts is None:
        return None
    if facts.hf_hub_id:
        from huggingface_hub import try_to_load_from_cache

        for file in ("model.safetensors", "pytorch_model.bin"):
            cached = try_to_load_from_cache(facts.hf_hub_id, file)
            if isinstance(cached, str):
                return Path(cached)
    return _in_torch_hub(facts.url) if isinstance(facts.url, str) and facts.url else None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read every tensor of a file, by its dotted path; nothing in the file is executed.

    Raises:
        ValueError: there is no such file, it is damaged or of another kind, or has no tensors.
    """
    if not path.is_file():
        raise ValueError(f"no weights at {path}: give a .safetensors or state-dict file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():  # a pickle that holds code is refused below
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (
        SafetensorError,
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
        UnpicklingError,
    ) as error:
        raise ValueError(
            f"{path} cannot be read as plain weights ({str(error).splitlines()[0][:80]}): save its "
            "state_dict() again; files that hold code are never run"
        ) from None
    tensors = dict(_leaves(content, ""))
    if not tensors:
        raise ValueError(f"{path} holds no tensors: give a state-dict file")
    return tensors


def match(tensors: Tensors, skeleton: _Skeleton) -> Match:
    """Find the tensors of an architecture among those of a file."""
    architecture, config, wanted = skeleton
    prefix, keys = _below_best_prefix(wanted, {key: key for key in tensors}, tensors)
    for renamed in _taken_apart(wanted, tensors):
        other_prefix, other_keys = _below_best_prefix(wanted, renamed, tensors)
        if len(other_keys) > len(keys):
            prefix, keys = other_prefix, other_keys
    return Match(
        architecture=architecture,
        keys=keys,
        random=tuple(key for key in wanted if key not in keys),
        prefix=prefix,
        config=config,
    )


def build(architecture: str, config: EncoderConfig | None) -> Encoder | VisionEncoder:
    """Build an encoder with weights drawn from torch's global generator."""
    if config is None:
        return VisionEncoder(architecture.removeprefix("torchvision:"))
    return assemble(config)


@cache
def _skeletons(architecture: str) -> tuple[_Skeleton, ...]:
    """Return the architecture with its tensors' shapes; ResNets with either stem."""
    configs: list[EncoderConfig | None] = [None]
    if not architecture.startswith("torchvision:"):
        name = architecture.removeprefix("timm:")
        configs = [_foreign_config(name, 224)]
        small = _foreign_config(name, 32)
        if small.conv1 is not None:
            configs.append(small)
    skeletons = []
    for config in configs:
        with torch.device("meta"):
            state = build(architecture, config).backbone.state_dict()
        wanted = {key: x for key, x in state.items() if not key.endswith("num_batches_tracked")}
        skeletons.append(_Skeleton(architecture, config, wanted))
    return tuple(skeletons)


def _foreign_config(name: str, image_size: int) -> EncoderConfig:
    """Return the configuration with the mean and deviation that such weights are trained with."""
    config = encoder_config(name, image_size=image_size)
    if config.timm is None:
        return config
    facts = timm.get_pretrained_cfg(config.timm["model_name"])
    if facts is None:
        return config
    return encoder_config(name, image_size=image_size, mean=facts.mean, std=facts.std)


def _below_best_prefix(
    wanted: Tensors, names: Mapping[str, str], tensors: Tensors
) -> tuple[str, dict[str, str]]:
    """Return the prefix below which most of `wanted` is found, and what is found there.

    Args:
        wanted: tensors of the architecture.
        names: name to search by -> key in `tensors`.
        tensors: tensors of the file.

    Returns:
        The prefix, and name in the architecture -> key in `tensors`.
    """
    votes: Counter[str] = Counter()
    for name, key in names.items():
        parts = name.split(".")
        for cut in range(len(parts)):
            end = ".".join(parts[cut:])
            if end in wanted and wanted[end].shape == tensors[key].shape:
                votes[name.removesuffix(end)] += 1
    if not votes:
        return "", {}
    # Ties go to the first in the file: the online network stands before its moving average.
    prefix = votes.most_common(1)[0][0]
    return prefix, {
        end: names[prefix + end]
        for end in wanted
        if prefix + end in names and wanted[end].shape == tensors[names[prefix + end]].shape
    }


def _taken_apart(wanted: Tensors, tensors: Tensors) -> Iterator[dict[str, str]]:
    """Yield the file's names as they were before an `nn.Sequential` of children numbered them.

    Each item maps such a name to the key in `tensors`, for one prefix that has enough numbers.
    """
    children = list(dict.fromkeys(key.split(".")[0] for key in wanted))
    numbered: dict[str, set[int]] = {}
    for key in tensors:
        parts = key.split(".")
        for depth, part in enumerate(parts[:-1]):
            if part.isdecimal():
                numbered.setdefault("".join(f"{p}." for p in parts[:depth]), set()).add(int(part))
    for prefix, numbers in numbered.items():
        if len(numbers) < len(children):
            continue
        names = dict(zip(sorted(numbers), children, strict=False))
        renamed = {}
        for key in tensors:
            number, _, rest = key.removeprefix(prefix).partition(".")
            if key.startswith(prefix) and number.isdecimal() and int(number) in names:
                renamed[f"{prefix}{names[int(number)]}.{rest}"] = key
        yield renamed


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor in nested mappings, with its dotted path."""
    if isinstance(node, Tensor):
        yield path.removesuffix("."), node
    elif isinstance(node, Mapping):
        for key, child in node.items():
            yield from _leaves(child, f"{path}{key}.")


def _in_torch_hub(url: str) -> Path | None:
    """Return the file that torch's hub downloaded from `url`, if it is there."""
    file = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[-1]
    return file if file.is_file() else None
