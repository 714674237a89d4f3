"""Vision transformers recognized by the names and shapes of their tensors.

Width, depth, patches, registers and the kind of MLP follow from the file. The number of heads does
not, only DINOv3's periods show it: it is that of the published network of this width, or has to be
given. Nor does a missing last block show, so a published width has the published depth.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from widefield.encoders.weights.key_maps import PATCHES, PERIODS, vit_prefixes


class Published(NamedTuple):
    name: str
    depth: int
    heads: int
    mlp_ratio: float = 4.0


PLAIN = {
    192: Published("vit_tiny_patch16_224", 12, 3),
    384: Published("vit_small_patch16_224", 12, 6),
    768: Published("vit_base_patch16_224", 12, 12),
    1024: Published("vit_large_patch16_224", 24, 16),
    1280: Published("vit_huge_patch14_224", 32, 16),
}
DINOV2 = {
    384: Published("vit_small_patch14_dinov2", 12, 6),
    768: Published("vit_base_patch14_dinov2", 12, 12),
    1024: Published("vit_large_patch14_dinov2", 24, 16),
}
DINOV2_GATED = {1536: Published("vit_giant_patch14_dinov2", 40, 24, 2.66667 * 2)}
DINOV3 = {
    384: Published("vit_small_patch16_dinov3_qkvb", 12, 6),
    768: Published("vit_base_patch16_dinov3_qkvb", 12, 12),
    1024: Published("vit_large_patch16_dinov3_qkvb", 24, 16),
}
DINOV3_GATED = {
    384: Published("vit_small_plus_patch16_dinov3_qkvb", 12, 6),
    1280: Published("vit_huge_plus_patch16_dinov3_qkvb", 32, 20),
    4096: Published("vit_7b_patch16_dinov3", 40, 32, 2.0),
}
"""Published networks of one kind by their width; others are the first with arguments."""

Arguments = Mapping[str, Any]
"""Arguments of a vision transformer, as behind its name."""


def inferred_arguments(tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return what the spelling of a file says of the code that wrote it, where timm differs.

    DINOv3's features are the class token, and its files hold their periods in bfloat16. The
    LayerNorms of transformers' ViT have an eps of 1e-12. MoCo v3's small ViT has 12 heads. Networks
    that were fine-tuned after MAE normalize the average of their tokens, by `fc_norm`.
    """
    found: dict[str, Any] = {}
    for key, value in tensors.items():
        if re.search(r"(encoder\.layer|layers)\.\d+\.layernorm_before\.weight$", key):
            found["norm_eps"] = 1e-12
        if re.search(r"(^|\.)(storage_tokens|embeddings\.patch_embeddings\.weight)$", key):
            found["global_pool"] = "token"
        if re.search(r"base_encoder\.(.*\.)?patch_embed\.proj\.weight$", key) and len(value) == 384:
            found["num_heads"] = 12
        below = key.removesuffix("fc_norm.weight")
        if below != key and f"{below}norm.weight" not in tensors:
            found["global_pool"] = "avg"
        if key.endswith(PERIODS):
            found["global_pool"] = "token"
            found |= _periods(value.float())
    return found


def _periods(periods: Tensor) -> dict[str, str]:
    """Return the argument for these periods, which are 100^(k / count), k = 0 .. count - 1."""
    count = len(periods)
    exact = 100.0 ** (2.0 * torch.arange(count, dtype=torch.float32) / (2 * count))
    if torch.allclose(periods, exact, rtol=1e-6):
        return {}
    if torch.equal(periods, exact.bfloat16().float()):
        return {"rope_periods": "bf16"}
    raise ValueError(
        f"{PERIODS} of the file are not 100^(k/{count}), as in DINOv3: its features need the code "
        "that wrote it"
    )


def with_arguments(name: str, arguments: Arguments) -> str:
    """Return a name with further arguments; those that it has stay."""
    has = {part.partition("=")[0] for part in name.split(",")}
    return ",".join([name, *(f"{k}={v}" for k, v in arguments.items() if k not in has)])


def vit_names(tensors: Mapping[str, Tensor], known: Arguments) -> list[str]:
    """Return the names of the vision transformers in a file, with their arguments."""
    names = []
    for prefix in vit_prefixes(tensors):
        below = {k.removeprefix(prefix): x for k, x in tensors.items() if k.startswith(prefix)}
        is_vit = {"blocks.0.attn.qkv.weight", "blocks.0.norm1.weight"} <= below.keys()
        if is_vit and "norm_pre.weight" not in below and below[PATCHES].ndim == 4:
            names.append(_vit_name(below, known))
    return list(dict.fromkeys(name for name in names if name is not None))


def _vit_name(tensors: Mapping[str, Tensor], known: Arguments) -> str | None:
    gate = "_g" if "blocks.0.mlp.fc1_g.weight" in tensors else ""
    first = tensors.get(f"blocks.0.mlp.fc1{gate}.weight")
    second = tensors.get("blocks.0.mlp.fc2.weight")
    if first is None or second is None:
        return None
    table = _table(tensors, gated=bool(gate) or first.shape[0] == 2 * second.shape[1])
    width, _, patch, _ = tensors[PATCHES].shape
    tokens = tensors["reg_token"].shape[1] if "reg_token" in tensors else 0
    base = table.get(width) or next(iter(table.values()))
    name, sizes = base.name, dict[str, Any]()
    if width not in table:
        blocks = [int(found[1]) for key in tensors if (found := re.match(r"blocks\.(\d+)\.", key))]
        sizes = {"depth": 1 + max(blocks), "embed_dim": width}
    sizes |= known
    if table in (DINOV2_GATED, DINOV3_GATED):
        sizes.pop("act_layer", None)  # SwiGLU has its own
    if f"_patch{patch}_" not in name:
        sizes["patch_size"] = patch
    if first.shape[0] != int(width * base.mlp_ratio):
        # timm takes int(width * ratio), and a rounded ratio must not fall below the whole number.
        sizes["mlp_ratio"] = round((first.shape[0] + 0.5) / width, 6)
    if table in (DINOV3, DINOV3_GATED):
        name = name if "blocks.0.attn.q_bias" in tensors else name.removesuffix("_qkvb")
        # Without any they are missing: every published network has 4.
        sizes |= {} if tokens in (0, 4) else {"num_reg_tokens": tokens}
        # A head rotates pairs of channels, one half by rows and the other by columns, so that it
        # has a quarter as many periods as channels.
        if PERIODS in tensors:
            sizes["num_heads"] = width // (4 * len(tensors[PERIODS]))
    elif tokens and table is not PLAIN:
        name = name.replace("_dinov2", "_reg4_dinov2")
        sizes |= {} if tokens == 4 else {"reg_tokens": tokens}
    if width not in table and "num_heads" not in sizes:
        raise ValueError(
            f"the number of attention heads of a vision transformer of width {width} is not in its "
            f"tensors: append @{with_arguments(name, sizes)},num_heads=N to the file, or open its "
            "folder with the config.json of transformers"
        )
    same: dict[str, Any] = {"norm_eps": 1e-5 if table in (DINOV3, DINOV3_GATED) else 1e-6}
    same["act_layer"] = "gelu"
    if width in table:
        same |= {"depth": base.depth, "num_heads": base.heads}
    return with_arguments(name, {k: v for k, v in sizes.items() if same.get(k) != v})


def _table(tensors: Mapping[str, Tensor], *, gated: bool) -> dict[int, Published]:
    if "pos_embed" not in tensors and "blocks.0.gamma_1" in tensors:
        return DINOV3_GATED if gated else DINOV3
    if "blocks.0.ls1.gamma" in tensors:
        return DINOV2_GATED if gated else DINOV2
    return PLAIN
