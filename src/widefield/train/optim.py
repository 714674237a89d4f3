"""The encoder's optimizer and the learning rate of every step."""

from typing import Any

import torch
from torch import Tensor, nn

from widefield.config.defaults import init_lr_scale_for
from widefield.config.recipe import Recipe, Schedule
from widefield.core.errors import option
from widefield.encoders import layer_names
from widefield.train.model import PretrainModel

_MOMENTUM = 0.9
NORM_LAYERS = (nn.modules.batchnorm._NormBase, nn.LayerNorm, nn.GroupNorm)


def learning_rates(
    peak: float, *, steps: int, warmup_steps: int, schedule: Schedule = "cosine"
) -> Tensor:
    """Return the learning rate of steps 1..T, float64 [T]: warm-up, then half a cosine to zero.

    lr_s = peak s / W                                   for s <= W
    lr_s = peak (1 + cos(pi (s - W - 1) / (T - W))) / 2   after; peak if it is `constant`
    """
    warmup_steps = min(warmup_steps, steps)
    warm = torch.arange(1, warmup_steps + 1, dtype=torch.float64) / max(1, warmup_steps)
    left = steps - warmup_steps
    t = torch.arange(left, dtype=torch.float64) / max(1, left)
    if schedule == "constant":
        t = torch.zeros_like(t)
    return peak * torch.cat([warm, (1 + torch.cos(torch.pi * t)) / 2])


def build_optimizer(model: PretrainModel, recipe: Recipe) -> torch.optim.Optimizer:
    """Build fused AdamW or SGD, or LARS with its rate clipped as solo-learn's `clip_lr` does.

    Biases and the weights of norms are decayed with `decay_bias_and_norm` only.

    Parameters without gradient, such as those of a target network, are left out. Each group has
    `lr_scale`, as `lr_scales` gives it.
    """
    head = model.method.head_parameters()
    head_ids = {id(p) for p in head}
    scales = lr_scales(model, recipe)
    groups: dict[tuple[bool, float], list[nn.Parameter]] = {}
    for p in model.parameters():
        if p.requires_grad and id(p) not in head_ids:
            # Vectors are biases and the weights of norms.
            decayed = p.ndim > 1 or recipe.decay_bias_and_norm
            groups.setdefault((not decayed, scales[p]), []).append(p)
    # The order of the groups is that of the states in a checkpoint.
    param_groups: list[dict[str, Any]] = [
        {
            "params": groups[plain, scale],
            "weight_decay": 0.0 if plain else recipe.weight_decay,
            "lr_scale": scale,
        }
        for plain, scale in sorted(groups)
    ]
    if head:
        param_groups.append(
            {"params": head, "weight_decay": recipe.weight_decay, "lr_scale": scales[head[0]]}
        )
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(param_groups, lr=recipe.method.lr, momentum=_MOMENTUM, fused=True)
    # solo-learn's values for CIFAR: eta 0.02, `clip_lr`, momentum 0.9.
    if recipe.optimizer == "lars":
        from timm.optim.lars import Lars

        for group in param_groups:  # matrices only, also where nothing is decayed
            group["always_adapt"] = any(p.ndim > 1 for p in group["params"])
        return Lars(
            param_groups, lr=recipe.method.lr, momentum=_MOMENTUM, trust_coeff=0.02, trust_clip=True
        )
    return torch.optim.AdamW(param_groups, lr=recipe.method.lr, fused=True)


def lr_scales(model: PretrainModel, recipe: Recipe) -> dict[nn.Parameter, float]:
    """Return the learning rate of each parameter as a multiple of the run's.

    In step t a parameter p has the learning rate

        lr(p, t) = lr schedule(t) scale(p)

        lr       = rate of the method x multiple of the encoder's family, unless the user gives it
                   (`LR_SCALES` of config/defaults.py, by `resolve`)
        schedule = warm-up, then half a cosine, in [0, 1] (`learning_rates`)
        scale    = init_lr_scale layer_decay^(L - l)    initial weights, in layer l of 0..L
                   head_lr_scale                        rows of a dense per-example head
                   1                                    all others
    """
    scales = dict.fromkeys(model.parameters(), 1.0)
    scales |= dict.fromkeys(model.method.head_parameters(), model.method.head_lr_scale)
    if recipe.init is not None:
        layers, parameters = layer_names(model.encoder), dict(model.encoder.named_parameters())
        first = recipe.init_lr_scale or init_lr_scale_for(recipe.encoder)
        for depth, names in enumerate(layers):
            scale = first * recipe.layer_decay ** (len(layers) - 1 - depth)
            scales |= {parameters[name]: scale for name in names}
    return scales


def freeze_init(encoder: nn.Module, recipe: Recipe) -> list[nn.Module]:
    """Freeze initial weights as the recipe says; return norms that have to stay in eval mode.

    Running statistics change without a gradient, so frozen norms are never in training mode.

    Raises:
        ValueError: no layer would be left to train.
    """
    if recipe.init is None:
        return []
    layers = layer_names(encoder)
    if recipe.freeze_blocks >= len(layers):
        raise ValueError(
            f"{option('freeze_blocks', recipe.freeze_blocks)} leaves nothing to train of the "
            f"{len(layers)} layers of {recipe.encoder.name}: give less than {len(layers)}"
        )
    frozen = {n for names in layers[: recipe.freeze_blocks] for n in names}
    frozen_modules = []
    for name, module in encoder.named_modules():
        parameters = {f"{name}.{n}": p for n, p in module.named_parameters(recurse=False)}
        # timm, transformers and torch each have an RMSNorm of their own.
        is_rms_norm = type(module).__name__.lower().endswith("rmsnorm")
        is_norm = isinstance(module, NORM_LAYERS) or is_rms_norm
        freeze_all = is_norm and recipe.freeze_norm_layers
        frozen_names = parameters.keys() if freeze_all else parameters.keys() & frozen
        for parameter in frozen_names:
            parameters[parameter].requires_grad_(False)
        if freeze_all or (is_norm and frozen_names):
            frozen_modules.append(module)
    return frozen_modules
