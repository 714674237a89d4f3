"""Adaptation of an encoder to images of another size or with other channels.

The first convolution is summed over channels or repeated, position embeddings and patches are
resampled, as in timm; those of DINOv2 as in its authors' code. Other weights do not change.
"""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from widefield.core.errors import option
from widefield.core.form import Form, InputSpec
from widefield.core.rng import seeded
from widefield.core.types import Size, as_size
from widefield.encoders.config import EncoderConfig, encoder_config
from widefield.encoders.dictionary_net import DictionaryNet
from widefield.encoders.encoder import Encoder, build_from_config
from widefield.encoders.layers import first_weight
from widefield.encoders.names import is_custom
from widefield.encoders.weights.normalization import per_channel

POSITIONS = ("pos_embed", "encoder.pos_embedding")
"""Names of position embeddings [1, tokens, D], with other tokens before the patches."""


def adapt_encoder(encoder: Encoder, form: Form) -> tuple[Encoder, tuple[str, ...]]:
    """Return a copy of an encoder for images of another form, and a line for each change.

    Channels and size of the form are known.

    Its mean and deviation stay, and are no guess for what is trained with them; one channel gets
    their means, further ones repeat them.
    """
    before = encoder.config
    config = adapted_config(before, form)
    channels = config.channels
    if channels != before.channels and isinstance(encoder.backbone, DictionaryNet):
        raise ValueError(
            f"the dictionary of {before.name} is for {before.channels} channels, and these images "
            f"have {channels}: give images of {before.channels} channels, or train a new encoder"
        )
    with seeded(0):  # its random weights are replaced below
        result = build_from_config(config)
    wanted, weights = result.backbone.state_dict(), encoder.backbone.state_dict()
    adapted_weights, notes = dict[str, Tensor](), list[str]()
    first = "" if is_custom(config.name) else first_weight(result.backbone)
    if channels != before.channels:
        method = "summed over them" if channels == 1 else "repeated over them, at the same sum"
        notes.append(f"{before.channels} channels became {channels}: the first layer is {method}")
    for name, value in weights.items():
        value = value.detach().cpu()
        if name == first and channels != before.channels:
            value = _with_channels(value, channels)
        if value.shape != wanted[name].shape:
            value, note = _resized(name, value, wanted[name].shape, encoder, result)
            notes.append(note)
        adapted_weights[name] = value
    result.backbone.load_state_dict(adapted_weights)
    return result.train(encoder.training), tuple(notes)


def adapted_config(before: EncoderConfig, form: Form) -> EncoderConfig:
    """Return the configuration of the same architecture for images of another form."""
    if (form.channels, form.size) == (before.channels, before.image_size):
        fit = "crop" if form.fit is None else form.fit
        return replace(before, black_white=form.black_white, fit=fit, guessed=False)
    assert form.channels is not None
    inputs = InputSpec.of_form(
        replace(form, rate=before.rate),
        mean=per_channel(before.mean, form.channels),
        std=per_channel(before.std, form.channels),
    )
    config = encoder_config(
        before.name,
        inputs,
        stem=before.stem,  # type: ignore[arg-type]
        zero_init_last=(before.timm or {}).get("zero_init_last", True) is not False,
    )
    if before.conv1 is None or config.conv1 is None:
        return config
    # Weights of other libraries may have another padding of the first layer.
    return replace(config, conv1={**config.conv1, "padding": before.conv1["padding"]})


def _with_channels(weight: Tensor, channels: int) -> Tensor:
    before = weight.shape[1]
    if channels == 1:
        return weight.sum(1, keepdim=True)
    return weight[:, torch.arange(channels) % before] * (before / channels)


def _resized(
    name: str, value: Tensor, shape: Sequence[int], before: Encoder, after: Encoder
) -> tuple[Tensor, str]:
    # Positions may have four dimensions too, and are no patches.
    if name == first_weight(before.backbone) and value.shape[:2] == shape[:2]:
        (h, w), (height, width) = value.shape[2:], shape[2:]
        note = f"patches of {h}x{w} pixels became {height}x{width}: resampled"
        from timm.layers.patch_embed import resample_patch_embed

        return resample_patch_embed(value, [height, width]), note
    if name in POSITIONS and value.ndim == 3 and value.shape[2] == shape[2]:
        resampled = _resampled(value, _grid(before), _grid(after), before.config)
        return resampled, f"{value.shape[1]} position embeddings became {shape[1]}: resampled"
    height, width = before.config.image_size
    raise ValueError(
        f"{before.config.name} cannot be adapted to images of another size: {name!r} has shape "
        f"{list(value.shape)} and would need {list(shape)}; leave {option('image_size')} out or "
        f"give {height}"
    )


def _resampled(
    positions: Tensor, old: tuple[int, int], new: tuple[int, int], config: EncoderConfig
) -> Tensor:
    """Return position embeddings [1, tokens, D] for another grid, bicubic.

    The authors of DINOv2 did not antialias before they had registers, and scaled by
    (new + 0.1) / old.
    """
    prefix = positions.shape[1] - old[0] * old[1]
    model = (config.timm or {}).get("model_name", "")
    if not model.endswith("_dinov2") or "_reg4_" in model:
        from timm.layers.pos_embed import resample_abs_pos_embed

        return resample_abs_pos_embed(positions, list(new), list(old), num_prefix_tokens=prefix)
    patches = positions[:, prefix:].float().reshape(1, *old, -1).permute(0, 3, 1, 2)
    scale = [(size + 0.1) / before for size, before in zip(new, old, strict=True)]
    patches = F.interpolate(patches, scale_factor=scale, mode="bicubic")
    return torch.cat([positions[:, :prefix], patches.flatten(2).transpose(1, 2)], dim=1)


def _grid(encoder: Encoder) -> Size:
    patches = getattr(encoder.backbone, "patch_embed", None)
    if patches is not None:  # of timm, whose first layer may be that of a ResNet before the patches
        return as_size(patches.grid_size)
    weight = encoder.backbone.state_dict()[first_weight(encoder.backbone)]
    height, width = encoder.config.image_size
    return height // weight.shape[2], width // weight.shape[3]
