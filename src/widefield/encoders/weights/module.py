"""Conversion of a `torch.nn.Module` of a known architecture to an encoder."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import timm
from torch import Tensor, nn

from widefield.core.rng import seeded
from widefield.core.types import InputSpec
from widefield.encoders.encoder import Encoder, build_from_config, encoder_config
from widefield.encoders.own import give_network, image_side
from widefield.encoders.weights.files import first_invalid
from widefield.encoders.weights.foreign import (
    ArchitectureSpec,
    architecture_specs,
    best_match,
    candidate_names,
    load_matched,
    match,
)
from widefield.encoders.weights.key_maps import rename_to_timm
from widefield.encoders.weights.normalization import module_normalization
from widefield.encoders.weights.vit_names import authors_arguments

_OTHER_SHAPES = 4
"""Shapes that may differ from an architecture's: first layer, positions, a norm of both names."""


def load_module(module: nn.Module) -> Encoder:
    """Return an encoder with the weights of a module, which is not changed.

    The architecture is that in the configuration of a timm model, or the one among the usual ones
    whose weights have these shapes, because a resumed run has to build its encoder again. Any other
    module is a network of one's own (`encoders/own.py`). The encoder normalizes images as
    `module_normalization` says, or as usual for these weights.

    Raises:
        ValueError: the weights are NaN or infinite, or the module does not return features [B, D].

    Example:
        >>> module = timm.create_model("resnet18", num_classes=10)
        >>> load_module(module).config.name
        'resnet18'
    """
    tensors = {name: value.detach().cpu() for name, value in module.state_dict().items()}
    cfg = getattr(module, "pretrained_cfg", None)
    known = cfg.get("architecture") if isinstance(cfg, dict) else None
    if isinstance(known, str) and timm.is_model(known):
        names: tuple[str, ...] = (known,)
    else:
        authors = authors_arguments(tensors)
        tensors = rename_to_timm(tensors)
        try:
            names = candidate_names(tensors, authors)
        except ValueError:  # a vision transformer of unknown heads
            return own_encoder(module)
    name = type(module).__name__
    candidates = [fit for architecture in names for fit in architecture_specs(architecture)]
    candidates = [spec for spec in candidates if _has_shapes(tensors, spec)]
    if not any(match(tensors, spec).is_match for spec in candidates):
        return own_encoder(module)
    best = best_match(f"the module {name}", tensors, candidates)
    normalization, guessed = module_normalization(module)
    mean, std = normalization or (best.config.mean, best.config.std)
    if len(mean) == best.config.channels:
        config = replace(best.config, mean=mean, std=std, guessed=guessed)
        best = replace(best, config=config)
    return load_matched(tensors, best)


def _has_shapes(tensors: Mapping[str, Tensor], spec: ArchitectureSpec) -> bool:
    """Return whether most shapes of an architecture are there, before names are compared."""
    wanted = Counter(tuple(x.shape) for x in spec.wanted.values())
    missing = wanted - Counter(tuple(x.shape) for x in tensors.values())
    return missing.total() <= _OTHER_SHAPES


def own_encoder(network: str | nn.Module) -> Encoder:
    """Return the encoder of a network of one's own, with the weights that it has.

    Args:
        network: a module, or `FILE.py:FUNCTION`, which is executed.

    Raises:
        ValueError: as `give_network`, the weights are NaN or infinite, or the network does not
            return features [B, D] of images of any usual size.
    """
    given = give_network(network)
    with seeded(0):
        module = given.build()
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
        return build_from_config(encoder_config(given.name, inputs)).eval()
