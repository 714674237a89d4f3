"""Weights that another library wrote: timm, torchvision, lightly, solo-learn, Lightning.

Such a file names its tensors but not its architecture. Tensors are found by shape and by the end
of their name, below one common prefix (`state_dict.backbone.`, say); a network that was taken
apart into an `nn.Sequential` is put together in the order of its parts. The architecture is the
one of a few common ones that fits best, or the one that the caller names.
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
from widefield.encoders.encoder import (
    OWN,
    Encoder,
    EncoderConfig,
    assemble,
    encoder_config,
    known,
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
"""Architectures that a file is compared with when none is named."""

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
    """Which tensors of a file belong where in an architecture."""

    architecture: str
    keys: dict[str, str]
    """Tensor of the architecture -> tensor of the file."""
    random: tuple[str, ...]
    """Tensors of the architecture that the file lacks; they keep random values."""
    prefix: str
    """What stands before the architecture's names in the file."""
    config: EncoderConfig | None
    """How to build it; None for torchvision's."""

    @property
    def wanted(self) -> int:
        """Tensors of the architecture."""
        return len(self.keys) + len(self.random)

    def line(self) -> str:
        """What was matched, in one plain line."""
        where = f" below '{self.prefix}'" if self.prefix else ""
        kept = f"; random: {', '.join(self.random[:3])}" if self.random else ""
        return f"{self.architecture}: {len(self.keys)} of {self.wanted} tensors found{where}{kept}"


def load_foreign(
    path: str | Path, architecture: str | None = None
) -> tuple[Encoder | VisionEncoder, Match]:
    """The encoder in a file of weights, on the CPU in evaluation mode, and what was matched.

    Args:
        path: `.safetensors`, or anything that `torch.load(weights_only=True)` reads.
        architecture: a timm model, or `torchvision:NAME`; by default the best of `COMMON`.

    Raises:
        ValueError: unreadable, or too little of it fits.
    """
    tensors = read_tensors(Path(path))
    names = COMMON if architecture is None else (architecture,)
    fits = [match(tensors, one) for name in names for one in _skeletons(name)]
    best = max(fits, key=lambda fit: (len(fit.keys) >= ENOUGH * fit.wanted, len(fit.keys)))
    if len(best.keys) < ENOUGH * best.wanted:
        raise ValueError(
            f"{path} fits no encoder: the nearest, {best.architecture}, finds {len(best.keys)} of "
            f"its {best.wanted} tensors there; append @NAME to the file, NAME being a timm "
            "model or torchvision:NAME"
        )
    with seeded(0):
        encoder = build(best.architecture, best.config)
    weights = {key: tensors[there] for key, there in best.keys.items()}
    encoder.backbone.load_state_dict(weights, strict=False)
    return encoder.eval(), best


def cached_weights(name: str) -> Path | None:
    """File of pretrained weights of `timm:NAME` or `torchvision:NAME` that this machine has.

    Nothing is downloaded: the caches of the Hugging Face hub and of torch are looked at.
    """
    source, _, model = name.partition(":")
    if source == "torchvision":
        check_vision(model)
        return _in_torch_hub(models.get_model_weights(model).DEFAULT.url)
    facts = None if model in OWN else timm.get_pretrained_cfg(known(model))
    if facts is None:
        return None
    if facts.hf_hub_id:
        from huggingface_hub import try_to_load_from_cache

        for file in ("model.safetensors", "pytorch_model.bin"):
            found = try_to_load_from_cache(facts.hf_hub_id, file)
            if isinstance(found, str):
                return Path(found)
    return _in_torch_hub(facts.url) if isinstance(facts.url, str) and facts.url else None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Every tensor of a file by its dotted path; nothing in the file is executed.

    Raises:
        ValueError: no such file, damaged, of another kind, or without tensors.
    """
    if not path.is_file():
        raise ValueError(f"no weights at {path}: give a .safetensors or state-dict file")
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():  # a foreign pickle is refused below, not warned about
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
        other, found = _below_best_prefix(wanted, renamed, tensors)
        if len(found) > len(keys):
            prefix, keys = other, found
    return Match(
        architecture=architecture,
        keys=keys,
        random=tuple(key for key in wanted if key not in keys),
        prefix=prefix,
        config=config,
    )


def build(architecture: str, config: EncoderConfig | None) -> Encoder | VisionEncoder:
    """A random encoder, its weights drawn from torch's global generator."""
    if config is None:
        return VisionEncoder(architecture.removeprefix("torchvision:"))
    return assemble(config)


@cache
def _skeletons(architecture: str) -> tuple[_Skeleton, ...]:
    """The architecture with its tensors' shapes, with the stem of large images, and of small."""
    configs: list[EncoderConfig | None] = [None]
    if not architecture.startswith("torchvision:"):
        name = architecture.removeprefix("timm:")
        configs = [_foreign_config(name, 224)]
        small = _foreign_config(name, 32)
        if small.conv1 is not None:
            configs.append(small)
    found = []
    for config in configs:
        with torch.device("meta"):
            state = build(architecture, config).backbone.state_dict()
        wanted = {key: x for key, x in state.items() if not key.endswith("num_batches_tracked")}
        found.append(_Skeleton(architecture, config, wanted))
    return tuple(found)


def _foreign_config(name: str, image_size: int) -> EncoderConfig:
    """With the statistics that the weights were most likely trained with."""
    config = encoder_config(name, image_size=image_size)
    facts = timm.get_pretrained_cfg(config.timm["model_name"])
    if facts is None:
        return config
    return encoder_config(name, image_size=image_size, mean=facts.mean, std=facts.std)


def _below_best_prefix(
    wanted: Tensors, names: Mapping[str, str], tensors: Tensors
) -> tuple[str, dict[str, str]]:
    """The prefix below which most of `wanted` is found among `names` (name -> tensor's key)."""
    votes: Counter[str] = Counter()
    for name, key in names.items():
        parts = name.split(".")
        for cut in range(len(parts)):
            end = ".".join(parts[cut:])
            if end in wanted and wanted[end].shape == tensors[key].shape:
                votes[name.removesuffix(end)] += 1
    if not votes:
        return "", {}
    prefix = votes.most_common(1)[0][0]  # of equals the first in the file: the online network
    return prefix, {
        end: names[prefix + end]
        for end in wanted
        if prefix + end in names and wanted[end].shape == tensors[names[prefix + end]].shape
    }


def _taken_apart(wanted: Tensors, tensors: Tensors) -> Iterator[dict[str, str]]:
    """Names as they were before the network became an `nn.Sequential` of its children."""
    children = list(dict.fromkeys(key.split(".")[0] for key in wanted))
    numbered: dict[str, set[int]] = {}
    for key in tensors:
        parts = key.split(".")
        for place, part in enumerate(parts[:-1]):
            if part.isdecimal():
                numbered.setdefault("".join(f"{p}." for p in parts[:place]), set()).add(int(part))
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
    if isinstance(node, Tensor):
        yield path.removesuffix("."), node
    elif isinstance(node, Mapping):
        for key, child in node.items():
            yield from _leaves(child, f"{path}{key}.")


def _in_torch_hub(url: str) -> Path | None:
    file = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[-1]
    return file if file.is_file() else None
