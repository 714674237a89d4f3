"""SGD with momentum for rows that are seen once in a while: the missed steps, in closed form.

A step with gradient g, learning rate lr and decoupled weight decay lambda is

    m <- momentum m + g,    row <- (1 - lr lambda) row - lr m.

After k steps t+1 .. t+k without a gradient,

    m_k = momentum^k m,
    row_k = prod_{s=t+1}^{t+k} (1 - lr_s lambda) row
            - sum_{s=t+1}^{t+k} [prod_{r=s+1}^{t+k} (1 - lr_r lambda)] lr_s momentum^(s-t) m.

At a constant learning rate, a = 1 - lr lambda, the sum is lr momentum (a^k - momentum^k) /
(a - momentum) m. It is the same number for every element of a row, so that a gap costs next to
nothing. Terms past `horizon` are below the rounding of the rows' dtype and are left out.

Without weight decay this is `torch.optim.SGD`; with it, torch's would decay through the momentum,
and the paper's does not.

Source: S-DIET (2025), section 5.2.2, equations 6 and 7, of which the second prints the wrong sign
before the sum.
"""

import math

import torch
from torch import Tensor

from widefield.head.lazy_adamw import WEIGHT_DECAY, LearningRates, RowState, decayed_powers

MOMENTUM = 0.9
"""Share of the last change that the next one keeps."""


class LazySGD:
    """SGD with momentum over rows that are visited at some steps only.

    Args:
        weight_decay: decoupled; `lr * weight_decay` must stay below 1.
        momentum: share of the last change that the next one keeps, in [0, 1).

    Raises:
        ValueError: a momentum that never fades, or is below 0.

    Example:
        >>> sgd = LazySGD(weight_decay=0.0, momentum=0.5)
        >>> sgd.record(1.0)
        >>> sgd.record(1.0)
        >>> one = torch.ones(1, 2)
        >>> state = RowState(one, one, torch.zeros(1, 0), torch.tensor([1]))
        >>> sgd.catch_up(state, 2).row  # one more step by half of what the last one moved
        tensor([[0.5000, 0.5000]])
    """

    def __init__(self, *, weight_decay: float = WEIGHT_DECAY, momentum: float = MOMENTUM) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, got {momentum:g}")
        self.weight_decay = weight_decay
        self.momentum = momentum
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
        if self.momentum == 0:
            return 0
        return math.ceil(math.log(torch.finfo(dtype).eps / 8) / math.log(self.momentum))

    def catch_up(self, state: RowState, until: int) -> RowState:
        """Take the zero-gradient steps `last + 1 .. until` of every row, in closed form.

        Raises:
            AssertionError: a row is already past `until`.
        """
        gap = until - state.last
        assert int(gap.min()) >= 0, "a row cannot be taken back in time"
        terms = min(int(gap.max()), self.horizon(state.row.dtype))
        coasted = self._coasted(state.last, until, terms)
        decay, fade, coasted = (
            column[:, None].to(state.row)
            for column in (
                self.rates.log_decay(state.last, until).exp(),
                self.momentum ** gap.double(),
                coasted,
            )
        )
        row = decay * state.row - coasted * state.m
        return RowState(row, fade * state.m, state.v, torch.full_like(state.last, until))

    def _coasted(self, last: Tensor, until: int, terms: int) -> Tensor:
        """Return the sum before m of every row, float64 [b]."""
        i = torch.arange(1, terms + 1)[:, None]
        missed = last + i <= until
        s = torch.where(missed, last + i, until)
        shrink = self.rates.log_decay(s, until).exp()
        return (missed * shrink * self.rates.lr(s) * self.momentum ** i.double()).sum(0)

    def step(self, state: RowState, grad: Tensor, *, lr: float) -> RowState:
        """Take the next step with gradient `grad` [b, m] from rows that have caught up."""
        m = self.momentum * state.m + grad
        row = (1 - lr * self.weight_decay) * state.row - lr * m
        return RowState(row, m, state.v, torch.full_like(state.last, self.steps + 1))

    def paper_step(self, state: RowState, grad: Tensor, *, lr: float, gap: int) -> RowState:
        """Take the paper's visit: a gradient step, then `gap - 1` zero-gradient steps ahead.

        Equation 7 at the learning rate of this step throughout, `gap` being an estimate (n / b)
        of when the row comes back.
        """
        a, k, after = 1 - lr * self.weight_decay, gap - 1, self.step(state, grad, lr=lr)
        ahead = lr * self.momentum * decayed_powers(a, self.momentum, k)
        row = a**k * after.row - ahead * after.m
        return RowState(row, self.momentum**k * after.m, state.v, after.last)
