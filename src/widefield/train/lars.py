"""LARS: SGD with momentum whose steps are in proportion to the weights that they change."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

TRUST = 0.02
"""Norm of a step at learning rate 1, as a share of the norm of the weights."""


class LARS(torch.optim.Optimizer):
    """SGD with momentum, each weight matrix at a rate of its own, at most the one given.

    For weights w with gradient g, weight decay l and learning rate lr,

        d = min(1, trust |w| / (|g| + l |w|) / lr) (g + l w)
        v <- momentum v + d
        w <- w - lr v.

    Parameters of one dimension, as biases and gains, take plain steps: d = g, not decayed. So do
    weights or gradients that are all zero.

    Args:
        params: parameters, or groups of them.
        lr: learning rate.
        momentum: share of the last step that the next one keeps.
        weight_decay: l.
        trust: norm of a step at learning rate 1, as a share of |w|.

    Example:
        >>> w = torch.nn.Parameter(torch.ones(1, 4))
        >>> optimizer = LARS([w], lr=1.0, momentum=0.0, trust=0.5)
        >>> (100 * w).sum().backward()
        >>> optimizer.step()
        >>> w.data
        tensor([[0.5000, 0.5000, 0.5000, 0.5000]])

    Source: LARS (You et al. 2017), algorithm 1; clipped as solo-learn's `clip_lr` does.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        momentum: float,
        weight_decay: float = 0.0,
        trust: float = TRUST,
    ) -> None:
        defaults = {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "trust": trust}
        super().__init__(params, defaults)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> None:  # type: ignore[override]
        """Take a step with the gradients that there are."""
        assert closure is None, "LARS evaluates no loss"
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, change = self.state[p], _scaled(p, p.grad, group)
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                buffer: Tensor = state["momentum_buffer"]
                buffer.mul_(group["momentum"]).add_(change)
                p.add_(buffer, alpha=-group["lr"])


def _scaled(weight: Tensor, grad: Tensor, group: dict[str, Any]) -> Tensor:
    """Return d of a parameter, without waiting for the device."""
    if weight.ndim <= 1:
        return grad
    decay, size, slope = group["weight_decay"], weight.norm(), grad.norm()
    rate = group["trust"] * size / (slope + decay * size + 1e-8) / max(group["lr"], 1e-12)
    is_zero = (size == 0) | (slope == 0)
    return torch.where(is_zero, grad, rate.clamp_max(1.0) * (grad + decay * weight))
