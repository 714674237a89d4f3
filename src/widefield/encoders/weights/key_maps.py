"""Maps of weight names from Hugging Face's transformers and open_clip to timm."""

import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

Rules = tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...]
"""Patterns of names and their replacements, applied in order."""

HF_VIT: Rules = (
    (r"embeddings\.cls_token$", "cls_token"),
    (r"embeddings\.position_embeddings$", "pos_embed"),
    (r"embeddings\.patch_embeddings\.projection\.", "patch_embed.proj."),
    (r"encoder\.layer\.(\d+)\.", r"blocks.\1."),
    (r"layernorm_before\.", "norm1."),
    (r"layernorm_after\.", "norm2."),
    (r"attention\.attention\.(query|key|value)\.", r"attn.\1."),
    (r"attention\.output\.dense\.", "attn.proj."),
    (r"intermediate\.dense\.", "mlp.fc1."),
    (r"(blocks\.\d+)\.output\.dense\.", r"\1.mlp.fc2."),
    (r"layer_scale([12])\.lambda1$", r"ls\1.gamma"),  # DINOv2
    (r"layernorm\.", "norm."),
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
    (r"self_attn\.q_proj\.", "attn.query."),
    (r"self_attn\.k_proj\.", "attn.key."),
    (r"self_attn\.v_proj\.", "attn.value."),
    (r"self_attn\.out_proj\.", "attn.proj."),
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
    (r"(^|\.)embedder\.embedder\.convolution\.weight$", HF_RESNET),
)
"""Pattern of a name that identifies the format, and its rules."""


def rename_to_timm(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors of transformers or open_clip under timm's names.

    Prefixes stay. Queries, keys and values are joined into one tensor, as in timm. Of CLIP models
    only the image encoder is renamed.

    Example:
        >>> names = ["vit.embeddings.patch_embeddings.projection.weight", "vit.layernorm.bias"]
        >>> list(rename_to_timm(dict.fromkeys(names, torch.zeros(1))))
        ['vit.patch_embed.proj.weight', 'vit.norm.bias']
    """
    for pattern, rules in KEY_MAPS:
        found = next((match for key in tensors if (match := re.search(pattern, key))), None)
        if found is not None:
            prefix = found.string[: found.start()] + found[1]
            return _merged(_renamed(tensors, prefix, rules))
    return dict(tensors)


def _renamed(tensors: Mapping[str, Tensor], prefix: str, rules: Rules) -> dict[str, Tensor]:
    """Rename the tensors of the network below `prefix`."""
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
    """Join queries, keys and values of each layer."""
    merged = {}
    for key, value in tensors.items():
        prefix, middle, end = key.rpartition("attn.query.")
        parts = [f"{prefix}attn.{name}.{end}" for name in ("query", "key", "value")]
        if middle and all(part in tensors for part in parts):
            merged[f"{prefix}attn.qkv.{end}"] = torch.cat([tensors[part] for part in parts])
        elif not re.search(r"attn\.(key|value)\.(weight|bias)$", key):
            merged[key] = value
    return merged
