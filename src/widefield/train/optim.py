"""The encoder's optimiser and the learning rate of every step."""

from typing import Any

import torch
from torch import Tensor

from widefield.recipe import Recipe, Schedule
from widefield.train.lars import LARS
from widefield.train.state import PretrainModel

MOMENTUM = 0.9


def learning_rates(
    peak: float, *, steps: int, warmup_steps: int, schedule: Schedule = "cosine"
) -> Tensor:
    """Return the learning rate of steps 1..T, float64 [T]: warm-up, then half a cosine to zero.

        lr_s = peak s / W                                   for s <= W
        lr_s = peak (1 + cos(pi (s - W - 1) / (T - W))) / 2   after; peak if it is `constant`

    Example:
        >>> learning_rates(1.0, steps=4, warmup_steps=2)[:3].tolist()
        [0.5, 1.0, 1.0]
    """
    warmup_steps = min(warmup_steps, steps)
    warm = torch.arange(1, warmup_steps + 1, dtype=torch.float64) / max(1, warmup_steps)
    left = steps - warmup_steps
    fall = torch.arange(left, dtype=torch.float64) / max(1, left)
    if schedule == "constant":
        fall = torch.zeros_like(fall)
    return peak * torch.cat([warm, (1 + torch.cos(torch.pi * fall)) / 2])


def build_optimizer(model: PretrainModel, recipe: Recipe) -> torch.optim.Optimizer:
    """Build fused AdamW or SGD, or LARS, over encoder and method.

    Gains, biases and norms are not decayed, unless the recipe says so by `decay_all`.

    What needs no gradient, as a target network, is left alone. Each group carries `lr_scale`, its
    learning rate as a multiple of the schedule's: 1, or the method's `head_lr_scale` for a dense
    per-example head.
    """
    head = model.method.head_parameters()
    head_ids = {id(p) for p in head}
    rest = [p for p in model.parameters() if p.requires_grad and id(p) not in head_ids]
    decayed = [p for p in rest if p.ndim > 1 or recipe.decay_all]
    not_decayed = [p for p in rest if p.ndim <= 1 and not recipe.decay_all]
    decay, head_scale = recipe.weight_decay, model.method.head_lr_scale
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": decay, "lr_scale": 1.0},
        {"params": not_decayed, "weight_decay": 0.0, "lr_scale": 1.0},
        {"params": head, "weight_decay": decay, "lr_scale": head_scale},
    ]
    groups = [group for group in groups if group["params"]]
    if recipe.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=recipe.method.lr, momentum=MOMENTUM, fused=True)
    if recipe.optimizer == "lars":
        return LARS(groups, lr=recipe.method.lr, momentum=MOMENTUM)
    return torch.optim.AdamW(groups, lr=recipe.method.lr, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every group its share of the schedule."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]
