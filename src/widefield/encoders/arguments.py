"""Arguments behind the name of a vision transformer: `vit_small_patch14_dinov2,depth=2`.

Most are timm's. `norm_eps` is the eps of every LayerNorm, and `rope_periods=bf16` rounds the
periods of rotary positions, as in the files of DINOv3; both are set after timm built the network.
"""

from typing import Any

from torch import nn

from widefield.core.names import check_name

MAX_COUNTS = {
    "depth": 200,
    "embed_dim": 16384,
    "num_heads": 256,
    "patch_size": 256,
    "reg_tokens": 256,
    "num_reg_tokens": 256,
}
"""Largest value of each whole number."""
_NUMBERS = ("mlp_ratio", "norm_eps")
TIMM_ACTIVATIONS = ("gelu", "quick_gelu", "relu", "silu")
"""Activations of a vision transformer that timm and transformers name alike; the first is usual."""
_CHOICES = {
    "global_pool": ("token", "avg"),
    "rope_periods": ("bf16",),
    "act_layer": TIMM_ACTIVATIONS,
}
AFTER_BUILD = ("norm_eps", "rope_periods")
"""Arguments that timm lacks."""
OF_FAMILY = {
    "act_layer": "vision_transformer",
    "reg_tokens": "vision_transformer",
    "num_reg_tokens": "eva",
    "rope_periods": "eva",
}
"""Arguments that one of timm's modules has alone."""


def split_arguments(name: str) -> tuple[str, dict[str, Any]]:
    """Return the model and the arguments of a name."""
    model, *parts = name.split(",")
    arguments: dict[str, Any] = {}
    for part in parts:
        key, _, text = part.partition("=")
        check_name("argument of an encoder", key, (*MAX_COUNTS, *_NUMBERS, *_CHOICES))
        arguments[key] = _value(name, key, text)
    width, heads = arguments.get("embed_dim"), arguments.get("num_heads")
    if width is not None and (heads is None or width % heads):
        raise ValueError(f"{name}: embed_dim needs num_heads that divide it: add num_heads=N")
    return model, arguments


def explicit_arguments(values: object) -> dict[str, Any]:
    """Return those of timm's arguments in a `config.json` that a name may have."""
    items = values.items() if isinstance(values, dict) else ()
    kept = (*MAX_COUNTS, "mlp_ratio")
    return {key: x for key, x in items if key in kept or x in _CHOICES.get(key, ())}


def _value(name: str, key: str, text: str) -> int | float | str:
    if text in _CHOICES.get(key, ()):
        return text
    most, least = MAX_COUNTS.get(key, 100), 0 if key.endswith("reg_tokens") else 1
    is_number = key in MAX_COUNTS and text.isdecimal() and len(text) < 9
    if is_number and least <= int(text) <= most:
        return int(text)
    if key in _NUMBERS:
        try:
            value = float(text)
        except ValueError:
            value = 0.0
        if 1e-15 <= value <= 100:
            return value
    bounds = f"from {least} to {most}" if key in MAX_COUNTS else f"above 0, up to {most}"
    allowed = _CHOICES.get(key, (f"a number {bounds}",))
    raise ValueError(f"encoder {name!r}: {key} is {text!r}: give {' or '.join(allowed)}")


def set_after_build(network: nn.Module, arguments: dict[str, Any]) -> None:
    """Set what timm has no argument for."""
    for module in network.modules():
        if "norm_eps" in arguments and isinstance(module, nn.LayerNorm):
            module.eps = arguments["norm_eps"]
    if "rope_periods" in arguments:
        periods = network.get_submodule("rope").get_buffer("periods")
        periods.copy_(periods.bfloat16())


def lines_after_build(arguments: dict[str, Any]) -> list[str]:
    """Return the Python lines that do the same to a `model`."""
    lines = []
    if "norm_eps" in arguments:
        lines += [
            "for module in model.modules():",
            "    if isinstance(module, torch.nn.LayerNorm):",
            f"        module.eps = {arguments['norm_eps']}",
        ]
    if "rope_periods" in arguments:
        lines.append("model.rope.periods.copy_(model.rope.periods.bfloat16())")
    return lines
