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

What is exact: everything, up to rounding, for any schedule, any eps, bias correction on or off.

Source: S-DIET (2025), section 5.3 and appendix E, whose equations 7 and 8 print the wrong sign
before the sum, assume a constant learning rate and keep eps undecayed.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class RowState:
    """Rows with their optimiser state, as they were after each row's own last step."""

    row: Tensor
    """Weights [b, m]."""
    m: Tensor
    """First moment [b, m]."""
    v: Tensor
    """Second moment [b, m], or [b, 1]: one for the whole row."""
    last: Tensor
    """Step each row is at, int64 [b], in host memory; 0 before the first."""


class LazyAdamW:
    """AdamW over rows that are visited at some steps only, under a known schedule.

    Args:
        lr: learning rate of steps 1..T, float64 [T]; known before training.
        betas: decay of the two moments.
        eps: added to the root of the second moment, as in `torch.optim.AdamW`.
        weight_decay: decoupled; `lr * weight_decay` must stay below 1.
        bias_correction: divide the moments by 1 - beta^step, as `torch.optim.AdamW` does.

    Example:
        >>> import torch
        >>> adamw = LazyAdamW(torch.full((10,), 0.1, dtype=torch.float64), weight_decay=0.5)
        >>> zero = torch.zeros(1, 2)
        >>> state = RowState(torch.ones(1, 2), zero, zero, torch.tensor([0]))
        >>> adamw.coast(state, until=2).row  # two steps of weight decay alone: 0.95 ** 2
        tensor([[0.9025, 0.9025]])
    """

    def __init__(
        self,
        lr: Tensor,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.05,
        bias_correction: bool = True,
    ) -> None:
        assert lr.dtype == torch.float64
        assert lr.ndim == 1
        if float(lr.max()) * weight_decay >= 1:
            raise ValueError(
                f"head learning rate {float(lr.max()):g} times weight decay {weight_decay:g} "
                "reaches 1: lower head_lr_scale or weight_decay"
            )
        self.beta1, self.beta2 = betas
        self.eps = eps
        self.weight_decay = weight_decay
        self.bias_correction = bias_correction
        nothing = lr.new_zeros(1)
        self.lr = torch.cat([nothing, lr])  # lr[s] belongs to step s
        self.log_decay = torch.cat([nothing, torch.log1p(-lr * weight_decay).cumsum(0)])

    def horizon(self, dtype: torch.dtype) -> int:
        """Number of zero-gradient steps after which a row's momentum is below rounding."""
        mu = self.beta1 / math.sqrt(self.beta2)
        return math.ceil(math.log(torch.finfo(dtype).eps / 8) / math.log(mu))

    def coast(self, state: RowState, *, until: int) -> RowState:
        """Take the zero-gradient steps `last + 1 .. until` of every row, in closed form.

        Raises:
            AssertionError: a row is already past `until`.
        """
        gap = until - state.last
        assert int(gap.min()) >= 0, "a row cannot be taken back in time"
        decay, fade1, fade2 = (
            column[:, None].to(state.row)
            for column in (
                (self.log_decay[until] - self.log_decay[state.last]).exp(),
                self.beta1 ** gap.double(),
                self.beta2 ** gap.double(),
            )
        )
        return RowState(
            decay * state.row - self._drift(state, until),
            fade1 * state.m,
            fade2 * state.v,
            torch.full_like(state.last, until),
        )

    def _drift(self, state: RowState, until: int) -> Tensor:
        """The sum of the missed momentum steps [b, m]."""
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
        """Coefficients of term i (step s = last + i): both float64 [terms, b, 1].

        Term i of the sum is weight * m / (shrink * sqrt(v) + eps).
        """
        i = torch.arange(1, terms + 1)[:, None]
        missed = last + i <= until
        s = torch.where(missed, last + i, until)
        fade1, fade2 = self.beta1 ** i.double(), self.beta2 ** i.double()
        weight = (self.log_decay[until] - self.log_decay[s]).exp() * self.lr[s] * fade1
        shrink = fade2.sqrt().expand_as(weight)
        if self.bias_correction:
            weight = weight / (1 - self.beta1 ** s.double())
            shrink = shrink / (1 - self.beta2 ** s.double()).sqrt()
        return (weight * missed)[..., None], shrink[..., None]

    def step(self, state: RowState, grad: Tensor, *, step: int) -> RowState:
        """Take step `step` with gradient `grad` [b, m] from rows that are at `step - 1`."""
        lr = float(self.lr[step])
        m, v = self._moments(state, grad)
        mhat, vhat = m, v
        if self.bias_correction:
            mhat, vhat = m / (1 - self.beta1**step), v / (1 - self.beta2**step)
        row = (1 - lr * self.weight_decay) * state.row - lr * mhat / (vhat.sqrt() + self.eps)
        return RowState(row, m, v, torch.full_like(state.last, step))

    def _moments(self, state: RowState, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Both moments after a step with gradient `grad` [b, m]."""
        square = grad.square()
        if state.v.shape[1] < grad.shape[1]:
            square = square.mean(1, keepdim=True)
        m = torch.lerp(state.m, grad, 1 - self.beta1)
        return m, self.beta2 * state.v + (1 - self.beta2) * square

    def published_visit(self, state: RowState, grad: Tensor, *, step: int, gap: int) -> RowState:
        """The paper's visit: one gradient step, then `gap - 1` zero-gradient steps ahead of time.

        The listing of appendix E: no bias correction, the learning rate of this step throughout,
        eps not decayed, and `gap` an estimate (n / b) of when the row comes back. With
        a = 1 - lr lambda and mu = beta1 / sqrt(beta2),

            row <- a^(gap-1) row - lr mu (a^(gap-1) - mu^(gap-1)) / (a - mu) m / (sqrt(v) + eps).
        """
        lr = float(self.lr[step])
        a, mu, k = 1 - lr * self.weight_decay, self.beta1 / math.sqrt(self.beta2), gap - 1
        m, v = self._moments(state, grad)
        direction = m / (v.sqrt() + self.eps)
        row = a * state.row - lr * direction
        slope = k * a ** (k - 1) if math.isclose(a, mu) else (a**k - mu**k) / (a - mu)
        row = a**k * row - lr * mu * slope * direction
        at = torch.full_like(state.last, step)
        return RowState(row, self.beta1**k * m, self.beta2**k * v, at)
