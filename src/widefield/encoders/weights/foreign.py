"""Weights that another library wrote: timm, torchvision, lightly, solo-learn, transformers, ...

Such a file names its tensors but not its architecture. Tensors are found by shape and by the end
of their names, below one common prefix such as `state_dict.backbone.`; a network that was made an
`nn.Sequential` of its children gets their names back by order, and those of transformers and
open_clip are translated. The architecture is the one that fits best among a few common ones, or
the one that the caller names.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import timm
import torch
from torch import Tensor

from widefield.core.names import check_name
from widefield.core.rng import seeded
from widefield.core.types import InputSpec
from widefield.encoders.cifar import CIFAR_NETWORKS
from widefield.encoders.encoder import (
    SOLO_LEARN_PADDING,
    VARIANTS,
    Encoder,
    EncoderConfig,
    assemble,
    encoder_config,
)
from widefield.encoders.layers import first_weight
from widefield.encoders.vision import IMAGENET, TORCHVISION
from widefield.encoders.weights.files import no_numbers
from widefield.encoders.weights.key_maps import spelled_as_timm
from widefield.encoders.weights.tensors import read_tensors

COMMON_ARCHITECTURES = (
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
    "vit_base_patch16_clip_224",
    "convnext_tiny",
    "efficientnet_b0",
    "mobilenetv3_large_100",
    "torchvision:vit_b_16",
    "torchvision:mobilenet_v2",
)
"""Architectures that a file is compared with if the caller names none."""

ENOUGH = 0.9
"""Share of the architecture's tensors that a file must hold."""

_BEFORE_BLOCKS = "norm_pre."
"""A layer that vision transformers of CLIP have and others lack: without it all features change."""

NORMALIZATIONS = {
    "imagenet": IMAGENET,
    "half": ((0.5,) * 3, (0.5,) * 3),
    "clip": ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)),
    "none": ((0.0,) * 3, (1.0,) * 3),
}
"""Mean and standard deviation of each channel with which weights may have been trained."""

NAME_IT = "append @NAME to the file, NAME being a timm model or torchvision:NAME"
"""What to do with a file of weights that fit no architecture that was tried."""
SOLO_LEARN = "solo-learn:"
"""Before an architecture: its small first layer is padded by 2, as solo-learn builds it."""

Tensors = Mapping[str, Tensor]


class ArchitectureSpec(NamedTuple):
    """An architecture, how to build it, and its tensors without values."""

    architecture: str
    config: EncoderConfig
    wanted: Tensors
    first: str
    """Name of the input layer's weights."""


@dataclass(frozen=True, kw_only=True)
class WeightMatch:
    """An architecture, and which tensors of a file are its weights."""

    architecture: str
    keys: dict[str, str]
    """Name of a tensor in the architecture -> its name in the file."""
    random: tuple[str, ...]
    """Tensors of the architecture that the file lacks; they keep random values."""
    prefix: str
    """Text before the architecture's names in the file."""
    others: tuple[str, ...]
    """Other prefixes below which the file holds as many, such as those of a student."""
    unused: tuple[str, ...]
    """Tensors of the file for layers of the architecture, or before its blocks, that do not fit."""
    first: str
    """Name of the input layer's weights in the architecture."""
    config: EncoderConfig
    """Configuration to build it from."""

    @property
    def wanted(self) -> int:
        """Number of tensors in the architecture."""
        return len(self.keys) + len(self.random)

    def line(self) -> str:
        """Return what was matched, in one plain line."""
        place = f" below '{self.prefix}'" if self.prefix else ""
        rest = [f"{len(self.keys)} of {self.wanted} tensors found{place}"]
        if self.others:
            rest.append(f"not those below {' or '.join(map(repr, self.others))}")
        if self.random:
            rest.append(f"random: {_some(self.random)}")
        if self.unused:
            rest.append(f"not used: {_some(self.unused)}")
        if self.config.conv1 is not None:
            padding = self.config.conv1["padding"]
            rest.append(f"first layer 3x3, padded by {padding}, no max-pool")
        mean, std = _numbers(self.config.mean), _numbers(self.config.std)
        rest.append(f"images normalized by mean {mean} and deviation {std}")
        return f"{self.architecture}: {'; '.join(rest)}"

    @property
    def share(self) -> float:
        """Share of the architecture's tensors, and of the file's for its layers, that fit."""
        return len(self.keys) / (self.wanted + len(self.unused))

    @property
    def fits(self) -> bool:
        """Whether enough was found, the input layer too, and nothing that changes every feature."""
        wrong = self.other_shapes or self.without_place
        return self.share >= ENOUGH and self.first in self.keys and not wrong

    @property
    def other_shapes(self) -> list[str]:
        """Tensors of the architecture that the file has in another shape."""
        return [name for name in self.random if name in self.unused]

    @property
    def without_place(self) -> list[str]:
        """Tensors of a layer before the blocks that the file has and the architecture lacks."""
        return [name for name in self.unused if name.startswith(_BEFORE_BLOCKS)]


def load_foreign(
    path: str | Path,
    architecture: str | None = None,
    *,
    prefix: str | None = None,
    normalization: str | None = None,
) -> tuple[Encoder, WeightMatch]:
    """Load the encoder in a file of weights, on the CPU in evaluation mode.

    Args:
        path: a `.safetensors` file, or one that `torch.load(weights_only=True)` reads.
        architecture: a timm model, `solo-learn:NAME` for one with that library's small first
            layer, or `torchvision:NAME`; by default the best of `COMMON_ARCHITECTURES`.
        prefix: text before the encoder's names in the file; by default the one with most of its
            tensors, a teacher's before others.
        normalization: a name of `NORMALIZATIONS`; by default that of the architecture's own
            weights. `NAME#PREFIX~NORMALIZATION` as the architecture says all three.

    Returns:
        The encoder, and which tensors were matched.

    Raises:
        ValueError: the file cannot be read, or holds too little of any architecture.
    """
    if architecture is not None and "~" in architecture:
        architecture, _, normalization = architecture.rpartition("~")
    if architecture is not None and "#" in architecture:
        architecture, _, prefix = architecture.partition("#")
    if normalization is not None:
        check_name("normalization", normalization, NORMALIZATIONS)
    tensors = spelled_as_timm(read_tensors(Path(path)))
    is_solo_learn = architecture is None and _is_solo_learn(tensors)
    if prefix is not None:
        tensors = {key: x for key, x in tensors.items() if key.startswith(prefix)}
    name = (architecture or "").removeprefix(SOLO_LEARN)
    names = (name,) if name else COMMON_ARCHITECTURES
    best = best_match(path, tensors, [fit for known in names for fit in skeletons(known)])
    if is_solo_learn or (architecture or "").startswith(SOLO_LEARN):
        best = _padded_as_solo_learn(best)
    if normalization is not None:
        best = _normalized(best, normalization)
    return load_matched(tensors, best), best


def load_fitting(
    path: str | Path,
    tensors: Tensors,
    architectures: Sequence[ArchitectureSpec],
    *,
    remedy: str = NAME_IT,
) -> tuple[Encoder, WeightMatch]:
    """Load the tensors of the file `path` into the architecture that they fit best.

    `remedy` says what to do where they fit none.

    Raises:
        ValueError: they fit none, or are no numbers.
    """
    best = best_match(path, tensors, architectures, remedy=remedy)
    return load_matched(tensors, best), best


def best_match(
    path: str | Path,
    tensors: Tensors,
    architectures: Sequence[ArchitectureSpec],
    *,
    remedy: str = NAME_IT,
) -> WeightMatch:
    """Return the match with the architecture that the tensors of the file `path` fit best.

    Raises:
        ValueError: they fit none, or are no numbers.
    """
    matches = [match(tensors, skeleton) for skeleton in architectures]
    best = max(matches, key=lambda fit: (fit.fits, len(fit.keys), fit.share))
    if not best.fits:
        raise ValueError(f"{path} fits no encoder: {_misfit(best)}; {remedy}")
    broken = no_numbers({key: tensors[key] for key in best.keys.values()})
    if broken is not None:
        raise ValueError(f"{path}: tensor {broken!r} holds NaN or infinity: save the weights again")
    return best


def load_matched(tensors: Tensors, found: WeightMatch) -> Encoder:
    """Build the encoder of a match, in evaluation mode, and give it its tensors."""
    with seeded(0):
        encoder = assemble(found.config)
    weights = {key: tensors[file_key] for key, file_key in found.keys.items()}
    encoder.backbone.load_state_dict(weights, strict=False)
    return encoder.eval()


def _is_solo_learn(tensors: Tensors) -> bool:
    """Return whether a file has the classifier that solo-learn trains beside its `backbone`."""
    first = "backbone.conv1.weight"
    fronts = [key.removesuffix(first) for key in tensors if key.endswith(first)]
    return any(f"{front}classifier.weight" in tensors for front in fronts)


def _padded_as_solo_learn(found: WeightMatch) -> WeightMatch:
    """Return the match with 2 pixels of padding around a small first layer, if it has one."""
    if found.config.conv1 is None:
        return found
    padded = {**found.config.conv1, "padding": SOLO_LEARN_PADDING}
    return replace(found, config=replace(found.config, conv1=padded))


def _normalized(found: WeightMatch, name: str) -> WeightMatch:
    """Return the match with another mean and deviation of its images.

    Raises:
        ValueError: it has other channels.
    """
    mean, std = NORMALIZATIONS[name]
    if found.config.channels != len(mean):
        raise ValueError(
            f"the normalization of {found.architecture} cannot be chosen: leave it out"
        )
    return replace(found, config=replace(found.config, mean=mean, std=std))


def _misfit(best: WeightMatch) -> str:
    """Return why not even the nearest architecture will do."""
    found = f"the nearest, {best.architecture}, finds {len(best.keys)} of its {best.wanted} tensors"
    if best.other_shapes and best.share >= ENOUGH:
        return f"{found} there, and others in another shape: {_some(best.other_shapes)}"
    if best.share >= ENOUGH and best.first not in best.keys:
        return f"{found} there, and not its input layer, {best.first}"
    strange = [name for name in best.unused if name not in best.random]
    unused = f" and has no place for {_some(strange)}" if strange else ""
    return f"{found} there{unused}"


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _some(names: Sequence[str]) -> str:
    """Return the first of the names, and how many there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def match(tensors: Tensors, skeleton: ArchitectureSpec) -> WeightMatch:
    """Find the tensors of an architecture among those of a file."""
    wanted = skeleton.wanted
    found = _below_best_prefix(wanted, {key: key for key in tensors}, tensors)
    for renamed in _taken_apart(wanted, tensors):
        other = _below_best_prefix(wanted, renamed, tensors)
        if len(other.keys) > len(found.keys):
            found = other
    return WeightMatch(
        architecture=skeleton.architecture,
        keys=found.keys,
        random=tuple(key for key in wanted if key not in found.keys),
        prefix=found.prefix,
        others=found.others,
        unused=found.unused,
        first=skeleton.first,
        config=skeleton.config,
    )


@cache
def skeletons(architecture: str) -> tuple[ArchitectureSpec, ...]:
    """Return the architecture with its tensors' shapes; ResNets with either stem."""
    name = architecture.removeprefix("timm:")
    configs = [_foreign_config(name, size) for size in _usual_sizes(name)]
    if not name.startswith(TORCHVISION):
        small = _foreign_config(name, 32)
        if small.conv1 is not None:
            configs.append(small)
    return tuple(skeleton(architecture, config) for config in configs)


def skeleton(architecture: str, config: EncoderConfig) -> ArchitectureSpec:
    """Return an architecture with its tensors' shapes, which take no memory."""
    with torch.device("meta"):
        network = assemble(config).backbone
    wanted = {key: x for key, x in network.state_dict().items() if not _is_counter(key)}
    return ArchitectureSpec(architecture, config, wanted, first_weight(network))


def _usual_sizes(name: str) -> list[int]:
    """Return the sides of images that weights of this name may be made for."""
    is_timms = name not in (*CIFAR_NETWORKS, *VARIANTS) and not name.startswith(TORCHVISION)
    facts = timm.get_pretrained_cfg(name) if is_timms else None
    if facts is None or not facts.fixed_input_size:
        return [224]
    return list(dict.fromkeys((224, facts.input_size[-1])))


def _is_counter(key: str) -> bool:
    """Return whether a tensor only counts batches, which an encoder does not need."""
    return key.endswith("num_batches_tracked")


def _foreign_config(name: str, image_size: int) -> EncoderConfig:
    """Return the configuration with the mean and deviation that such weights are trained with."""
    if name.startswith(TORCHVISION):
        mean, std = IMAGENET
        return encoder_config(name, InputSpec(image_size=image_size, mean=mean, std=std))
    config = encoder_config(name, InputSpec(image_size=image_size))
    if config.timm is None:
        return config
    facts = timm.get_pretrained_cfg(config.timm["model_name"])
    if facts is None:
        return config
    return encoder_config(name, InputSpec(image_size=image_size, mean=facts.mean, std=facts.std))


class _Found(NamedTuple):
    """What was found below a prefix."""

    prefix: str
    keys: dict[str, str]
    """Name in the architecture -> key in the file."""
    others: tuple[str, ...]
    """Other prefixes below which as much is found."""
    unused: tuple[str, ...]
    """Names in layers of the architecture, and before its blocks, that it has no place for."""


def _below_best_prefix(wanted: Tensors, names: Mapping[str, str], tensors: Tensors) -> _Found:
    """Return the prefix below which most of `wanted` is found, and what is found there.

    Args:
        wanted: tensors of the architecture.
        names: name to search by -> key in `tensors`.
        tensors: tensors of the file.
    """
    votes: Counter[str] = Counter()
    for name, key in names.items():
        parts = name.split(".")
        for cut in range(len(parts)):
            end = ".".join(parts[cut:])
            if end in wanted and wanted[end].shape == tensors[key].shape:
                votes[name.removesuffix(end)] += 1
    if not votes:
        return _Found("", {}, (), ())
    most = max(votes.values())
    best = [prefix for prefix, count in votes.items() if count == most]
    # A teacher is what DINO and its kin are judged by. Else the first in the file: the online
    # network stands before its moving average.
    prefix = next((name for name in best if "teacher" in name), best[0])
    below = {n.removeprefix(prefix): key for n, key in names.items() if n.startswith(prefix)}
    keys = {
        end: below[end]
        for end in wanted
        if end in below and wanted[end].shape == tensors[below[end]].shape
    }
    layers = {end.split(".")[0] for end in wanted} | {_BEFORE_BLOCKS.removesuffix(".")}
    unused = tuple(
        end
        for end in below
        if end not in keys and end.split(".")[0] in layers and not _is_counter(end)
    )
    others = tuple(name for name in best if name != prefix)
    return _Found(prefix, keys, others, unused)


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
