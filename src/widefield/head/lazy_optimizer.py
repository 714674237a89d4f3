"""Base class of the optimizers of a per-example head, and the history of their steps.

Rows replay past steps only. The head keeps their learning rates, with the running sum of
log(1 - lr lambda), so that any scheduler works and may change while training.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

import torch
from torch import Tensor

from widefield.core.errors import option
from widefield.core.gather import rank_and_world
from widefield.core.names import check_name
from widefield.head.storage.base import RowState

if TYPE_CHECKING:
    from widefield.head.per_example_head import PerExampleHead

WEIGHT_DECAY = 0.05
"""Default decoupled weight decay of the rows."""

Update = Literal["exact", "estimated"]


def check_rate(lr: float, weight_decay: float) -> None:
    """Check a learning rate and a weight decay.

    Raises:
        ValueError: one is negative or not finite, or their product is at least 1.
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
            f"lower lr, {option('head_lr_scale')} or {option('weight_decay')}"
        )


class StepHistory:
    """Learning rates of all steps, and the weight decay of a row between any two steps.

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

    def __repr__(self) -> str:
        return f"StepHistory(steps={self.steps})"

    def append(self, lr: float, *, weight_decay: float) -> None:
        """Add the next step.

        Raises:
            ValueError: as `check_rate`.
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
        """Load a history."""
        self.steps = state["table"].shape[1] - 1
        table = torch.zeros(2, self.steps + 1024, dtype=torch.float64)
        table[:, : self.steps + 1] = state["table"]
        self._table = table


class LazyOptimizer(torch.optim.Optimizer, ABC):
    """Base class: updates the rows of a batch; other rows replay the step when next read.

    Its one parameter group has the rows of the last batch, `lr` and `weight_decay`, so that
    schedulers, `GradScaler` and `clip_grad_norm_` work as with any optimizer. A step without a
    gradient is a zero-gradient step of all rows. A step that a `GradScaler` skips does not count.

    Raises:
        ValueError: a setting is out of its range, or the head has an optimizer already.

    Example:
        >>> from widefield.head import LazyAdamW, PerExampleHead
        >>> optimizer = LazyAdamW(PerExampleHead(examples=4, dim=2), lr=1e-3)
        >>> isinstance(optimizer, LazyOptimizer), optimizer.param_groups[0]["lr"]
        (True, 0.001)
    """

    decay: float
    """Factor of the momentum term at a zero-gradient step."""

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
                "the PerExampleHead already has an optimizer, with the moments of its rows: change "
                "its param_groups, or make a new head"
            )
        self.head, self.update, self.gap = head, update, gap
        super().__init__(head.batch_rows, {"lr": lr, "weight_decay": weight_decay})
        self.param_groups[0]["params"] = head.batch_rows  # the list, which each batch changes
        head.optimizer = self

    def horizon(self, dtype: torch.dtype) -> int:
        """Return the number of zero-gradient steps after which momentum is below rounding."""
        if self.decay == 0:
            return 0
        return math.ceil(math.log(torch.finfo(dtype).eps / 8) / math.log(self.decay))

    def __getstate__(self) -> dict[str, Any]:
        """Return the state to copy, including the head, which torch leaves out."""
        # Without the `step` of a scheduler, which is bound to this instance.
        return {name: value for name, value in self.__dict__.items() if name != "step"}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update the rows of the last batch, and record the step for the others.

        Returns:
            The result of `closure`, if there is one.

        Raises:
            ValueError: `lr` or `weight_decay` is out of range, or the gradient came after the step
                of its batch.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        (group,) = self.param_groups
        lr, weight_decay = float(group["lr"]), float(group["weight_decay"])
        check_rate(lr, weight_decay)  # first, because the batch is used up then
        batch = self.head.take_batch()
        self.head.history.append(lr, weight_decay=weight_decay)
        if batch is not None:
            index, state, grad = batch
            grad = grad.to(state.m)
            if self.update == "exact":
                state = self.gradient_step(state, grad, lr, weight_decay)
            else:
                gap = self.gap or default_gap(self.head.examples, len(index))
                state = self.paper_step(state, grad, lr, weight_decay, gap)
            self.head.storage.write(index, state)
        return loss

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Remove the gradient of the last batch."""
        super().zero_grad(set_to_none=True)
        self.head.step_pending = False

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


def default_gap(examples: int, batch_size: int) -> int:
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
