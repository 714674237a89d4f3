"""Maps of weight names from transformers, open_clip, DINOv2 and DINOv3 to timm.

Vision transformers of transformers first get the names of Meta's own files, then those of timm.
"""

import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Rules = tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]
"""Patterns of names and their replacements, applied in order."""

_HF_BLOCK: Rules = (
    (r"(attention|self_attn)\.q_proj\.", "attn.query."),
    (r"(attention|self_attn)\.k_proj\.", "attn.key."),
    (r"(attention|self_attn)\.v_proj\.", "attn.value."),
    (r"(attention|self_attn)\.(o|out)_proj\.", "attn.proj."),
    (r"mlp\.gate_proj\.", "mlp.w1."),
    (r"mlp\.down_proj\.", "mlp.w3."),
    (r"layer_scale([12])\.lambda1$", r"ls\1.gamma"),
)

HF_VIT: Rules = (
    (r"embeddings\.(cls_token|mask_token|register_tokens)$", r"\1"),
    (r"embeddings\.position_embeddings$", "pos_embed"),
    (r"embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"^(encoder\.layer|layers)\.(\d+)\.", r"blocks.\2."),
    (r"layernorm_before\.", "norm1."),
    (r"layernorm_after\.", "norm2."),
    (r"attention\.attention\.(query|key|value)\.", r"attn.\1."),
    (r"attention\.output\.dense\.", "attn.proj."),
    *_HF_BLOCK,
    (r"intermediate\.dense\.", "mlp.fc1."),
    (r"(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    (r"mlp\.up_proj\.", "mlp.w2."),
    (r"mlp\.weights_in\.", "mlp.w12."),
    (r"mlp\.weights_out\.", "mlp.w3."),
    (r"layernorm\.", "norm."),
)

HF_DINOV3: Rules = (
    (r"embeddings\.(cls_token|mask_token)$", r"\1"),
    (r"embeddings\.register_tokens$", "storage_tokens"),
    (r"embeddings\.patch_embeddings\.", "patch_embed.proj."),
    (r"^(model\.)?layer\.(\d+)\.", r"blocks.\2."),
    *_HF_BLOCK,
)

HF_RESNET: Rules = (
    (r"embedder\.embedder\.convolution\.", "conv1."),
    (r"embedder\.embedder\.normalization\.", "bn1."),
    (r"encoder\.stages\.(\d+)\.layers\.", lambda found: f"layer{int(found[1]) + 1}."),
    (r"shortcut\.convolution\.", "downsample.0."),
    (r"shortcut\.normalization\.", "downsample.1."),
    (r"\.layer\.(\d)\.convolution\.", lambda found: f".conv{int(found[1]) + 1}."),
    (r"\.layer\.(\d)\.normalization\.", lambda found: f".bn{int(found[1]) + 1}."),
)

HF_CLIP: Rules = (
    (r"embeddings\.class_embedding$", "cls_token"),
    (r"embeddings\.position_embedding\.weight$", "pos_embed"),
    (r"embeddings\.patch_embedding\.", "patch_embed.proj."),
    (r"pre_layrnorm\.", "norm_pre."),
    (r"encoder\.layers\.(\d+)\.", r"blocks.\1."),
    (r"layer_norm([12])\.", r"norm\1."),
    *_HF_BLOCK,
    (r"post_layernorm\.", "norm."),
)

OPEN_CLIP: Rules = (
    (r"class_embedding$", "cls_token"),
    (r"positional_embedding$", "pos_embed"),
    (r"conv1\.", "patch_embed.proj."),
    (r"ln_pre\.", "norm_pre."),
    (r"transformer\.resblocks\.(\d+)\.", r"blocks.\1."),
    (r"ln_([12])\.", r"norm\1."),
    (r"attn\.in_proj_(weight|bias)$", r"attn.qkv.\1"),
    (r"attn\.out_proj\.", "attn.proj."),
    (r"mlp\.c_fc\.", "mlp.fc1."),
    (r"mlp\.c_proj\.", "mlp.fc2."),
    (r"ln_post\.", "norm."),
)

KEY_MAPS: tuple[tuple[str, Rules], ...] = (
    (r"(^|\.)vision_model\.embeddings\.class_embedding$", HF_CLIP),
    (r"(^|\.)visual\.class_embedding$", OPEN_CLIP),
    (r"(^|\.)embeddings\.patch_embeddings\.projection\.weight$", HF_VIT),
    (r"(^|\.)embeddings\.patch_embeddings\.weight$", HF_DINOV3),
    (r"(^|\.)embedder\.embedder\.convolution\.weight$", HF_RESNET),
)
"""Pattern of a name that identifies the format, and its rules."""


_SWIN_DOWN = re.compile(r"(^|\.)layers\.(\d+)\.downsample\.(?=norm\.|reduction\.)")
"""What joins patches in a Swin: timm has it before the next stage, its authors behind one."""


def rename_to_timm(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of transformers, open_clip, DINOv2, DINOv3 or Swin under timm's names.

    Prefixes stay. Queries, keys and values are joined into one tensor, as in timm. Of CLIP models
    only the image encoder is renamed.
    """
    for pattern, rules in KEY_MAPS:
        found = next((match for key in tensors if (match := re.search(pattern, key))), None)
        if found is not None:
            prefix = found.string[: found.start()] + found[1]
            tensors = _merged(_renamed(tensors, prefix, rules))
            break
    if any(found[2] == "0" for key in tensors if (found := _SWIN_DOWN.search(key))):
        tensors = {
            _SWIN_DOWN.sub(
                lambda found: f"{found[1]}layers.{int(found[2]) + 1}.downsample.", key
            ): x
            for key, x in tensors.items()
        }
    renamed = dict(tensors)
    for prefix in vit_prefixes(tensors):
        below = {key[len(prefix) :]: renamed.pop(key) for key in tensors if key.startswith(prefix)}
        names = _from_dinov3(below) if ROTARY & below.keys() else _from_dinov2(below)
        renamed |= {prefix + name: value for name, value in names.items()}
    return renamed


PATCHES = "patch_embed.proj.weight"
"""Weights of the patches, the first layer of a vision transformer."""
PERIODS = "rope_embed.periods"
"""Periods of DINOv3's rotary positions."""
ROTARY = {PERIODS, "storage_tokens"}
"""Names of DINOv3 alone."""


def vit_prefixes(tensors: Mapping[str, Tensor]) -> list[str]:
    """Return the text before the names of each vision transformer, the longest first."""
    found = [key.removesuffix(PATCHES) for key in tensors if key.endswith(PATCHES)]
    return sorted((p for p in found if not p or p.endswith(".")), key=len, reverse=True)


def _from_dinov2(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of one of Meta's DINOv2, or of another vision transformer.

    Blocks may lie in chunks, `blocks.CHUNK.NUMBER`. Registers get no position embedding, so timm
    adds that of the class token to the token itself.
    """
    names = {}
    for name, value in tensors.items():
        if "blocks.0.0.norm1.weight" in tensors:
            name = re.sub(r"^blocks\.\d+\.(\d+)\.", r"blocks.\1.", name)
        if ".mlp.w1." in name and name.replace("w1.", "w2.") in tensors:
            value = torch.cat([value, tensors[name.replace("w1.", "w2.")]])
            name = name.replace("w1.", "w12.")
        if ".mlp.w2." not in name or name.replace("w2.", "w1.") not in tensors:
            names[name.replace("mlp.w12.", "mlp.fc1.").replace("mlp.w3.", "mlp.fc2.")] = value
    if {"register_tokens", "pos_embed", "cls_token"} <= names.keys():
        names["reg_token"] = names.pop("register_tokens")
        names["cls_token"] = names["cls_token"].float() + names["pos_embed"][:, :1].float()
        names["pos_embed"] = names["pos_embed"][:, 1:]
    return names


def _from_dinov3(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of one of Meta's DINOv3.

    Its keys have no bias, by a mask. A bias of keys in the file finds no place in timm's network.
    """
    gated = any(".mlp.w1." in name for name in tensors)
    names = {}
    for name, value in tensors.items():
        name = name.replace("mlp.up_proj.", "mlp.w2." if gated else "mlp.fc1.")
        if name.endswith("bias_mask") or (name == "storage_tokens" and not value.numel()):
            continue
        if name.endswith("attn.qkv.bias"):
            query, key, value = (value * tensors.get(f"{name}_mask", 1)).chunk(3)
            if not bool((key == 0).all()):
                names[name.replace("qkv.bias", "k_bias")] = key
            names[name.replace("qkv.bias", "q_bias")] = query
            name = name.replace("qkv.bias", "v_bias")
        for pattern, replacement in _DINOV3:
            name = re.sub(pattern, replacement, name)
        names[name] = value
    return names


_DINOV3: Rules = (
    (r"storage_tokens$", "reg_token"),
    (r"ls([12])\.gamma$", r"gamma_\1"),
    (r"mlp\.w1\.", "mlp.fc1_g."),
    (r"mlp\.w2\.", "mlp.fc1_x."),
    (r"mlp\.w3\.", "mlp.fc2."),
    (r"attn\.query\.bias$", "attn.q_bias"),
    (r"attn\.key\.bias$", "attn.k_bias"),
    (r"attn\.value\.bias$", "attn.v_bias"),
)


def _renamed(tensors: Mapping[str, Tensor], prefix: str, rules: Rules) -> dict[str, Tensor]:
    if rules is OPEN_CLIP:
        prefix += "visual."
    if rules is HF_CLIP:
        prefix += "vision_model."
    renamed = {}
    for key, value in tensors.items():
        name = key.removeprefix(prefix)
        if key.startswith(prefix):
            for pattern, replacement in rules:
                name = re.sub(pattern, replacement, name)
            key = prefix + name
            if name == "cls_token":
                value = value.reshape(1, 1, -1)
            if name == "pos_embed" and value.ndim == 2:
                value = value[None]
        renamed[key] = value
    return renamed


def _merged(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    merged = dict(tensors)
    for key in tensors:
        prefix, middle, end = key.rpartition("attn.query.")
        parts = [f"{prefix}attn.{name}.{end}" for name in ("query", "key", "value")]
        if middle and all(part in merged for part in parts):
            merged[f"{prefix}attn.qkv.{end}"] = torch.cat([merged.pop(part) for part in parts])
    return merged
