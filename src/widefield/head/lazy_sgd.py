"""SGD with momentum for the rows of a batch, with missed steps in closed form.

A step with gradient g, learning rate lr and decoupled weight decay lambda is

    m <- momentum m + g,    row <- (1 - lr lambda) row - lr m.

After k steps t+1 .. t+k without a gradient,

    m_k = momentum^k m,
    row_k = prod_{s=t+1}^{t+k} (1 - lr_s lambda) row
            - sum_{s=t+1}^{t+k} [prod_{r=s+1}^{t+k} (1 - lr_r lambda)] lr_s momentum^(s-t) m.

At a constant learning rate, a = 1 - lr lambda, the sum is lr momentum (a^k - momentum^k) /
(a - momentum) m. The factor is the same for all elements of a row. Terms past `horizon` are below
the rounding of the rows' dtype and are left out.

Without weight decay this is `torch.optim.SGD`; with it, torch's would decay through the momentum,
and the paper's does not.

Source: S-DIET (2025), section 5.2.2, equations 6 and 7, of which the second prints the wrong sign
before the sum.
"""

from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from widefield.core.batch import checked
from widefield.core.devices import to_device
from widefield.head.lazy_optimizer import (
    WEIGHT_DECAY,
    LazyOptimizer,
    Update,
    check_head,
    decayed_powers,
)
from widefield.head.per_example_head import PerExampleHead
from widefield.head.storage.base import RowState


class LazySGD(LazyOptimizer):
    """SGD with momentum for the rows of a per-example head.

    With `update="exact"` the rows equal, up to rounding, those of SGD over all n rows. It needs no
    second moments: a storage with `Layout(second_moment="none")` saves them.

    Args:
        head: the head whose rows are optimized.
        lr: learning rate.
        momentum: factor of the previous update, in [0, 1).
        weight_decay: decoupled weight decay; `lr * weight_decay` must stay below 1.
        update: replay missed steps exactly, or estimate them at each visit as in the paper.
        gap: for `estimated`, steps between two visits of a row; by default n / b of each batch.

    Raises:
        ValueError: a setting does not fit, or the head has an optimizer.

    Example:
        >>> from widefield.head import PerExampleHead
        >>> head = PerExampleHead(examples=100, dim=8)
        >>> optimizer = LazySGD(head, lr=0.1)
        >>> head(torch.rand(16, 8), torch.arange(16)).backward()
        >>> optimizer.step()

    Source: S-DIET (2025), section 5.2.2, equations 6 and 7.
    """

    @checked
    def __init__(
        self,
        head: PerExampleHead,
        lr: float = 1e-3,
        *,
        momentum: float = 0.9,
        weight_decay: float = WEIGHT_DECAY,
        update: Update = "exact",
        gap: Annotated[int | None, Ge(1)] = None,
    ) -> None:
        check_head(head)
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum must be at least 0 and below 1, got {momentum:g}")
        super().__init__(
            head,
            lr,
            weight_decay=weight_decay,
            update=update,
            gap=gap,
            constants={"momentum": momentum},
        )

    @property
    def decay(self) -> float:
        """Factor of m at a zero-gradient step."""
        return float(self.param_groups[0]["momentum"])

    def catch_up(self, state: RowState) -> RowState:
        history, momentum = self.head.history, self.decay
        gap = history.steps - state.last
        assert int(gap.min()) >= 0, "a row cannot be taken back in time"
        scalars = torch.stack(
            [
                history.log_decay(state.last).exp(),
                self._momentum_sum(state.last, min(int(gap.max()), self.horizon(state.row.dtype))),
                momentum ** gap.double(),
            ],
            dim=1,
        )
        # In one transfer, and of the rows' own type.
        scalars = to_device(scalars.to(state.row.dtype), state.row.device)
        decay, momentum_sum, fade = torch.split(scalars, 1, dim=1)
        # row_k = prod (1 - lr lambda) row - (sum of the missed momentum steps) m
        row = decay * state.row - momentum_sum * state.m
        return RowState(row, fade * state.m, state.v, torch.full_like(state.last, history.steps))

    def _momentum_sum(self, last: Tensor, terms: int) -> Tensor:
        """Return the factor of m in the sum of every row, float64 [b]."""
        history = self.head.history
        i = torch.arange(1, terms + 1)[:, None]
        is_missed = last + i <= history.steps
        # sum_i prod_{r>s} (1 - lr_r lambda) lr_s momentum^i with s = last + i
        s = torch.where(is_missed, last + i, history.steps)
        shrink = history.log_decay(s).exp()
        return (is_missed * shrink * history.lr(s) * self.decay ** i.double()).sum(0)

    def gradient_step(
        self, state: RowState, grad: Tensor, lr: float, weight_decay: float
    ) -> RowState:
        m = self.decay * state.m + grad
        row = (1 - lr * weight_decay) * state.row - lr * m
        return RowState(row, m, state.v, torch.full_like(state.last, self.head.history.steps))

    def paper_step(
        self, state: RowState, grad: Tensor, lr: float, weight_decay: float, gap: int
    ) -> RowState:
        """Take the paper's visit: a gradient step, then `gap - 1` zero-gradient steps ahead.

        Equation 7 with the learning rate of this step, and `gap` an estimate (n / b) of the steps
        to the next visit.
        """
        a, k = 1 - lr * weight_decay, gap - 1
        after = self.gradient_step(state, grad, lr, weight_decay)
        momentum = self.decay
        scale = lr * momentum * decayed_powers(a, momentum, k)
        row = a**k * after.row - scale * after.m
        return RowState(row, momentum**k * after.m, state.v, after.last)
