"""Weights of other libraries, in a file or a module: timm, torchvision, lightly, solo-learn, ...

The names of transformers, open_clip, DINOv2 and DINOv3 are translated to timm's. The architecture
is the best match among the vision transformer of these shapes or a few common ones, or given by
name.
"""

import copy
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from widefield.core.form import InputSpec
from widefield.core.names import check_name
from widefield.core.rng import seeded
from widefield.encoders.config import SOLO_LEARN_PADDING, encoder_config, in_timm, timm_module
from widefield.encoders.encoder import Encoder, build_from_config
from widefield.encoders.own import image_side, register_network
from widefield.encoders.vision import TORCHVISION
from widefield.encoders.weights.files import first_invalid
from widefield.encoders.weights.key_maps import rename_to_timm
from widefield.encoders.weights.match import (
    ArchitectureSpec,
    Tensors,
    WeightMatch,
    architecture_specs,
    best_match,
    load_matched,
    match,
)
from widefield.encoders.weights.normalization import (
    NORMALIZATIONS,
    Normalization,
    guessed_normalization,
    is_solo_learn,
    module_normalization,
    recorded_normalization,
    states_quick_gelu,
)
from widefield.encoders.weights.tensors import read_tensors
from widefield.encoders.weights.vit_names import inferred_arguments, vit_names, with_arguments

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
SOLO_LEARN = "solo-learn:"
"""Prefix of architectures whose small first layer is padded by 2, as in solo-learn."""
# Chosen by hand: the rounding of float32 is below it. Above it is another number of heads, also of
# random weights, whose attention is nearly uniform.
_SAME = 1e-4
"""Relative distance of features up to which a module is the network of its weights."""
_OTHER_SHAPES = 4
"""Shapes that may differ from an architecture's: first layer, positions, a norm of both names."""


def load_foreign(
    path: str | Path, architecture: str | None = None, *, published: bool = False
) -> tuple[Encoder, WeightMatch]:
    """Load the encoder in a file of weights, on the CPU in evaluation mode.

    Args:
        path: a `.safetensors` file, or one that `torch.load(weights_only=True)` reads.
        architecture: a timm model, `solo-learn:NAME` for one with that library's small first
            layer, or `torchvision:NAME`; by default the best of `COMMON_ARCHITECTURES`. In
            `NAME#PREFIX~NORMALIZATION`, PREFIX is the text before the encoder's names in the file,
            by default the one with most of its tensors, a teacher's before others; NORMALIZATION
            is one of `NORMALIZATIONS`, by default what the folder of the file states, or a guess.
        published: whether the weights are those that timm or torchvision publish by this name.
    """
    name, explicit, normalization = (architecture or "").partition("~")
    name, _, prefix = name.partition("#")
    if explicit:
        check_name("normalization", normalization, NORMALIZATIONS)
    tensors = read_tensors(Path(path))
    known = inferred_arguments(tensors)
    every = tensors = rename_to_timm(tensors)
    by_name = name.startswith(SOLO_LEARN)
    solo_learn = by_name or is_solo_learn(tensors)
    tensors = {key: x for key, x in tensors.items() if key.startswith(prefix)}
    name = name.removeprefix(SOLO_LEARN)
    names = (_with_inferred(name, known),) if name else candidate_names(tensors, known)
    best = best_match(
        path,
        tensors,
        [fit for each in names for fit in architecture_specs(each)],
        named=bool(name),
    )
    _check_activation(path, best)
    if by_name or (solo_learn and not name):
        best = _with_solo_learn_padding(best)
    if explicit:
        best = best.normalized(NORMALIZATIONS[normalization])
    elif not (published or _is_tagged(name)):
        recorded = recorded_normalization(Path(path))
        best = _with_expected(best, recorded, every, solo_learn=solo_learn)
    return load_matched(tensors, best), best


def _check_activation(path: str | Path, found: WeightMatch) -> None:
    name = found.architecture
    if not states_quick_gelu(Path(path)) or "quickgelu" in name or "quick_gelu" in name:
        return
    other = name.replace("_clip_", "_clip_quickgelu_")
    other = other if in_timm(other) and other != name else f"{name},act_layer=quick_gelu"
    raise ValueError(
        f"{path} has the activation quick_gelu, by its configuration, and {name} has not: append "
        f"@{other} to the file"
    )


def candidate_names(tensors: Tensors, known: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the architectures that tensors by timm's names are compared with."""
    return tuple(vit_names(tensors, known)) or COMMON_ARCHITECTURES


def _with_inferred(name: str, known: Mapping[str, Any]) -> str:
    """Return the name with the arguments of the code that wrote the file, for its family."""
    model = name.removeprefix("timm:").partition(",")[0]
    family = timm_module(model) if known and in_timm(model) else ""
    allowed = {
        "vision_transformer": ["norm_eps", "num_heads", "global_pool"],
        "eva": ["global_pool", "rope_periods"],
    }
    return with_arguments(name, {k: v for k, v in known.items() if k in allowed.get(family, ())})


def _with_solo_learn_padding(found: WeightMatch) -> WeightMatch:
    if found.config.conv1 is None:
        return found
    padded = {**found.config.conv1, "padding": SOLO_LEARN_PADDING}
    return replace(found, config=replace(found.config, conv1=padded))


def _with_expected(
    found: WeightMatch, recorded: Normalization | None, tensors: Tensors, *, solo_learn: bool
) -> WeightMatch:
    config = found.config
    if recorded is not None and len(recorded[0]) == config.channels:
        return found.normalized(recorded)
    default, cifar = (config.mean, config.std), solo_learn and config.conv1 is not None
    guess = guessed_normalization(tensors, found.prefix, default, cifar=cifar)
    return found.normalized(guess, guessed=True)


def _is_tagged(architecture: str) -> bool:
    """Return whether a name states which of timm's weights it means, as `NAME.TAG`."""
    return "." in architecture.partition(",")[0] and not architecture.startswith(TORCHVISION)


def load_module(module: nn.Module) -> Encoder:
    """Return an encoder with the weights of a module, which is not changed.

    The architecture is that in the configuration of a timm model, or the one among the usual ones
    whose weights have these shapes, because a resumed run has to build its encoder again. Any other
    module is a network of one's own (`encoders/own.py`). The encoder normalizes images as
    `module_normalization` says, or as usual for these weights.
    """
    tensors = {name: value.detach().cpu() for name, value in module.state_dict().items()}
    cfg = getattr(module, "pretrained_cfg", None)
    known = cfg.get("architecture") if isinstance(cfg, dict) else None
    if isinstance(known, str) and in_timm(known):
        names: tuple[str, ...] = (known,)
    else:
        arguments = inferred_arguments(tensors)
        tensors = rename_to_timm(tensors)
        try:
            names = candidate_names(tensors, arguments)
        except ValueError:  # a vision transformer of unknown heads
            return custom_encoder(module)
    name = type(module).__name__
    candidates = [fit for architecture in names for fit in architecture_specs(architecture)]
    candidates = [spec for spec in candidates if _has_shapes(tensors, spec)]
    if not any(match(tensors, spec).is_match for spec in candidates):
        return custom_encoder(module)
    best = best_match(f"the module {name}", tensors, candidates)
    normalization, guessed = module_normalization(module)
    default = (best.config.mean, best.config.std)
    encoder = load_matched(tensors, best.normalized(normalization or default, guessed=guessed))
    return encoder if _outputs_match(module, encoder) else custom_encoder(module)


@torch.no_grad()
def _outputs_match(module: nn.Module, encoder: Encoder) -> bool:
    """Return whether a module gives the features of an encoder, or one of its layers has them.

    Heads, strides, activations and pooling show in no weights. What cannot be compared agrees.
    """
    size = (encoder.config.channels, *encoder.config.image_size)
    x = torch.rand(2, *size, generator=torch.Generator().manual_seed(0))
    expected = encoder.backbone(x)
    found: list[Tensor] = []

    def keep(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        tensors = [value for value in (*inputs, output) if isinstance(value, Tensor)]
        found.extend(value for value in tensors if value.shape == expected.shape)

    try:
        copied = copy.deepcopy(module).cpu().float().eval()
        for part in copied.modules():
            part.register_forward_hook(keep)
        copied(x)
    except Exception:  # of a module that takes something else
        return True
    return not found or any((f - expected).norm() <= _SAME * expected.norm() for f in found)


def _has_shapes(tensors: Mapping[str, Tensor], spec: ArchitectureSpec) -> bool:
    """Return whether most shapes of an architecture are there, before names are compared."""
    wanted = Counter(tuple(x.shape) for x in spec.wanted.values())
    missing = wanted - Counter(tuple(x.shape) for x in tensors.values())
    return missing.total() <= _OTHER_SHAPES


def custom_encoder(network: str | nn.Module) -> Encoder:
    """Return the encoder of a network of one's own, with the weights that it has."""
    custom = register_network(network)
    with seeded(0):
        module = custom.build()
    invalid = first_invalid(module.state_dict())
    if invalid is not None:
        raise ValueError(
            f"the module {type(module).__name__}: tensor {invalid!r} holds NaN or infinity: give "
            "other weights"
        )
    normalization, guessed = module_normalization(module)
    layers = (x for x in module.state_dict().values() if x.ndim == 4)
    channels = next((x.shape[1] for x in layers), 3)
    mean, std = normalization or ((0.0,) * channels, (1.0,) * channels)
    inputs = InputSpec(
        channels=channels,
        image_size=image_side(module, channels),
        mean=mean,
        std=std,
        guessed=guessed,
    )
    with seeded(0):
        return build_from_config(encoder_config(custom.name, inputs)).eval()
