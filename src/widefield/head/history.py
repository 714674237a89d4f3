"""The history of the steps of a head, from which a row takes those that it missed.

It has the learning rate of every step and the running sum of log(1 - lr lambda), so that any
scheduler works and may change while training.
"""

import math

import torch
from torch import Tensor


class StepHistory:
    """Learning rates of all steps, and the weight decay of a row between any two steps."""

    def __init__(self) -> None:
        self.steps = 0
        self._table = torch.zeros(2, 1024, dtype=torch.float64)  # lr_s; sum of log(1 - lr_s lambda)

    def __repr__(self) -> str:
        return f"StepHistory(steps={self.steps})"

    def append(self, lr: float, *, weight_decay: float) -> None:
        """Add the next step, whose `lr * weight_decay` is below 1."""
        self.steps += 1
        if self.steps == self._table.shape[1]:
            # Twice as long each time, so that all copies together cost as much as the last one.
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
