"""Gradients and optimizer of adversarial views.

Views that are trained, or that attack, need the loss without a step of the encoder. They leave the
state of encoder and method unchanged: running statistics, queues, rows and gradients.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn

from widefield.methods.base import Method
from widefield.views.base import Augmentation, trained_parameters


def build_adversary(views: Augmentation) -> torch.optim.Adam | None:
    """Build Adam over the parameters of `views`; None where they have none.

    Source: Feature Dropout (Tamkin et al. 2022), who keep its learning rate constant.
    """
    groups: dict[float, list[nn.Parameter]] = {}
    for parameter, lr in trained_parameters(views):
        groups.setdefault(lr, []).append(parameter)
    if not groups:
        return None
    return torch.optim.Adam([{"params": ps, "lr": lr} for lr, ps in groups.items()], fused=True)


def adversary_log(adversary: torch.optim.Adam | None) -> dict[str, float | str]:
    """Return the logged values of `adversary`: its kind, steps so far and learning rate."""
    if adversary is None:
        return {}
    group = adversary.param_groups[0]
    return {
        "adversary_optimizer": type(adversary).__name__.lower(),
        "adversary_step": int(adversary.state[group["params"][0]]["step"]),
        "adversary_lr": group["lr"],
    }


@contextmanager
def frozen_state(model: nn.Module) -> Iterator[None]:
    """Context in which the loss of `model` leaves its state and gradients unchanged."""
    trained = [p for p in model.parameters() if p.requires_grad]
    methods = [part for part in model.modules() if isinstance(part, Method)]
    was_frozen = [method.frozen for method in methods]  # contexts may be nested
    buffers = [(buffer, buffer.clone()) for buffer in model.buffers()]
    for p in trained:
        p.requires_grad_(False)
    for method in methods:
        method.frozen = True
    try:
        yield
    finally:
        for method, before in zip(methods, was_frozen, strict=True):
            method.frozen = before
        for p in trained:
            p.requires_grad_(True)
        # Restored last, because the backward pass may need a buffer.
        for buffer, value in buffers:
            buffer.detach().copy_(value)


def loss_gradients(
    model: nn.Module,
    index: Tensor,
    autocast: Callable[[], AbstractContextManager[None]],
    views: list[Tensor],
) -> list[Tensor]:
    """Return the gradient of the model's loss by each of `views` of the examples `index`."""
    leaves = [view.detach().requires_grad_() for view in views]
    with torch.enable_grad(), frozen_state(model):
        with autocast():
            total, _ = model(leaves, index)
        # A view that only a target network sees has no gradient.
        return list(torch.autograd.grad(total, leaves, materialize_grads=True))
