"""Matching of the tensors of a file with an architecture, by shape and by the end of their names.

A file has names of tensors but no architecture. They lie below one common prefix such as
`state_dict.backbone.`; the numbered children of an `nn.Sequential` get their names by order. The
channels and the image size are those of the file. A file that lacks a tensor of the architecture,
or has one that it has no place for, is refused.
"""

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from widefield.core.devices import on_meta
from widefield.core.form import Form, InputSpec
from widefield.core.rng import seeded
from widefield.encoders.arguments import split_arguments
from widefield.encoders.config import (
    LIBRARY_NETWORKS,
    VARIANTS,
    EncoderConfig,
    encoder_config,
    published_cfg,
    timm_module,
)
from widefield.encoders.encoder import Encoder, build_from_config
from widefield.encoders.layers import first_weight
from widefield.encoders.vision import TORCHVISION, published_normalization
from widefield.encoders.weights.adapt import POSITIONS, adapted_config
from widefield.encoders.weights.files import first_invalid
from widefield.encoders.weights.key_maps import PATCHES
from widefield.encoders.weights.normalization import (
    Normalization,
    normalization_text,
    per_channel,
)

_NOT_FEATURES = re.compile(
    r"num_batches_tracked$|relative_(position_index|coords_table)$|attn_mask$|rope_embed\.periods$"
    r"|^mask|^decoder|^local_cls_norm"
)
"""Tensors that no feature depends on, or that the network computes itself.

They are counters, indices, masks of shifted windows and periods, what replaces masked patches, the
decoder of masked autoencoders, and DINOv3's norm of small crops, which is for training only.
"""
_OF_TOKENS = re.compile(r"token|embed|norm")
"""Names before or behind the blocks of a vision transformer; other unknown layers are heads."""

_CLASSIFIER = re.compile(r"^head\.(fc2?|classifier)\.")
"""Names of the last layers of timm's classifiers whose other layers in `head` make features."""

Tensors = Mapping[str, Tensor]


class ArchitectureSpec(NamedTuple):
    architecture: str
    config: EncoderConfig
    wanted: Tensors
    first: str
    """Name of the input layer's weights."""


@dataclass(frozen=True, kw_only=True)
class WeightMatch:
    architecture: str
    keys: dict[str, str]
    """Name of a tensor in the architecture -> its name in the file."""
    random: tuple[str, ...]
    """Tensors of the architecture that are not in the file, which is refused then."""
    fill_note: str
    """Which tensors were filled from others; empty if none."""
    prefix: str
    """Text before the architecture's names in the file."""
    others: tuple[str, ...]
    """Other prefixes with as many tensors, such as those of a student."""
    unused: tuple[str, ...]
    """Tensors of the file for layers of the architecture, or around its blocks, without a match."""
    config: EncoderConfig
    """Configuration to build it from."""

    @property
    def wanted(self) -> int:
        """Number of tensors in the architecture."""
        return len(self.keys) + len(self.random)

    def line(self) -> str:
        location = f" below '{self.prefix}'" if self.prefix else ""
        rest = [f"{len(self.keys)} of {self.wanted} tensors found{location}"]
        if self.others:
            rest.append(f"not those below {' or '.join(map(repr, self.others))}")
        if self.fill_note:
            rest.append(self.fill_note)
        if "_clip_" in self.architecture and "quick" not in self.architecture:
            rest.append("activation GELU, where weights of OpenAI need a name with quickgelu")
        if self.config.channels != 3:
            values = "averages of" if self.config.channels == 1 else "those of"
            rest.append(
                f"first layer for {self.config.channels} channels, normalized by {values} color's"
            )
        if self.config.conv1 is not None:
            padding = self.config.conv1["padding"]
            rest.append(f"first layer 3x3, padded by {padding}, no max-pool")
        guess = " (guessed; @NAME~NORMALIZATION chooses another)" if self.config.guessed else ""
        rest.append(f"{normalization_text(self.config.mean, self.config.std)}{guess}")
        return f"{self.architecture}: {'; '.join(rest)}"

    @property
    def share(self) -> float:
        """Share of matched tensors, of the architecture's and of the file's for its layers."""
        return len(self.keys) / (self.wanted + len(self.unused))

    def normalized(self, normalization: Normalization, *, guessed: bool = False) -> "WeightMatch":
        """Return the match with a mean and deviation, for its number of channels."""
        mean, std = (per_channel(values, self.config.channels) for values in normalization)
        return replace(self, config=replace(self.config, mean=mean, std=std, guessed=guessed))

    @property
    def is_match(self) -> bool:
        return not self.random and not self.unused


def best_match(
    path: str | Path,
    tensors: Tensors,
    architectures: Sequence[ArchitectureSpec],
    *,
    named: bool = False,
) -> WeightMatch:
    """Return the best match of the tensors of the file `path`.

    `named` is whether the user named the architecture.
    """
    matches = [match(tensors, spec) for spec in architectures]
    best = max(matches, key=lambda fit: (fit.is_match, len(fit.keys), fit.share))
    if not best.is_match:
        raise ValueError(f"{path} fits no encoder: {_mismatch(best)}; {_hint(best, named=named)}")
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


def _mismatch(best: WeightMatch) -> str:
    parts = [
        f"the nearest, {best.architecture}, finds {len(best.keys)} of its {best.wanted} tensors "
        "there"
    ]
    other_shapes = [name for name in best.random if name in best.unused]
    missing = [name for name in best.random if name not in best.unused]
    unknown = [name for name in best.unused if name not in best.random]
    if other_shapes:
        parts.append(f"others in another shape: {_join_first(other_shapes)}")
    if missing:
        parts.append(f"lacks {_join_first(missing)}")
    text = ", ".join(parts)
    return f"{text} and has no place for {_join_first(unknown)}" if unknown else text


def _hint(best: WeightMatch, *, named: bool) -> str:
    if not best.unused and all("running_" in name for name in best.random):
        return "save the statistics of its batch normalization too, as state_dict() does"
    if named:
        return "it has the weights of another encoder: name that one, or leave @NAME out"
    return "append @NAME to the file, NAME being a timm model or torchvision:NAME"


def _join_first(names: Sequence[str]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


def match(tensors: Tensors, spec: ArchitectureSpec) -> WeightMatch:
    """Match the tensors of a file with an architecture, for its channels and image size."""
    found = _best_names(tensors, spec)
    config = _resized_config(tensors, spec, found)
    if config is not None:
        spec = architecture_spec(spec.architecture, config)
        found = _best_names(tensors, spec)
    keys, fill_note = _fill_norm(tensors, spec, found)
    return WeightMatch(
        architecture=spec.architecture,
        keys=keys,
        # The network computes its indices itself.
        random=tuple(k for k, x in spec.wanted.items() if k not in keys and x.is_floating_point()),
        fill_note=fill_note,
        prefix=found.prefix,
        others=found.others,
        unused=tuple(name for name, key in found.unused.items() if key not in keys.values()),
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


def _resized_config(
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
    return adapted_config(spec.config, Form(channels=channels, size=size))


def _fill_norm(
    tensors: Tensors, spec: ArchitectureSpec, found: "_Found"
) -> tuple[dict[str, str], str]:
    """Return the keys of the match with a missing `fc_norm` filled, and a note on that.

    A network trained on masked images normalizes its tokens; timm's EVA normalizes their average,
    and takes the same weights, as here.
    """
    pairs = {f"fc_norm.{end}": f"norm.{end}" for end in ("weight", "bias")}
    masked = f"{found.prefix}mask_token" in tensors
    is_missing = pairs.keys() <= spec.wanted.keys() and not pairs.keys() & found.keys.keys()
    is_eva = spec.config.timm is not None and timm_module(spec.config.timm["model_name"]) == "eva"
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
    configs = [_default_config(name, size) for size in _default_sizes(name)]
    if not name.startswith(TORCHVISION):
        small = _default_config(name, 32)
        if small.conv1 is not None:
            configs.append(small)
    return tuple(architecture_spec(architecture, config) for config in configs)


def architecture_spec(architecture: str, config: EncoderConfig) -> ArchitectureSpec:
    """Return the spec of an architecture; its tensors take no memory."""
    with on_meta():
        network = build_from_config(config).backbone
    wanted = {k: x for k, x in network.state_dict().items() if not _NOT_FEATURES.search(k)}
    return ArchitectureSpec(architecture, config, wanted, first_weight(network))


def _default_sizes(name: str) -> list[int]:
    name = split_arguments(name)[0]
    of_timm = name not in (*LIBRARY_NETWORKS, *VARIANTS) and not name.startswith(TORCHVISION)
    cfg = published_cfg(name) if of_timm else None
    if cfg is None or not cfg.fixed_input_size:
        return [224]
    return list(dict.fromkeys((224, cfg.input_size[-1])))


def _default_config(name: str, image_size: int) -> EncoderConfig:
    """Return the configuration with the usual mean and deviation of such weights."""
    if name.startswith(TORCHVISION):
        mean, std = published_normalization(name.removeprefix(TORCHVISION))
        return encoder_config(name, InputSpec(image_size=image_size, mean=mean, std=std))
    config = encoder_config(name, InputSpec(image_size=image_size))
    if config.timm is None:
        return config
    cfg = published_cfg(config.timm["model_name"])
    if cfg is None:
        return config
    return encoder_config(name, InputSpec(image_size=image_size, mean=cfg.mean, std=cfg.std))


class _Found(NamedTuple):
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
    """Return the prefix with most matches of the architecture, and these matches."""
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
    unused = {}
    for end, key in below.items():
        layer = end.split(".")[0]
        # Heads of others are left out, but not what a vision transformer adds to its tokens.
        is_of_network = layer in layers or (spec.first == PATCHES and _OF_TOKENS.search(layer))
        is_left_out = _NOT_FEATURES.search(end) or _CLASSIFIER.search(end)
        if end not in keys and is_of_network and not is_left_out:
            unused[end] = key
    others = tuple(name for name in best if name != prefix)
    return _Found(prefix, keys, others, unused)


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
