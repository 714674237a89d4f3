"""Small vision transformers as DINO, DINOv2, DINOv3 and transformers write them, and their formula.

The formula is written out from the papers and takes Meta's names, so that it shares nothing with
the networks that the library builds.
"""

import math
import re
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

State = dict[str, Tensor]
Spell = Callable[[State], State]

WIDTH, DEPTH, HEADS, PATCH, SIDE = 48, 4, 3, 14, 28


def images(height: int = SIDE, width: int = SIDE, channels: int = 3) -> Tensor:
    return torch.rand(2, channels, height, width, generator=torch.Generator().manual_seed(1))


def vit(
    *,
    width: int = WIDTH,
    depth: int = DEPTH,
    side: int = SIDE,
    channels: int = 3,
    scaled: bool = False,
) -> State:
    """A plain ViT, as of DINO or MAE; `scaled` adds DINOv2's LayerScale."""
    random = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> Tensor:
        return 0.3 * torch.randn(*shape, generator=random)

    state = {
        "cls_token": draw(1, 1, width),
        "pos_embed": draw(1, 1 + (side // PATCH) ** 2, width),
        "patch_embed.proj.weight": draw(width, channels, PATCH, PATCH) / 5,
        "patch_embed.proj.bias": draw(width),
        "norm.weight": 1 + draw(width),
        "norm.bias": draw(width),
    }
    shapes = {"attn.qkv": (3 * width, width), "attn.proj": (width, width)}
    shapes |= {"mlp.fc1": (4 * width, width), "mlp.fc2": (width, 4 * width)}
    for i in range(depth):
        for name, shape in shapes.items():
            state[f"blocks.{i}.{name}.weight"] = draw(*shape)
            state[f"blocks.{i}.{name}.bias"] = draw(shape[0])
        for k in (1, 2):
            state[f"blocks.{i}.norm{k}.weight"] = 1 + draw(width)
            state[f"blocks.{i}.norm{k}.bias"] = draw(width)
            if scaled:
                state[f"blocks.{i}.ls{k}.gamma"] = 1 + draw(width)
    return state


def gated(state: State, hidden: int, *, packed: bool) -> State:
    """With SwiGLU: `w12` of DINOv2 if packed, else `w1` and `w2` of DINOv3."""
    random, result = torch.Generator().manual_seed(2), {}
    for name, value in state.items():
        if ".mlp." not in name:
            result[name] = value
        elif name.endswith("fc1.weight"):
            front, width = name.removesuffix("fc1.weight"), value.shape[1]
            into = {"w12": 2 * hidden} if packed else {"w1": hidden, "w2": hidden}
            for key, rows in into.items():
                result[f"{front}{key}.weight"] = 0.3 * torch.randn(rows, width, generator=random)
                result[f"{front}{key}.bias"] = 0.3 * torch.randn(rows, generator=random)
            result[f"{front}w3.weight"] = 0.3 * torch.randn(width, hidden, generator=random)
            result[f"{front}w3.bias"] = 0.3 * torch.randn(width, generator=random)
    return result


def dinov2(registers: int = 0, *, swiglu: bool = False) -> State:
    state = vit(scaled=True) | {"mask_token": torch.ones(1, WIDTH)}
    if registers:
        random = torch.Generator().manual_seed(3)
        state["register_tokens"] = torch.randn(1, registers, WIDTH, generator=random)
    return gated(state, 128, packed=True) if swiglu else state


def dinov3(
    tokens: int = 4, *, swiglu: bool = False, bias: bool = True, bf16: bool = False
) -> State:
    """With a bias that the mask removes from the keys, and periods in float32 or bfloat16."""
    state = vit(scaled=True)
    del state["pos_embed"]
    random = torch.Generator().manual_seed(3)
    state["storage_tokens"] = torch.randn(1, tokens, WIDTH, generator=random)
    state["mask_token"] = torch.ones(1, WIDTH)
    count = WIDTH // HEADS // 4
    periods = 100.0 ** (torch.arange(count) / count)
    state["rope_embed.periods"] = periods.bfloat16().float() if bf16 else periods
    for i in range(DEPTH):
        name = f"blocks.{i}.attn.qkv.bias"
        if bias:
            state[f"{name}_mask"] = torch.ones(3, WIDTH).index_fill(0, torch.tensor(1), 0).flatten()
        else:
            del state[name]
    return gated(state, 104, packed=False) if swiglu else state


def features(state: State, x: Tensor, *, heads: int = HEADS, eps: float = 1e-6) -> Tensor:
    """The class token of normalized images behind the last norm, in Meta's names."""
    width, grid = state["norm.bias"].numel(), (x.shape[2] // PATCH, x.shape[3] // PATCH)

    def linear(name: str, z: Tensor) -> Tensor:
        return F.linear(z, state[f"{name}.weight"], state.get(f"{name}.bias"))

    def norm(name: str, z: Tensor) -> Tensor:
        return F.layer_norm(z, (width,), state[f"{name}.weight"], state[f"{name}.bias"], eps)

    z = F.conv2d(x, state["patch_embed.proj.weight"], state["patch_embed.proj.bias"], stride=PATCH)
    z = torch.cat([state["cls_token"].expand(len(x), -1, -1), z.flatten(2).transpose(1, 2)], 1)
    if "pos_embed" in state:
        z = z + positions(state["pos_embed"], grid, registers="register_tokens" in state)
    for name in ("register_tokens", "storage_tokens"):
        if name in state:
            z = torch.cat([z[:, :1], state[name].expand(len(x), -1, -1), z[:, 1:]], 1)
    depth = 1 + max(int(found[1]) for k in state if (found := re.match(r"blocks\.(\d+)\.", k)))
    for block in (f"blocks.{i}" for i in range(depth)):
        qkv = F.linear(norm(f"{block}.norm1", z), state[f"{block}.attn.qkv.weight"])
        bias = state.get(f"{block}.attn.qkv.bias", torch.zeros(3 * width))
        qkv = qkv + bias * state.get(f"{block}.attn.qkv.bias_mask", torch.ones(3 * width))
        q, k, v = qkv.unflatten(2, (3, heads, -1)).permute(2, 0, 3, 1, 4)
        if "rope_embed.periods" in state:
            q, k = (rotated(each, state["rope_embed.periods"], grid) for each in (q, k))
        weights = (q @ k.transpose(2, 3) / math.sqrt(width / heads)).softmax(3)
        y = linear(f"{block}.attn.proj", (weights @ v).transpose(1, 2).flatten(2))
        z = z + y * state.get(f"{block}.ls1.gamma", torch.ones(width))
        y = norm(f"{block}.norm2", z)
        if f"{block}.mlp.fc1.weight" in state:
            y = linear(f"{block}.mlp.fc2", F.gelu(linear(f"{block}.mlp.fc1", y)))
        else:
            a, b = (
                linear(f"{block}.mlp.w12", y).chunk(2, 2)
                if f"{block}.mlp.w12.weight" in state
                else (linear(f"{block}.mlp.w1", y), linear(f"{block}.mlp.w2", y))
            )
            y = linear(f"{block}.mlp.w3", F.silu(a) * b)
        z = z + y * state.get(f"{block}.ls2.gamma", torch.ones(width))
    return norm("norm", z)[:, 0]


def positions(table: Tensor, grid: tuple[int, int], *, registers: bool) -> Tensor:
    """Position embeddings for another grid, as in DINOv2."""
    side = math.isqrt(table.shape[1] - 1)
    if grid == (side, side):
        return table
    square = table[:, 1:].unflatten(1, (side, side)).permute(0, 3, 1, 2)
    if registers:
        square = F.interpolate(square, size=grid, mode="bicubic", antialias=True)
    else:
        scale = [(size + 0.1) / side for size in grid]
        square = F.interpolate(square, scale_factor=scale, mode="bicubic")
    return torch.cat([table[:, :1], square.flatten(2).transpose(1, 2)], 1)


def rotated(z: Tensor, periods: Tensor, grid: tuple[int, int]) -> Tensor:
    """Rotate the channels of patches, z[B, heads, T, D], by their place; other tokens stay."""
    rows, columns = (2 * (torch.arange(size) + 0.5) / size - 1 for size in grid)
    place = torch.cartesian_prod(rows, columns)
    angle = (2 * math.pi * place[:, :, None] / periods).flatten(1)
    first = z.shape[2] - len(angle)
    a, b = z[:, :, first:].chunk(2, 3)
    turned = torch.cat(
        [a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], dim=3
    )
    return torch.cat([z[:, :, :first], turned], 2)


def chunked(count: int) -> Spell:
    """Meta's blocks in chunks, which keep the numbers of the blocks."""

    def spell(state: State) -> State:
        def number(found: re.Match[str]) -> str:
            return f"blocks.{int(found[1]) // (DEPTH // count)}.{found[1]}."

        return {re.sub(r"^blocks\.(\d+)\.", number, name): x for name, x in state.items()}

    return spell


def below(prefix: str) -> Spell:
    return lambda state: {prefix + name: value for name, value in state.items()}


def _respelled(state: State, rules: dict[str, str], qkv: str) -> State:
    theirs = {}
    for name, value in state.items():
        if name.endswith(("bias_mask", "periods")):
            continue
        for pattern, other in rules.items():
            name = re.sub(pattern, other, name)
        found = re.fullmatch(r"(.*\.)attn\.qkv\.(\w+)", name)
        parts = dict(zip("qkv", value.chunk(3), strict=True)) if found else {}
        for letter, part in parts.items():
            assert found is not None
            word = {"q": "query", "k": "key", "v": "value"}[letter]
            theirs[f"{found[1]}{qkv.format(letter=letter, word=word)}.{found[2]}"] = part.clone()
        if not found:
            theirs[name] = value
    return theirs


_EMBEDDINGS = {
    r"^(cls_token|mask_token|register_tokens)$": r"embeddings.\1",
    r"^pos_embed$": "embeddings.position_embeddings",
    r"^patch_embed\.proj\.": "embeddings.patch_embeddings.projection.",
    r"^norm\.": "layernorm.",
    r"ls([12])\.gamma": r"layer_scale\1.lambda1",
}


def hf_dinov2(state: State) -> State:
    rules = {
        r"^blocks\.": "encoder.layer.",
        r"attn\.proj": "attention.output.dense",
        r"mlp\.w12": "mlp.weights_in",
        r"mlp\.w3": "mlp.weights_out",
    }
    return _respelled(state, _EMBEDDINGS | rules, "attention.attention.{word}")


def hf_dinov2_in_memory(state: State) -> State:
    """The names of transformers 5, other than those of its files."""
    split = dict(state)
    for name in state:
        if "mlp.w12." in name:
            gate, up = split.pop(name).chunk(2)
            split |= {name.replace("w12", "gate_proj"): gate, name.replace("w12", "up_proj"): up}
    rules = {
        r"^blocks\.": "encoder.layer.",
        r"attn\.proj": "attention.o_proj",
        r"mlp\.w3": "mlp.down_proj",
    }
    return _respelled(split, _EMBEDDINGS | rules, "attention.{letter}_proj")


_NORMS = {r"norm1": "layernorm_before", r"norm2": "layernorm_after"}


def hf_vit(state: State) -> State:
    rules = {
        r"^blocks\.": "encoder.layer.",
        r"attn\.proj": "attention.output.dense",
        r"mlp\.fc1": "intermediate.dense",
        r"mlp\.fc2": "output.dense",
    }
    return _respelled(state, _EMBEDDINGS | rules | _NORMS, "attention.attention.{word}")


def hf_vit_in_memory(state: State) -> State:
    rules = {r"^blocks\.": "layers.", r"attn\.proj": "attention.o_proj"}
    return _respelled(state, _EMBEDDINGS | rules | _NORMS, "attention.{letter}_proj")


def hf_dinov3(state: State) -> State:
    is_gated = any("mlp.w1." in name for name in state)
    rules = {
        r"^(cls_token|mask_token)$": r"embeddings.\1",
        r"^storage_tokens$": "embeddings.register_tokens",
        r"^patch_embed\.proj\.": "embeddings.patch_embeddings.",
        r"^blocks\.": "layer.",
        r"ls([12])\.gamma": r"layer_scale\1.lambda1",
        r"attn\.proj": "attention.o_proj",
        r"mlp\.w1\.": "mlp.gate_proj.",
        r"mlp\.w2\.": "mlp.up_proj.",
        r"mlp\.(w3|fc2)\.": "mlp.down_proj.",
        r"mlp\.fc1\.": "mlp.gate_proj." if is_gated else "mlp.up_proj.",
    }
    theirs = _respelled(state, rules, "attention.{letter}_proj")
    return {name: x for name, x in theirs.items() if not name.endswith("k_proj.bias")}


def hf_dinov3_in_memory(state: State) -> State:
    return {re.sub(r"^layer\.", "model.layer.", k): x for k, x in hf_dinov3(state).items()}
