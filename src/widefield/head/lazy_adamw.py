"""AdamW for rows that are seen once in a while: the missed steps, in closed form.

Dense AdamW moves every row at every step: a row outside the batch has gradient zero, yet its
weight decays and its momentum coasts. A lazy row is left alone and brought up to date when it is
next needed. After k steps t+1 .. t+k without a gradient,

    m_k = beta1^k m,    v_k = beta2^k v,
    row_k = prod_{s=t+1}^{t+k} (1 - lr_s lambda) row
            - sum_{s=t+1}^{t+k} [prod_{r=s+1}^{t+k} (1 - lr_r lambda)] lr_s mhat_s / root(vhat_s)

with root(v) = sqrt(v) + eps.

The moments inside the sum shrink by mu = beta1 / sqrt(beta2) a step (0.9005 at the usual betas),
so terms past `horizon` are below the rounding of the rows' dtype and are left out: 172 terms in
float32, 364 in float64, however long the gap. Products and coefficients are float64.

Where a row has one second moment for all its elements, that is the moving average of the mean of
their squared gradients, v <- beta2 v + (1 - beta2) mean_j g_j^2; all else is as above.

A row replays steps that are past. So the optimizer keeps the learning rates that were, with the
running sum of log(1 - lr lambda), and needs to know none of those that will be: any schedule does,
and it may change while training.

What is exact: everything, up to rounding, for any schedule, any eps, bias correction on or off.

Source: S-DIET (2025), section 5.2.2 and appendix E, whose equations 7 and 8 print the wrong sign
before the sum, assume a constant learning rate and keep eps undecayed.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

BETA1, BETA2 = 0.9, 0.999
"""Decay of the two moments at a step, as in `torch.optim.AdamW`."""

WEIGHT_DECAY = 0.05
"""Decoupled weight decay of the rows, unless told otherwise."""

_MU = BETA1 / math.sqrt(BETA2)


@dataclass(frozen=True, slots=True)
class RowState:
    """Rows with their optimizer state, as they were after each row's own last step."""

    row: Tensor
    """Weights [b, m]."""
    m: Tensor
    """First moment [b, m]."""
    v: Tensor
    """Second moment [b, m], or [b, 1]: one for the whole row."""
    last: Tensor
    """Step each row is at, int64 [b], in host memory; 0 before the first."""


class LearningRates:
    """Learning rates of the steps taken so far, and the decay of a row between any two of them.

    Example:
        >>> rates = LearningRates(weight_decay=0.5)
        >>> rates.append(0.1)
        >>> rates.append(0.2)
        >>> rates.steps, rates.lr(torch.tensor([1, 2])).tolist()
        (2, [0.1, 0.2])
    """

    def __init__(self, *, weight_decay: float) -> None:
        self.weight_decay = weight_decay
        self.steps = 0
        self._table = torch.zeros(2, 1024, dtype=torch.float64)  # lr_s; sum of log(1 - lr_s lambda)

    def append(self, lr: float) -> None:
        """Add the learning rate of the next step.

        Raises:
            ValueError: with it, weight decay would take a row to zero or beyond.
        """
        self.refuse(lr)
        self.steps += 1
        if self.steps == self._table.shape[1]:
            self._table = torch.cat([self._table, torch.zeros_like(self._table)], dim=1)
        before = float(self._table[1, self.steps - 1])
        self._table[0, self.steps] = lr
        self._table[1, self.steps] = before + math.log1p(-lr * self.weight_decay)

    def refuse(self, lr: float) -> None:
        """Refuse a learning rate that no step can have.

        Raises:
            ValueError: with it, weight decay would take a row to zero or beyond.
        """
        if lr * self.weight_decay >= 1:
            raise ValueError(
                f"head learning rate {lr:g} times weight decay {self.weight_decay:g} reaches 1: "
                "lower lr, head_lr_scale or weight_decay"
            )

    def lr(self, step: Tensor) -> Tensor:
        """Return the learning rate of each of `step`, float64."""
        return self._table[0][step]

    def log_decay(self, first: Tensor, last: int) -> Tensor:
        """Return sum_s log(1 - lr_s lambda) over the steps first + 1 .. last, float64."""
        return self._table[1, last] - self._table[1][first]

    def state_dict(self) -> dict[str, Tensor]:
        """Return the history, float64 [2, steps + 1]."""
        return {"table": self._table[:, : self.steps + 1].clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Take over a history."""
        self.steps = state["table"].shape[1] - 1
        room = torch.zeros(2, self.steps + 1024, dtype=torch.float64)
        room[:, : self.steps + 1] = state["table"]
        self._table = room


class LazyAdamW:
    """AdamW over rows that are visited at some steps only.

    Args:
        eps: added to the root of the second moment, as in `torch.optim.AdamW`.
        weight_decay: decoupled; `lr * weight_decay` must stay below 1.
        bias_correction: divide the moments by 1 - beta^step, as `torch.optim.AdamW` does.

    Example:
        >>> adamw = LazyAdamW(weight_decay=0.5)
        >>> adamw.record(0.1)
        >>> adamw.record(0.1)
        >>> zero = torch.zeros(1, 2)
        >>> state = RowState(torch.ones(1, 2), zero, zero, torch.tensor([0]))
        >>> adamw.catch_up(state, 2).row  # two steps of weight decay alone: 0.95 ** 2
        tensor([[0.9025, 0.9025]])
    """

    def __init__(
        self,
        *,
        eps: float = 1e-8,
        weight_decay: float = WEIGHT_DECAY,
        bias_correction: bool = True,
    ) -> None:
        self.eps = eps
        self.weight_decay = weight_decay
        self.bias_correction = bias_correction
        self.rates = LearningRates(weight_decay=weight_decay)

    @property
    def steps(self) -> int:
        """Number of steps taken."""
        return self.rates.steps

    def record(self, lr: float) -> None:
        """Note that a step was taken at learning rate `lr`: absent rows will replay it."""
        self.rates.append(lr)

    def horizon(self, dtype: torch.dtype) -> int:
        """Return the number of zero-gradient steps after which momentum is below rounding."""
        return math.ceil(math.log(torch.finfo(dtype).eps / 8) / math.log(_MU))

    def catch_up(self, state: RowState, until: int) -> RowState:
        """Take the zero-gradient steps `last + 1 .. until` of every row, in closed form.

        Raises:
            AssertionError: a row is already past `until`.
        """
        gap = until - state.last
        assert int(gap.min()) >= 0, "a row cannot be taken back in time"
        decay, fade1, fade2 = (
            column[:, None].to(state.row)
            for column in (
                self.rates.log_decay(state.last, until).exp(),
                BETA1 ** gap.double(),
                BETA2 ** gap.double(),
            )
        )
        return RowState(
            decay * state.row - self._drift(state, until),
            fade1 * state.m,
            fade2 * state.v,
            torch.full_like(state.last, until),
        )

    def _drift(self, state: RowState, until: int) -> Tensor:
        """Return the sum of the missed momentum steps [b, m]."""
        visited = state.last > 0  # the others have no momentum to replay
        if not visited.any():
            return torch.zeros_like(state.row)
        drift = torch.zeros_like(state.v)
        terms = min(int((until - state.last[visited]).max()), self.horizon(state.row.dtype))
        weight, shrink = (c.to(state.row) for c in self._terms(state.last, until, terms))
        root = state.v.sqrt()
        for i in range(terms):
            denominator = torch.mul(root, shrink[i]).add_(self.eps)
            drift.addcdiv_(weight[i].expand_as(root), denominator)
        # A row never visited has m = v = 0: with eps = 0 that is 0 / 0, and it does not move.
        return torch.where(state.m == 0, 0.0, drift * state.m)

    def _terms(self, last: Tensor, until: int, terms: int) -> tuple[Tensor, Tensor]:
        """Return the coefficients of term i (step s = last + i), both float64 [terms, b, 1].

        Term i of the sum is weight * m / (shrink * sqrt(v) + eps).
        """
        i = torch.arange(1, terms + 1)[:, None]
        missed = last + i <= until
        s = torch.where(missed, last + i, until)
        fade1, fade2 = BETA1 ** i.double(), BETA2 ** i.double()
        weight = self.rates.log_decay(s, until).exp() * self.rates.lr(s) * fade1
        shrink = fade2.sqrt().expand_as(weight)
        if self.bias_correction:
            weight = weight / (1 - BETA1 ** s.double())
            shrink = shrink / (1 - BETA2 ** s.double()).sqrt()
        return (weight * missed)[..., None], shrink[..., None]

    def step(self, state: RowState, grad: Tensor, *, lr: float) -> RowState:
        """Take the next step with gradient `grad` [b, m] from rows that have caught up."""
        step = self.steps + 1
        m, v = self._moments(state, grad)
        mhat, vhat = m, v
        if self.bias_correction:
            mhat, vhat = m / (1 - BETA1**step), v / (1 - BETA2**step)
        row = (1 - lr * self.weight_decay) * state.row - lr * mhat / (vhat.sqrt() + self.eps)
        return RowState(row, m, v, torch.full_like(state.last, step))

    def _moments(self, state: RowState, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Return both moments after a step with gradient `grad` [b, m]."""
        square = grad.square()
        if state.v.shape[1] < grad.shape[1]:
            square = square.mean(1, keepdim=True)
        m = torch.lerp(state.m, grad, 1 - BETA1)
        return m, BETA2 * state.v + (1 - BETA2) * square

    def paper_step(self, state: RowState, grad: Tensor, *, lr: float, gap: int) -> RowState:
        """Take the paper's visit: a gradient step, then `gap - 1` zero-gradient steps ahead.

        The listing of appendix E: no bias correction, the learning rate of this step throughout,
        eps not decayed, and `gap` an estimate (n / b) of when the row comes back. With
        a = 1 - lr lambda and mu = beta1 / sqrt(beta2),

            row <- a^(gap-1) row - lr mu (a^(gap-1) - mu^(gap-1)) / (a - mu) m / (sqrt(v) + eps).
        """
        a, k = 1 - lr * self.weight_decay, gap - 1
        m, v = self._moments(state, grad)
        direction = m / (v.sqrt() + self.eps)
        row = a * state.row - lr * direction
        row = a**k * row - lr * _MU * decayed_powers(a, _MU, k) * direction
        last = torch.full_like(state.last, self.steps + 1)
        return RowState(row, BETA1**k * m, BETA2**k * v, last)


def decayed_powers(a: float, mu: float, k: int) -> float:
    """Return sum_{i<k} a^(k-1-i) mu^i = (a^k - mu^k) / (a - mu), or its limit where a = mu.

    Example:
        >>> decayed_powers(2.0, 1.0, 3), decayed_powers(2.0, 2.0, 3)
        (7.0, 12.0)
    """
    return k * a ** (k - 1) if math.isclose(a, mu) else (a**k - mu**k) / (a - mu)
