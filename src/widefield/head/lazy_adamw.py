"""AdamW for the rows of a batch, with the missed steps of each row in closed form.

Dense AdamW updates every row at every step: a row outside the batch has gradient zero, but weight
decay and momentum. A lazy row catches up with these steps when it is next needed. After k steps
t+1 .. t+k without a gradient,

    m_k = beta1^k m,    v_k = beta2^k v,
    row_k = prod_{s=t+1}^{t+k} (1 - lr_s lambda) row
            - sum_{s=t+1}^{t+k} [prod_{r=s+1}^{t+k} (1 - lr_r lambda)] lr_s mhat_s / root(vhat_s)

with root(v) = sqrt(v) + eps.

The moments inside the sum shrink by mu = beta1 / sqrt(beta2) a step (0.9005 at the usual betas),
so terms past `horizon` are below the rounding of the rows' dtype and are left out: 172 terms in
float32, 364 in float64, however long the gap. `merged_terms` makes a few terms of them, 4 in
float32 once a run is under way, so that a device gets one transfer and ten kernels, whatever was
missed. Products and coefficients are float64.

With one second moment for a whole row, v <- beta2 v + (1 - beta2) mean_j g_j^2.

The result is exact up to rounding, for any schedule and any eps, with and without bias correction.

Source: S-DIET (2025), section 5.2.2 and appendix E, whose equations 7 and 8 print the wrong sign
before the sum, assume a constant learning rate and keep eps undecayed.
"""

import math
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
from widefield.head.merged_terms import merge_terms
from widefield.head.per_example_head import PerExampleHead
from widefield.head.storage.base import RowState


class LazyAdamW(LazyOptimizer):
    """AdamW for the rows of a per-example head; a step updates those of its batch.

    With `update="exact"` the rows equal, up to rounding, those of `torch.optim.AdamW` over all n
    rows, with gradient zero outside the batch.

    Args:
        head: the head whose rows are optimized.
        lr: learning rate.
        betas: decay rates of the two moments, as in `torch.optim.AdamW`; beta1^2 < beta2.
        eps: added to the root of the second moment, as in `torch.optim.AdamW`.
        weight_decay: decoupled weight decay; `lr * weight_decay` must stay below 1.
        bias_correction: divide the moments by 1 - beta^step, as `torch.optim.AdamW` does.
        update: replay missed steps exactly, or estimate them at each visit as in the paper.
        gap: for `estimated`, steps between two visits of a row; by default n / b of each batch.

    Raises:
        ValueError: a setting does not fit, the head has an optimizer, or its storage keeps no
            second moments.

    Example:
        >>> from widefield.head import PerExampleHead
        >>> head = PerExampleHead(examples=100, dim=8)
        >>> optimizer = LazyAdamW(head, lr=1e-3)
        >>> scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10)
        >>> head(torch.rand(16, 8), torch.arange(16)).backward()
        >>> optimizer.step()
        >>> scheduler.step()

    Source: S-DIET (2025), section 5.2.2 and appendix E.
    """

    @checked
    def __init__(
        self,
        head: PerExampleHead,
        lr: float = 1e-3,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: Annotated[float, Ge(0)] = 1e-8,
        weight_decay: float = WEIGHT_DECAY,
        bias_correction: bool = True,
        update: Update = "exact",
        gap: Annotated[int | None, Ge(1)] = None,
    ) -> None:
        check_head(head)
        if head.storage.layout.second_moment == "none":
            raise ValueError(
                "the storage keeps no second moments, which AdamW needs: use LazySGD, or a "
                "storage of another layout"
            )
        beta1, beta2 = betas
        # With beta1^2 >= beta2 the missed momentum steps would not shrink, and their sum not end.
        if not (0 < beta1 < 1 and beta1**2 < beta2 < 1):
            raise ValueError(
                f"betas must be two numbers above 0 with beta1^2 < beta2 < 1, got {betas}"
            )
        super().__init__(
            head,
            lr,
            weight_decay=weight_decay,
            update=update,
            gap=gap,
            constants={"betas": betas, "eps": eps, "bias_correction": bias_correction},
        )

    @property
    def decay(self) -> float:
        """Factor mu of m / sqrt(v) at a zero-gradient step."""
        beta1, beta2 = self.param_groups[0]["betas"]
        return float(beta1 / math.sqrt(beta2))

    def catch_up(self, state: RowState) -> RowState:
        history, last = self.head.history, state.last
        beta1, beta2 = self.param_groups[0]["betas"]
        gap = history.steps - last
        assert int(gap.min()) >= 0, "a row cannot be taken back in time"
        factors = [history.log_decay(last).exp(), beta1 ** gap.double(), beta2 ** gap.double()]
        missed = int((gap * (last > 0)).max())  # rows never visited have no momentum
        dtype = state.row.dtype
        terms = min(missed, self.horizon(dtype))
        few = merge_terms(*self._terms(last, terms), dtype) if missed else ()
        scalars = torch.cat([torch.stack(factors, dim=1), *few], dim=1)
        # In one transfer, and of the rows' own type.
        scalars = to_device(scalars.to(dtype), state.row.device)
        decay, fade1, fade2 = torch.split(scalars[:, :3], 1, dim=1)
        row = decay * state.row
        if missed:
            weight, shrink = scalars[:, 3:, None].chunk(2, dim=1)
            # row <- decay row - sum_k weight_k / (shrink_k sqrt(v) + eps) m
            row.addcmul_(self._momentum_sum(state, weight, shrink), state.m, value=-1)
        return RowState(row, fade1 * state.m, fade2 * state.v, torch.full_like(last, history.steps))

    def _momentum_sum(self, state: RowState, weight: Tensor, shrink: Tensor) -> Tensor:
        """Return the factor of m in the sum of K terms of the missed momentum steps, as v.

        `weight` and `shrink`, the factor of sqrt(v), are [b, K, 1].
        """
        eps = self.param_groups[0]["eps"]
        # sum_k weight_k / (shrink_k sqrt(v) + eps), in the memory of the denominators [b, K, m]
        denominator = (shrink * state.v.sqrt()[:, None]).add_(eps)
        total = torch.div(weight, denominator, out=denominator).sum(1)
        if eps == 0:
            # A row never visited has m = v = 0: that is 0 / 0, and it does not move.
            total.masked_fill_(state.v == 0, 0.0)
        return total

    def _terms(self, last: Tensor, terms: int) -> tuple[Tensor, Tensor]:
        """Return the coefficients of term i (step s = last + i), both float64 [terms, b].

        Term i of the sum is weight * m / (shrink * sqrt(v) + eps); the second is log(shrink).
        """
        history, group = self.head.history, self.param_groups[0]
        beta1, beta2 = group["betas"]
        log_beta1, log_beta2 = math.log(beta1), math.log(beta2)
        i = torch.arange(1, terms + 1)[:, None]
        s = last + i
        is_missed = (s <= history.steps) & (last > 0)
        s.clamp_(max=history.steps)
        # weight = prod_{r>s} (1 - lr_r lambda) lr_s beta1^i,    log shrink = i log sqrt(beta2)
        weight = history.log_decay(s).exp_().mul_(history.lr(s)).mul_(beta1 ** i.double())
        log_shrink = (0.5 * log_beta2 * i.double()).expand_as(weight)
        if group["bias_correction"]:
            # weight <- weight / (1 - beta1^s),    shrink <- shrink / sqrt(1 - beta2^s),
            # where 1 - beta^s = -expm1(s log beta) is exact for small s log beta too
            s = s.double()
            weight /= -(log_beta1 * s).expm1_()
            log_shrink = log_shrink - 0.5 * (-(log_beta2 * s).expm1_()).log_()
        return weight.mul_(is_missed), log_shrink

    def gradient_step(
        self, state: RowState, grad: Tensor, lr: float, weight_decay: float
    ) -> RowState:
        step, group = self.head.history.steps, self.param_groups[0]
        m, v = self._moments(state, grad)
        m_unbiased, v_unbiased = m, v
        if group["bias_correction"]:
            beta1, beta2 = group["betas"]
            m_unbiased, v_unbiased = m / (1 - beta1**step), v / (1 - beta2**step)
        root = v_unbiased.sqrt() + group["eps"]
        row = (1 - lr * weight_decay) * state.row - lr * m_unbiased / root
        return RowState(row, m, v, torch.full_like(state.last, step))

    def _moments(self, state: RowState, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Return both moments after a step with gradient `grad` [b, m]."""
        beta1, beta2 = self.param_groups[0]["betas"]
        square = grad.square()
        if state.v.shape[1] < grad.shape[1]:  # one second moment for the whole row
            square = square.mean(1, keepdim=True)
        m = torch.lerp(state.m, grad, 1 - beta1)  # beta1 m + (1 - beta1) g
        return m, beta2 * state.v + (1 - beta2) * square

    def paper_step(
        self, state: RowState, grad: Tensor, lr: float, weight_decay: float, gap: int
    ) -> RowState:
        """Take the paper's visit: a gradient step, then `gap - 1` zero-gradient steps ahead.

        The listing of appendix E: no bias correction, the learning rate of this step throughout,
        eps not decayed, and `gap` an estimate (n / b) of the steps to the next visit. With
        a = 1 - lr lambda and mu = beta1 / sqrt(beta2),

            row <- a^(gap-1) row - lr mu (a^(gap-1) - mu^(gap-1)) / (a - mu) m / (sqrt(v) + eps).
        """
        a, k, mu = 1 - lr * weight_decay, gap - 1, self.decay
        beta1, beta2 = self.param_groups[0]["betas"]
        m, v = self._moments(state, grad)
        direction = m / (v.sqrt() + self.param_groups[0]["eps"])
        row = a * state.row - lr * direction
        row = a**k * row - lr * mu * decayed_powers(a, mu, k) * direction
        last = torch.full_like(state.last, self.head.history.steps)
        return RowState(row, beta1**k * m, beta2**k * v, last)
