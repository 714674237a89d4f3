"""Weights of other libraries: timm, torchvision, lightly, solo-learn, transformers, ...

A file has names of tensors but no architecture. Tensors are matched by shape and by the end of
their names, below one common prefix such as `state_dict.backbone.`. The numbered children of an
`nn.Sequential` get their names by order, and the names of transformers, open_clip, DINOv2 and
DINOv3 are translated. The architecture is the best match among the vision transformer of these
shapes or a few common ones, or given by name. Its channels and image size are the file's. A file
that lacks a tensor of the architecture, or has one that it has no place for, is refused.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from torch import Tensor

from widefield.core.names import check_name
from widefield.core.rng import seeded
from widefield.core.types import InputSpec
from widefield.encoders.arguments import split_arguments
from widefield.encoders.cifar import CIFAR_NETWORKS
from widefield.encoders.encoder import (
    SOLO_LEARN_PADDING,
    VARIANTS,
    Encoder,
    EncoderConfig,
    build_from_config,
    encoder_config,
    family_of,
)
from widefield.encoders.layers import first_weight
from widefield.encoders.vision import TORCHVISION, published_normalization
from widefield.encoders.weights.adapt import POSITIONS, adapted_config
from widefield.encoders.weights.files import first_invalid
from widefield.encoders.weights.key_maps import PATCHES, rename_to_timm
from widefield.encoders.weights.normalization import (
    NORMALIZATIONS,
    Normalization,
    guessed_normalization,
    is_solo_learn,
    stated_normalization,
)
from widefield.encoders.weights.tensors import read_tensors
from widefield.encoders.weights.vit_names import authors_arguments, vit_names, with_arguments

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
"""Architectures that a file is compared with by default."""

_NOT_FEATURES = re.compile(
    r"num_batches_tracked$|relative_position_index$|rope_embed\.periods$|^mask|^decoder|^local_cls_norm"
)
"""Tensors that no feature depends on, or that the network computes itself.

They are counters, indices and periods, what replaces masked patches, the decoder of masked
autoencoders, and DINOv3's norm of small crops, which is for training only.
"""
_OF_TOKENS = re.compile(r"token|embed|norm")
"""Names before or behind the blocks of a vision transformer; other unknown layers are heads."""

NAME_HINT = "append @NAME to the file, NAME being a timm model or torchvision:NAME"
"""Hint for a file that matches no architecture."""
SOLO_LEARN = "solo-learn:"
"""Prefix of architectures whose small first layer is padded by 2, as in solo-learn."""

Tensors = Mapping[str, Tensor]


class ArchitectureSpec(NamedTuple):
    """An architecture, its configuration, and the shapes of its tensors."""

    architecture: str
    config: EncoderConfig
    wanted: Tensors
    first: str
    """Name of the input layer's weights."""


@dataclass(frozen=True, kw_only=True)
class WeightMatch:
    """A match of the tensors of a file with an architecture."""

    architecture: str
    keys: dict[str, str]
    """Name of a tensor in the architecture -> its name in the file."""
    random: tuple[str, ...]
    """Tensors of the architecture that are not in the file, which is refused then."""
    filled: str
    """Which tensors were filled from others; empty if none."""
    prefix: str
    """Text before the architecture's names in the file."""
    others: tuple[str, ...]
    """Other prefixes with as many tensors, such as those of a student."""
    unused: tuple[str, ...]
    """Tensors of the file for layers of the architecture, or around its blocks, without a match."""
    first: str
    """Name of the input layer's weights in the architecture."""
    config: EncoderConfig
    """Configuration to build it from."""

    @property
    def wanted(self) -> int:
        """Number of tensors in the architecture."""
        return len(self.keys) + len(self.random)

    def line(self) -> str:
        """Return a one-line summary of the match."""
        location = f" below '{self.prefix}'" if self.prefix else ""
        rest = [f"{len(self.keys)} of {self.wanted} tensors found{location}"]
        if self.others:
            rest.append(f"not those below {' or '.join(map(repr, self.others))}")
        if self.filled:
            rest.append(self.filled)
        if self.config.channels != 3:
            values = "averages of" if self.config.channels == 1 else "those of"
            rest.append(
                f"first layer for {self.config.channels} channels, normalized by {values} color's"
            )
        if self.config.conv1 is not None:
            padding = self.config.conv1["padding"]
            rest.append(f"first layer 3x3, padded by {padding}, no max-pool")
        mean, std = _numbers(self.config.mean), _numbers(self.config.std)
        guess = " (guessed; @NAME~NORMALIZATION chooses another)"
        rest.append(
            f"images normalized by mean {mean} and deviation {std}"
            f"{guess if self.config.guessed else ''}"
        )
        return f"{self.architecture}: {'; '.join(rest)}"

    @property
    def share(self) -> float:
        """Share of matched tensors, of the architecture's and of the file's for its layers."""
        return len(self.keys) / (self.wanted + len(self.unused))

    @property
    def is_match(self) -> bool:
        """Whether every tensor matches."""
        return not self.random and not self.unused

    @property
    def other_shapes(self) -> list[str]:
        """Tensors of the architecture that have another shape in the file."""
        return [name for name in self.random if name in self.unused]


def load_foreign(
    path: str | Path,
    architecture: str | None = None,
    *,
    prefix: str | None = None,
    normalization: str | None = None,
    published: bool = False,
) -> tuple[Encoder, WeightMatch]:
    """Load the encoder in a file of weights, on the CPU in evaluation mode.

    Args:
        path: a `.safetensors` file, or one that `torch.load(weights_only=True)` reads.
        architecture: a timm model, `solo-learn:NAME` for one with that library's small first
            layer, or `torchvision:NAME`; by default the best of `COMMON_ARCHITECTURES`.
        prefix: text before the encoder's names in the file; by default the one with most of its
            tensors, a teacher's before others.
        normalization: a name of `NORMALIZATIONS`; by default what the folder of the file states,
            or a guess. The architecture `NAME#PREFIX~NORMALIZATION` sets all three.
        published: whether the weights are those that timm or torchvision publish by this name.

    Returns:
        The encoder, and the match.

    Raises:
        ValueError: the file cannot be read, or matches no architecture.
    """
    if architecture is not None and "~" in architecture:
        architecture, _, normalization = architecture.rpartition("~")
    if architecture is not None and "#" in architecture:
        architecture, _, prefix = architecture.partition("#")
    if normalization is not None:
        check_name("normalization", normalization, NORMALIZATIONS)
    tensors = read_tensors(Path(path))
    known = authors_arguments(tensors)
    every = tensors = rename_to_timm(tensors)
    by_name = (architecture or "").startswith(SOLO_LEARN)
    solo_learn = by_name or is_solo_learn(tensors)
    if prefix is not None:
        tensors = {key: x for key, x in tensors.items() if key.startswith(prefix)}
    name = (architecture or "").removeprefix(SOLO_LEARN)
    names = (_as_authors(name, known),) if name else candidate_names(tensors, known)
    best = best_match(path, tensors, [fit for each in names for fit in architecture_specs(each)])
    if by_name or (solo_learn and architecture is None):
        best = _with_solo_learn_padding(best)
    if normalization is not None:
        best = _normalized(best, normalization)
    elif not (published or _is_tagged(name)):
        stated = stated_normalization(Path(path))
        best = _with_expected(best, stated, every, solo_learn=solo_learn)
    return load_matched(tensors, best), best


def candidate_names(tensors: Tensors, known: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the architectures that tensors by timm's names are compared with.

    Raises:
        ValueError: they are a vision transformer's, whose number of heads is not known.
    """
    return tuple(vit_names(tensors, known)) or COMMON_ARCHITECTURES


def _as_authors(name: str, known: Mapping[str, Any]) -> str:
    """Return the name with the arguments of the code that wrote the file, for its family."""
    model = name.removeprefix("timm:").partition(",")[0]
    family = family_of(model) if known and timm.is_model(model) else ""
    belong = {
        "vision_transformer": ["norm_eps", "num_heads"],
        "eva": ["global_pool", "rope_periods"],
    }
    return with_arguments(name, {k: v for k, v in known.items() if k in belong.get(family, ())})


def best_match(
    path: str | Path,
    tensors: Tensors,
    architectures: Sequence[ArchitectureSpec],
    *,
    hint: str = NAME_HINT,
) -> WeightMatch:
    """Return the best match of the tensors of the file `path`; `hint` ends the error message.

    Raises:
        ValueError: the tensors match no architecture, or are NaN or infinite.
    """
    matches = [match(tensors, spec) for spec in architectures]
    best = max(matches, key=lambda fit: (fit.is_match, len(fit.keys), fit.share))
    if not best.is_match:
        raise ValueError(f"{path} fits no encoder: {_mismatch(best)}; {hint}")
    tensor_name = first_invalid({key: tensors[key] for key in best.keys.values()})
    if tensor_name is not None:
        raise ValueError(
            f"{path}: tensor {tensor_name!r} holds NaN or infinity: save the weights again"
        )
    return best


def load_matched(tensors: Tensors, found: WeightMatch) -> Encoder:
    """Return the encoder of a match in evaluation mode, with the weights of the file."""
    with seeded(0):
        encoder = build_from_config(found.config)
    weights = {key: tensors[file_key] for key, file_key in found.keys.items()}
    encoder.backbone.load_state_dict(weights, strict=False)
    return encoder.eval()


def _with_solo_learn_padding(found: WeightMatch) -> WeightMatch:
    """Return the match with a padding of 2 for a small first layer, if it has one."""
    if found.config.conv1 is None:
        return found
    padded = {**found.config.conv1, "padding": SOLO_LEARN_PADDING}
    return replace(found, config=replace(found.config, conv1=padded))


def _normalized(found: WeightMatch, name: str) -> WeightMatch:
    """Return the match with another mean and deviation of its images."""
    mean, std = NORMALIZATIONS[name]
    if found.config.channels != len(mean):
        raise ValueError(
            f"the normalization of {found.architecture} cannot be chosen: leave it out"
        )
    return replace(found, config=replace(found.config, mean=mean, std=std))


def _with_expected(
    found: WeightMatch, stated: Normalization | None, tensors: Tensors, *, solo_learn: bool
) -> WeightMatch:
    """Return the match with the normalization that is stated, or else with a guess."""
    config = found.config
    if stated is not None and len(stated[0]) == config.channels:
        mean, std = stated
        return replace(found, config=replace(config, mean=mean, std=std))
    mean, std = guessed_normalization(
        tensors,
        found.prefix,
        (config.mean, config.std),
        cifar=solo_learn and config.conv1 is not None,
    )
    return replace(found, config=replace(config, mean=mean, std=std, guessed=True))


def _is_tagged(architecture: str) -> bool:
    """Return whether a name states which of timm's weights it means, as `NAME.TAG`."""
    return "." in architecture.partition(",")[0] and not architecture.startswith(TORCHVISION)


def _mismatch(best: WeightMatch) -> str:
    """Return why the best match is not good enough."""
    lacks = [name for name in best.random if name not in best.unused]
    unknown = [name for name in best.unused if name not in best.random]
    found = f"the nearest, {best.architecture}, finds {len(best.keys)} of its {best.wanted} tensors"
    other = f", others in another shape: {_join_first(best.other_shapes)}" * bool(best.other_shapes)
    missing = f", lacks {_join_first(lacks)}" * bool(lacks)
    unused = f" and has no place for {_join_first(unknown)}" * bool(unknown)
    return f"{found} there{other}{missing}{unused}"


def _numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.4g}" for value in values)


def _join_first(names: Sequence[str]) -> str:
    """Return the first of the names, and how many there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def match(tensors: Tensors, spec: ArchitectureSpec) -> WeightMatch:
    """Match the tensors of a file with an architecture, for its channels and image size."""
    found = _best_names(tensors, spec)
    config = _fitted_config(tensors, spec, found)
    if config is not None:
        spec = architecture_spec(spec.architecture, config)
        found = _best_names(tensors, spec)
    keys, filled = _filled(tensors, spec, found)
    return WeightMatch(
        architecture=spec.architecture,
        keys=keys,
        # The network computes its indices itself.
        random=tuple(k for k, x in spec.wanted.items() if k not in keys and x.is_floating_point()),
        filled=filled,
        prefix=found.prefix,
        others=found.others,
        unused=tuple(name for name, key in found.unused.items() if key not in keys.values()),
        first=spec.first,
        config=spec.config,
    )


def _best_names(tensors: Tensors, spec: ArchitectureSpec) -> "_Found":
    """Match the tensors by their names, and by the numbers of an `nn.Sequential`."""
    found = _below_best_prefix(spec, {key: key for key in tensors}, tensors)
    for renamed in _sequential_names(spec.wanted, tensors):
        other = _below_best_prefix(spec, renamed, tensors)
        if len(other.keys) > len(found.keys):
            found = other
    return found


def _fitted_config(
    tensors: Tensors, spec: ArchitectureSpec, found: "_Found"
) -> EncoderConfig | None:
    """Return the configuration for the file's channels and image size; None if that fits nothing.

    Positions alone do not show a height and width, so they have to be those of a square.
    """
    channels, size = spec.config.channels, spec.config.image_size
    for name, key in found.unused.items():
        shape, wanted = tensors[key].shape, getattr(spec.wanted.get(name), "shape", None)
        if name == spec.first and wanted and (*shape[:1], *shape[2:]) == (*wanted[:1], *wanted[2:]):
            channels = shape[1]
        elif name in POSITIONS and wanted and (shape[0], shape[2:]) == (1, wanted[2:]):
            patch = spec.wanted[spec.first].shape[2:]
            others = wanted[1] - (size[0] // patch[0]) * (size[1] // patch[1])
            side = math.isqrt(max(0, shape[1] - others))
            if side * side != shape[1] - others:
                return None
            size = (side * patch[0], side * patch[1])
    if (channels, size) == (spec.config.channels, spec.config.image_size) or min(size) < 8:
        return None
    return adapted_config(spec.config, channels, size, None)


def _filled(
    tensors: Tensors, spec: ArchitectureSpec, found: "_Found"
) -> tuple[dict[str, str], str]:
    """Return the keys of the match with a missing `fc_norm` filled, and a note on that.

    A network trained on masked images normalizes its tokens; timm's EVA normalizes their average,
    and takes the same weights, as here.
    """
    pairs = {f"fc_norm.{end}": f"norm.{end}" for end in ("weight", "bias")}
    masked = f"{found.prefix}mask_token" in tensors
    is_missing = pairs.keys() <= spec.wanted.keys() and not pairs.keys() & found.keys.keys()
    is_eva = spec.config.timm is not None and family_of(spec.config.timm["model_name"]) == "eva"
    has_norm = set(pairs.values()) <= found.unused.keys() - spec.wanted.keys()
    if not (masked and is_missing and is_eva and has_norm):
        return found.keys, ""
    keys = {name: found.unused[source] for name, source in pairs.items()}
    if any(tensors[key].shape != spec.wanted[name].shape for name, key in keys.items()):
        return found.keys, ""
    return {**found.keys, **keys}, "fc_norm filled from norm, as timm does"


@cache
def architecture_specs(architecture: str) -> tuple[ArchitectureSpec, ...]:
    """Return the specs of an architecture, with both stems for ResNets."""
    name = architecture.removeprefix("timm:")
    configs = [_foreign_config(name, size) for size in _default_sizes(name)]
    if not name.startswith(TORCHVISION):
        small = _foreign_config(name, 32)
        if small.conv1 is not None:
            configs.append(small)
    return tuple(architecture_spec(architecture, config) for config in configs)


def architecture_spec(architecture: str, config: EncoderConfig) -> ArchitectureSpec:
    """Return the spec of an architecture; its tensors take no memory."""
    with torch.device("meta"):
        network = build_from_config(config).backbone
    wanted = {k: x for k, x in network.state_dict().items() if not _NOT_FEATURES.search(k)}
    return ArchitectureSpec(architecture, config, wanted, first_weight(network))


def _default_sizes(name: str) -> list[int]:
    """Return the usual image sizes of weights of this name."""
    name = split_arguments(name)[0]
    in_timm = name not in (*CIFAR_NETWORKS, *VARIANTS) and not name.startswith(TORCHVISION)
    cfg = timm.get_pretrained_cfg(name) if in_timm else None
    if cfg is None or not cfg.fixed_input_size:
        return [224]
    return list(dict.fromkeys((224, cfg.input_size[-1])))


def _foreign_config(name: str, image_size: int) -> EncoderConfig:
    """Return the configuration with the usual mean and deviation of such weights."""
    if name.startswith(TORCHVISION):
        mean, std = published_normalization(name.removeprefix(TORCHVISION))
        return encoder_config(name, InputSpec(image_size=image_size, mean=mean, std=std))
    config = encoder_config(name, InputSpec(image_size=image_size))
    if config.timm is None:
        return config
    cfg = timm.get_pretrained_cfg(config.timm["model_name"])
    if cfg is None:
        return config
    return encoder_config(name, InputSpec(image_size=image_size, mean=cfg.mean, std=cfg.std))


class _Found(NamedTuple):
    """Matches below a prefix."""

    prefix: str
    keys: dict[str, str]
    """Name in the architecture -> key in the file."""
    others: tuple[str, ...]
    """Other prefixes with as many matches."""
    unused: dict[str, str]
    """Names in layers of the architecture, and around its blocks, without a match -> keys."""


def _below_best_prefix(
    spec: ArchitectureSpec, names: Mapping[str, str], tensors: Tensors
) -> _Found:
    """Return the prefix with most matches of the architecture, and these matches.

    Args:
        spec: the architecture.
        names: name to search by -> key in `tensors`.
        tensors: tensors of the file.
    """
    wanted, counts = spec.wanted, Counter[str]()
    for name, key in names.items():
        parts = name.split(".")
        for cut in range(len(parts)):
            end = ".".join(parts[cut:])
            if end in wanted and wanted[end].shape == tensors[key].shape:
                counts[name.removesuffix(end)] += 1
    if not counts:
        return _Found("", {}, (), {})
    max_count = max(counts.values())
    best = [prefix for prefix, count in counts.items() if count == max_count]
    # The published features of DINO are the teacher's. Otherwise the first in the file, because
    # the online network comes before its moving average.
    prefix = next((name for name in best if "teacher" in name), best[0])
    below = {n.removeprefix(prefix): key for n, key in names.items() if n.startswith(prefix)}
    keys = {
        end: below[end]
        for end in wanted
        if end in below and wanted[end].shape == tensors[below[end]].shape
    }
    layers = {end.split(".")[0] for end in wanted}
    unused = {
        end: key
        for end, key in below.items()
        if end not in keys
        and not _NOT_FEATURES.search(end)
        and (end.split(".")[0] in layers or (spec.first == PATCHES and _is_around(end)))
    }
    others = tuple(name for name in best if name != prefix)
    return _Found(prefix, keys, others, unused)


def _is_around(name: str) -> bool:
    """Return whether a tensor is one of the tokens' of a vision transformer."""
    return _OF_TOKENS.search(name.split(".")[0]) is not None


def _sequential_names(wanted: Tensors, tensors: Tensors) -> Iterator[dict[str, str]]:
    """Yield names of children for the numbers of an `nn.Sequential` -> keys in `tensors`.

    There is one mapping for each prefix with enough numbers.
    """
    children = list(dict.fromkeys(key.split(".")[0] for key in wanted))
    indices: dict[str, set[int]] = {}
    for key in tensors:
        parts = key.split(".")
        for depth, part in enumerate(parts[:-1]):
            if part.isdecimal():
                indices.setdefault("".join(f"{p}." for p in parts[:depth]), set()).add(int(part))
    for prefix, numbers in indices.items():
        if len(numbers) < len(children):
            continue
        names = dict(zip(sorted(numbers), children, strict=False))
        renamed = {}
        for key in tensors:
            number, _, rest = key.removeprefix(prefix).partition(".")
            if key.startswith(prefix) and number.isdecimal() and int(number) in names:
                renamed[f"{prefix}{names[int(number)]}.{rest}"] = key
        yield renamed
