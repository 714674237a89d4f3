"""What both optimizers of a per-example head share: the history of their steps, and `step`.

A row replays steps that are past. So the head keeps the learning rates that were, with the running
sum of log(1 - lr lambda), and needs to know none of those that will be. Any scheduler does, and it
may change while training.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from widefield.core.gather import rank_and_world
from widefield.core.names import check_name
from widefield.head.storage.base import RowState

if TYPE_CHECKING:
    from widefield.head.per_example_head import PerExampleHead

WEIGHT_DECAY = 0.05
"""Decoupled weight decay of the rows by default."""

Update = Literal["exact", "estimated"]


def check_rate(lr: float, weight_decay: float) -> None:
    """Refuse a learning rate and a weight decay that no step can have.

    Raises:
        ValueError: one is negative or not finite, or they would take a row to zero or beyond.
    """
    for name, value in (("learning rate", lr), ("weight decay", weight_decay)):
        if not 0 <= value < math.inf:
            raise ValueError(
                f"head {name} must be finite and at least 0, got {value:g}: check the optimizer's "
                "settings and its scheduler"
            )
    if lr * weight_decay >= 1:
        raise ValueError(
            f"head learning rate {lr:g} times weight decay {weight_decay:g} reaches 1: "
            "lower lr, head_lr_scale or weight_decay"
        )


class StepHistory:
    """Learning rates of the steps taken so far, and the decay of a row between any two of them.

    Example:
        >>> history = StepHistory()
        >>> history.append(0.1, weight_decay=0.5)
        >>> history.append(0.2, weight_decay=0.5)
        >>> history.steps, history.lr(torch.tensor([1, 2])).tolist()
        (2, [0.1, 0.2])
    """

    def __init__(self) -> None:
        self.steps = 0
        self._table = torch.zeros(2, 1024, dtype=torch.float64)  # lr_s; sum of log(1 - lr_s lambda)

    def append(self, lr: float, *, weight_decay: float) -> None:
        """Add the next step.

        Raises:
            ValueError: no step can have these.
        """
        check_rate(lr, weight_decay)
        self.steps += 1
        if self.steps == self._table.shape[1]:
            self._table = torch.cat([self._table, torch.zeros_like(self._table)], dim=1)
        before = float(self._table[1, self.steps - 1])
        self._table[0, self.steps] = lr
        self._table[1, self.steps] = before + math.log1p(-lr * weight_decay)

    def lr(self, step: Tensor) -> Tensor:
        """Return the learning rate of each of `step`, float64."""
        return self._table[0][step]

    def log_decay(self, first: Tensor) -> Tensor:
        """Return sum_s log(1 - lr_s lambda) over all steps after `first`, float64."""
        return self._table[1, self.steps] - self._table[1][first]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the history, float64 [2, steps + 1]."""
        return {"table": self._table[:, : self.steps + 1].clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over a history."""
        self.steps = state["table"].shape[1] - 1
        room = torch.zeros(2, self.steps + 1024, dtype=torch.float64)
        room[:, : self.steps + 1] = state["table"]
        self._table = room


class LazyOptimizer(torch.optim.Optimizer, ABC):
    """Moves the rows of a batch by their gradient; the others replay the step when next read.

    Its one parameter group holds the rows of the last batch, `lr` and `weight_decay`, so that
    schedulers, `GradScaler` and `clip_grad_norm_` work as on any optimizer. A step without a
    gradient counts too: every row takes it as one of gradient zero. A step that a `GradScaler`
    skips does not count.

    Args:
        head: whose rows it moves.
        lr: learning rate.
        weight_decay: decoupled weight decay; `lr * weight_decay` must stay below 1.
        update: replay missed steps exactly, or estimate them at each visit as in the paper.
        gap: for `estimated`, steps between two visits of a row; by default n / b of each batch.

    Raises:
        ValueError: a setting does not fit, or the head has an optimizer.
    """

    def __init__(
        self,
        head: "PerExampleHead",
        lr: float = 1e-3,
        *,
        weight_decay: float = WEIGHT_DECAY,
        update: Update = "exact",
        gap: int | None = None,
    ) -> None:
        check_name("update", update, get_args(Update))
        check_rate(float(lr), float(weight_decay))
        if head.optimizer is not None:
            raise ValueError(
                "the PerExampleHead has an optimizer, whose moments its rows keep: change that "
                "one's param_groups, or make a new head"
            )
        self.head, self.update, self.gap = head, update, gap
        super().__init__(head.batch_rows, {"lr": lr, "weight_decay": weight_decay})
        self.param_groups[0]["params"] = head.batch_rows  # the list itself: each batch changes it
        head.optimizer = self

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy takes over, the head too, which torch's own would leave out."""
        # A scheduler puts a `step` on the instance that is bound to it, and not to the copy.
        return {name: value for name, value in self.__dict__.items() if name != "step"}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Move the rows of the last batch by their gradient, and note the step for the others.

        Returns:
            What `closure` returned, if there is one.

        Raises:
            ValueError: no step can have the group's `lr` and `weight_decay`, or the gradient came
                after the step of its batch.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        (group,) = self.param_groups
        lr, weight_decay = float(group["lr"]), float(group["weight_decay"])
        batch = self.head.take_batch()
        self.head.history.append(lr, weight_decay=weight_decay)
        if batch is not None:
            index, state, grad = batch
            grad = grad.to(state.m)
            if self.update == "exact":
                state = self.gradient_step(state, grad, lr, weight_decay)
            else:
                gap = self.gap or estimated_gap(self.head.examples, len(index))
                state = self.paper_step(state, grad, lr, weight_decay, gap)
            self.head.storage.write(index, state)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradient of the last batch; without a new one its step is not taken."""
        super().zero_grad(set_to_none=True)
        self.head.step_is_due = False

    @abstractmethod
    def catch_up(self, state: RowState) -> RowState:
        """Take all steps so far that each row has missed, in closed form.

        Raises:
            AssertionError: a row is already past them.
        """

    @abstractmethod
    def gradient_step(
        self, state: RowState, grad: Tensor, lr: float, weight_decay: float
    ) -> RowState:
        """Take the step just noted with gradient `grad` [b, m] from rows that have caught up."""

    @abstractmethod
    def paper_step(
        self, state: RowState, grad: Tensor, lr: float, weight_decay: float, gap: int
    ) -> RowState:
        """Take the paper's visit: a gradient step, then `gap - 1` zero-gradient steps ahead."""


def estimated_gap(examples: int, batch_size: int) -> int:
    """Return n / b over all processes, rounded: the steps between two visits of a row."""
    _, world = rank_and_world()
    return max(1, round(examples / (world * batch_size)))


def decayed_powers(a: float, mu: float, k: int) -> float:
    """Return sum_{i<k} a^(k-1-i) mu^i = (a^k - mu^k) / (a - mu), or its limit where a = mu.

    Example:
        >>> decayed_powers(2.0, 1.0, 3), decayed_powers(2.0, 2.0, 3)
        (7.0, 12.0)
    """
    return k * a ** (k - 1) if math.isclose(a, mu) else (a**k - mu**k) / (a - mu)
