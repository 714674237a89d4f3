"""Base class of the optimizers of a per-example head."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from widefield.core.errors import option
from widefield.core.gather import rank_and_world
from widefield.core.names import check_name
from widefield.head.per_example_head import PerExampleHead
from widefield.head.storage.base import RowState

# The default weight decay of a run, so that rows decay as the encoder does.
WEIGHT_DECAY = 0.05
"""Default decoupled weight decay of the rows."""

Update = Literal["exact", "estimated"]


def check_head(head: object) -> None:
    """Check that an optimizer of rows gets the head itself."""
    if not isinstance(head, PerExampleHead):
        raise ValueError(
            f"the optimizer of the rows takes the head, not {type(head).__name__}: give head in "
            "place of head.parameters(), and give other parameters an optimizer of their own"
        )


def check_rate(lr: float, weight_decay: float) -> None:
    """Check a learning rate and a weight decay."""
    for name, value in (("learning rate", lr), ("weight decay", weight_decay)):
        if not 0 <= value < math.inf:
            raise ValueError(
                f"head {name} must be finite and at least 0, got {value:g}: check the optimizer's "
                "settings and its scheduler"
            )
    if lr * weight_decay >= 1:
        raise ValueError(
            f"head learning rate {lr:g} times weight decay {weight_decay:g} reaches 1: "
            f"lower lr, {option('head_lr_scale')} or {option('weight_decay')}"
        )


class LazyOptimizer(torch.optim.Optimizer, ABC):
    """Base class: updates the rows of a batch; other rows replay the step when next read.

    Its one parameter group has the rows of the last batch and the settings, so that schedulers,
    `GradScaler` and `clip_grad_norm_` work as with any optimizer. `lr` and `weight_decay` may
    change at every step; the others may not, because the missed steps are taken with them later. A
    step without a gradient is a zero-gradient step of all rows. A step that a `GradScaler` skips
    does not count.

    Args:
        head: the head whose rows are optimized.
        lr: learning rate.
        weight_decay: decoupled weight decay.
        update: replay missed steps exactly, or estimate them at each visit as in the paper.
        gap: for `estimated`, steps between two visits of a row; by default n / b of each batch.
        constants: the settings that stay as they are, such as `betas`.

    Raises:
        ValueError: a setting is out of its range, or the head has an optimizer already.

    Example:
        >>> from widefield.head import LazyAdamW, PerExampleHead
        >>> optimizer = LazyAdamW(PerExampleHead(examples=4, dim=2), lr=1e-3)
        >>> isinstance(optimizer, LazyOptimizer), optimizer.param_groups[0]["lr"]
        (True, 0.001)
    """

    def __init__(
        self,
        head: PerExampleHead,
        lr: float,
        *,
        weight_decay: float,
        update: Update,
        gap: int | None,
        constants: Mapping[str, Any],
    ) -> None:
        check_name("update", update, get_args(Update))
        check_rate(float(lr), float(weight_decay))
        if head.optimizer is not None:
            raise ValueError(
                "the PerExampleHead already has an optimizer, with the moments of its rows: change "
                "its param_groups, or make a new head"
            )
        self.head, self.update, self.gap = head, update, gap
        self._constants = tuple(constants)
        super().__init__(head.batch_rows, {"lr": lr, "weight_decay": weight_decay, **constants})
        self.param_groups[0]["params"] = head.batch_rows  # the list, which each batch changes
        head.optimizer = self
        head.catch_up = self.catch_up if update == "exact" else None

    @property
    @abstractmethod
    def decay(self) -> float:
        """Factor of the momentum term at a zero-gradient step."""

    def horizon(self, dtype: torch.dtype) -> int:
        """Return the number of zero-gradient steps after which momentum is below rounding."""
        if self.decay == 0:
            return 0
        # The terms after the K-th are about decay^K of the whole sum: an eighth of its rounding.
        return math.ceil(math.log(torch.finfo(dtype).eps / 8) / math.log(self.decay))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to copy, including the head, which torch leaves out."""
        # Without the `step` of a scheduler, which is bound to this instance.
        return {name: value for name, value in self.__dict__.items() if name != "step"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Load a state; one that was saved without the constants has those of this optimizer."""
        super().__setstate__(state)
        for name in self._constants:
            self.defaults[name] = self.param_groups[0].setdefault(name, self.defaults[name])

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the rows of the last batch, and record the step for the others.

        Returns:
            The result of `closure`, if there is one.

        Raises:
            ValueError: `lr` or `weight_decay` is out of range, another setting changed, or the
                gradient came after the step of its batch.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        (group,) = self.param_groups
        lr, weight_decay = float(group["lr"]), float(group["weight_decay"])
        # First, because the batch is used up then.
        check_rate(lr, weight_decay)
        self._check_constants()
        batch = self.head.take_batch()
        self.head.history.append(lr, weight_decay=weight_decay)
        if batch is not None:
            index, state, grad = batch
            grad = grad.to(state.m)
            if self.update == "exact":
                state = self.gradient_step(state, grad, lr, weight_decay)
            else:
                # n / b over all processes: the steps between two visits of a row.
                examples_of_step = rank_and_world()[1] * len(index)
                gap = self.gap or max(1, round(self.head.examples / examples_of_step))
                state = self.paper_step(state, grad, lr, weight_decay, gap)
            self.head.storage.write(index, state)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradient of the last batch."""
        super().zero_grad(set_to_none=True)
        self.head.step_pending = False

    def _check_constants(self) -> None:
        """Check that what the missed steps of rows are taken with did not change."""
        for name in self._constants:
            was, now = self.defaults[name], self.param_groups[0][name]
            if now != was:
                raise ValueError(
                    f"{name} of {type(self).__name__} was {was} and is now {now}, but rows take "
                    "the steps that they missed with one value: leave it, in a OneCycleLR by "
                    "cycle_momentum=False"
                )

    @abstractmethod
    def catch_up(self, state: RowState) -> RowState:
        """Take the zero-gradient steps after `last` of every row, in closed form."""

    @abstractmethod
    def gradient_step(
        self, state: RowState, grad: Tensor, lr: float, weight_decay: float
    ) -> RowState:
        """Take the current step with gradient `grad` [b, m] from rows that have caught up."""

    @abstractmethod
    def paper_step(
        self, state: RowState, grad: Tensor, lr: float, weight_decay: float, gap: int
    ) -> RowState:
        """Take the paper's visit: a gradient step, then `gap - 1` zero-gradient steps ahead."""


def decayed_powers(a: float, mu: float, k: int) -> float:
    """Return sum_{i<k} a^(k-1-i) mu^i = (a^k - mu^k) / (a - mu), or its limit where a = mu.

    Example:
        >>> decayed_powers(2.0, 1.0, 3), decayed_powers(2.0, 2.0, 3)
        (7.0, 12.0)
    """
    return k * a ** (k - 1) if math.isclose(a, mu) else (a**k - mu**k) / (a - mu)
