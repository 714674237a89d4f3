"""Weights that another library wrote: timm, torchvision, lightly, solo-learn, Lightning.

Such a file names its tensors but not its architecture. Tensors are found by shape and by the end
of their names, below one common prefix such as `state_dict.backbone.`; a network that was made an
`nn.Sequential` of its children gets their names back by order. The architecture is the one that
fits best among a few common ones, or the one that the caller names.
"""

import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import timm
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
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
from widefield.encoders.files import no_numbers
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

DEEPEST = 50
"""Dots in a tensor's path at most."""

Tensors = Mapping[str, Tensor]


class _Skeleton(NamedTuple):
    """An architecture, how to build it, and its tensors without values."""

    architecture: str
    config: EncoderConfig | None
    wanted: Tensors
    first: str
    """Name of the input layer's weights."""


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
    others: tuple[str, ...]
    """Other prefixes below which the file holds as many, such as those of a student."""
    unused: tuple[str, ...]
    """Tensors of the file that belong to layers of the architecture, and do not fit it."""
    first: str
    """Name of the input layer's weights in the architecture."""
    config: EncoderConfig | None
    """Configuration to build it from; None for torchvision's."""

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
        return f"{self.architecture}: {'; '.join(rest)}"

    @property
    def share(self) -> float:
        """Share of the architecture's tensors, and of the file's for its layers, that fit."""
        return len(self.keys) / (self.wanted + len(self.unused))

    @property
    def fits(self) -> bool:
        """Whether enough was found, the input layer among it, and nothing has another shape."""
        return self.share >= ENOUGH and self.first in self.keys and not self.other_shapes

    @property
    def other_shapes(self) -> list[str]:
        """Tensors of the architecture that the file has in another shape."""
        return [name for name in self.random if name in self.unused]


def load_foreign(
    path: str | Path, architecture: str | None = None, *, prefix: str | None = None
) -> tuple[Encoder | VisionEncoder, Match]:
    """Load the encoder in a file of weights, on the CPU in evaluation mode.

    Args:
        path: a `.safetensors` file, or one that `torch.load(weights_only=True)` reads.
        architecture: a timm model, or `torchvision:NAME`; by default the best of `COMMON`.
        prefix: text before the encoder's names in the file; by default the one with most of its
            tensors, a teacher's before others. `NAME#PREFIX` as the architecture says both.

    Returns:
        The encoder, and which tensors were matched.

    Raises:
        ValueError: the file cannot be read, or holds too little of any architecture.
    """
    tensors = read_tensors(Path(path))
    if architecture is not None and "#" in architecture:
        architecture, _, prefix = architecture.partition("#")
    if prefix is not None:
        tensors = {key: x for key, x in tensors.items() if key.startswith(prefix)}
    names = (architecture,) if architecture else COMMON
    matches = [match(tensors, skeleton) for name in names for skeleton in _skeletons(name)]
    best = max(matches, key=lambda fit: (fit.fits, len(fit.keys), fit.share))
    if not best.fits:
        raise ValueError(f"{path} fits no encoder: {_misfit(best)}")
    broken = no_numbers({key: tensors[key] for key in best.keys.values()})
    if broken is not None:
        raise ValueError(f"{path}: tensor {broken!r} holds NaN or infinity: save the weights again")
    with seeded(0):
        encoder = build(best.architecture, best.config)
    weights = {key: tensors[file_key] for key, file_key in best.keys.items()}
    encoder.backbone.load_state_dict(weights, strict=False)
    return encoder.eval(), best


def _misfit(best: Match) -> str:
    """Return why not even the nearest architecture will do."""
    told = "append @NAME to the file, NAME being a timm model or torchvision:NAME"
    found = f"the nearest, {best.architecture}, finds {len(best.keys)} of its {best.wanted} tensors"
    if best.other_shapes and best.share >= ENOUGH:
        return f"{found} there, and others in another shape: {_some(best.other_shapes)}; {told}"
    if best.share >= ENOUGH:
        return f"{found} there, and not its input layer, {best.first}; {told}"
    strange = [name for name in best.unused if name not in best.random]
    unused = f" and has no place for {_some(strange)}" if strange else ""
    return f"{found} there{unused}; {told}"


def _some(names: Sequence[str]) -> str:
    """Return the first of the names, and how many there are."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f"{', '.join(names[:3])}{more}"


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
    except MemoryError:
        raise
    # Whatever torch makes of a file that holds no weights: its errors have no common class.
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0][:80]
        raise ValueError(
            f"{path} cannot be read as plain weights ({reason}): save its state_dict() again; "
            "files that hold code are never run"
        ) from None
    tensors = dict(_leaves(content, ""))
    if not tensors:
        raise ValueError(f"{path} holds no tensors: give a state-dict file")
    return tensors


def match(tensors: Tensors, skeleton: _Skeleton) -> Match:
    """Find the tensors of an architecture among those of a file."""
    wanted = skeleton.wanted
    found = _below_best_prefix(wanted, {key: key for key in tensors}, tensors)
    for renamed in _taken_apart(wanted, tensors):
        other = _below_best_prefix(wanted, renamed, tensors)
        if len(other.keys) > len(found.keys):
            found = other
    return Match(
        architecture=skeleton.architecture,
        keys=found.keys,
        random=tuple(key for key in wanted if key not in found.keys),
        prefix=found.prefix,
        others=found.others,
        unused=found.unused,
        first=skeleton.first,
        config=skeleton.config,
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
            network = build(architecture, config).backbone
        wanted = {key: x for key, x in network.state_dict().items() if not _is_counter(key)}
        skeletons.append(_Skeleton(architecture, config, wanted, _first_weight(network)))
    return tuple(skeletons)


def _is_counter(key: str) -> bool:
    """Return whether a tensor only counts batches, which an encoder does not need."""
    return key.endswith("num_batches_tracked")


def _first_weight(network: nn.Module) -> str:
    """Return the name of the weights that the pixels come to first: those that see channels."""
    layers = (
        name for name, part in network.named_modules() if isinstance(part, nn.Conv2d | nn.Linear)
    )
    return f"{next(layers)}.weight"


def _foreign_config(name: str, image_size: int) -> EncoderConfig:
    """Return the configuration with the mean and deviation that such weights are trained with."""
    config = encoder_config(name, image_size=image_size)
    if config.timm is None:
        return config
    facts = timm.get_pretrained_cfg(config.timm["model_name"])
    if facts is None:
        return config
    return encoder_config(name, image_size=image_size, mean=facts.mean, std=facts.std)


class _Found(NamedTuple):
    """What was found below a prefix."""

    prefix: str
    keys: dict[str, str]
    """Name in the architecture -> key in the file."""
    others: tuple[str, ...]
    """Other prefixes below which as much is found."""
    unused: tuple[str, ...]
    """Names in layers of the architecture that it has no place for."""


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
    layers = {end.split(".")[0] for end in wanted}
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


def _leaves(node: Any, path: str) -> Iterator[tuple[str, Tensor]]:
    """Yield every dense tensor in nested mappings, with its dotted path.

    Mappings that hold themselves end at a depth that no file of weights has.
    """
    if isinstance(node, Tensor):
        if node.layout == torch.strided and node.device.type == "cpu" and not node.is_quantized:
            yield path.removesuffix("."), node
    elif isinstance(node, Mapping) and path.count(".") < DEEPEST:
        for key, child in node.items():
            yield from _leaves(child, f"{path}{key}.")


def _in_torch_hub(url: str) -> Path | None:
    """Return the file that torch's hub downloaded from `url`, if it is there."""
    file = Path(torch.hub.get_dir()) / "checkpoints" / url.rsplit("/", 1)[-1]
    return file if file.is_file() else None
