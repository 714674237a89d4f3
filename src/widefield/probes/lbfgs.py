"""Batched L-BFGS for many softmax regressions over the same features.

Problem p has targets y_p, a share a_ip of each example (summing to 1) and L2 strengths l_dp, and
minimizes over W

    f_p(W) = sum_i a_ip (-log softmax(x_i W)[y_ip])  +  1/2 sum_dk l_dp W_dk^2 .

All take L-BFGS steps (Nocedal & Wright 2006, algorithm 7.5) together: one matrix product serves
all problems, each has its own curvature pairs and step length and is removed when converged. If
the columns of x are uncorrelated with mean square v_d, the Hessian is nearly diagonal, c v_d + l_d
with c about the mean of p (1 - p). L-BFGS starts from the inverse of that: close to Newton's method
from the first step on, also for an ill-conditioned x. The line search needs no matrix product,
because logits are linear in the step length.

Shapes: n examples, d columns of x, P problems, K the maximum number of classes.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from widefield.probes.design import DesignMatrix

# Chosen by hand. The limit of steps ends a problem that rounding keeps from converging; Nocedal and
# Wright keep 3 to 20 pairs; 20 halvings make a step of the size of rounding.
_STEPS = 500
_PAIRS = 10
_TRIALS = 20


@dataclass(frozen=True, slots=True)
class Problems:
    """P softmax regressions over the same n examples."""

    target: Tensor
    """int64 [P, n], in 0..K-1."""
    share: Tensor
    """float32 [P, n]: weight of each example, 0 to leave it out; rows sum to 1."""
    l2: Tensor
    """float32 [P, d]."""
    classes: Tensor
    """int64 [P]: number of classes of each problem, at most K."""

    def __getitem__(self, index: Tensor) -> "Problems":
        """Return the problems that `index`, int64 [P'] or bool [P], selects."""
        return Problems(self.target[index], self.share[index], self.l2[index], self.classes[index])

    def logits(self, x: DesignMatrix, weight: Tensor) -> Tensor:
        """Return the logits [P, K, n] of `weight` [P, K, d], -inf for classes a problem lacks."""
        padding = torch.arange(weight.shape[1], device=weight.device) >= self.classes[:, None]
        return x.times(weight).masked_fill_(padding[:, :, None], -torch.inf)

    def loss(self, logits: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return f [P] in float64 and the probabilities [P, K, n]."""
        log_probability = logits.log_softmax(1)
        of_target = log_probability.gather(1, self.target[:, None])[:, 0]
        penalty = (self.l2[:, None] * weight).mul_(weight).sum((1, 2), dtype=torch.float64)
        loss = penalty / 2 - (self.share * of_target).sum(1, dtype=torch.float64)
        return loss, log_probability.exp_()

    def gradient(self, x: DesignMatrix, weight: Tensor, probability: Tensor) -> Tensor:
        """Return df/dW, [P, K, d]."""
        share = self.share[:, None]
        residual = (probability * share).scatter_add_(1, self.target[:, None], -share)
        return x.sums(residual).addcmul_(self.l2[:, None], weight)

    def diagonal(self, variance: Tensor, probability: Tensor) -> Tensor:
        """Return the approximate diagonal of the Hessian, [P, 1, d]: c v_d + l_d."""
        squares = (self.share[:, None] * probability).mul_(probability).sum((1, 2))
        mean = (1 - squares) / (self.classes - 1)
        # The bias has no penalty: where probabilities round to one, this avoids 1 / 0.
        return torch.addcmul(self.l2, mean.clamp_(min=1e-7)[:, None], variance)[:, None]


def minimize(x: DesignMatrix, problems: Problems, start: Tensor, *, tolerance: float) -> Tensor:
    """Return the minimizers [P, K, d] over the design matrix `x`, starting at `start` [P, K, d].

    A problem has converged when the norm of its gradient is below `tolerance`, or when no step
    decreases it because of rounding.
    """
    variance = x.mean_squares()
    solution, running = start.clone(), torch.arange(len(start), device=start.device)
    weight, logits, curvature = start, problems.logits(x, start), _Curvature(start)
    loss, probability = problems.loss(logits, weight)
    gradient = problems.gradient(x, weight, probability)
    decreased = torch.ones_like(running, dtype=torch.bool)
    for _ in range(_STEPS):
        active = decreased & (_dot(gradient, gradient) > tolerance**2)
        if not active.all():
            solution[running] = weight
            running, problems, loss = running[active], problems[active], loss[active]
            weight, gradient = weight[active], gradient[active]
            logits, probability = logits[active], probability[active]
            curvature.keep(active)
        if len(running) == 0:
            return solution
        inverse = problems.diagonal(variance, probability).reciprocal_()
        direction = curvature.inverse_hessian_times(gradient, inverse).neg_()
        descent, logit_direction = _dot(gradient, direction), x.times(direction)
        length = torch.ones_like(descent)
        for _ in range(_TRIALS):  # until every problem satisfies the Armijo condition
            factor = length[:, None, None]
            new_weight = torch.addcmul(weight, factor, direction)
            new_logits = torch.addcmul(logits, factor, logit_direction)
            new_loss, probability = problems.loss(new_logits, new_weight)
            # The constant of the Armijo condition is Nocedal and Wright's (section 3.1).
            decreased = new_loss <= loss + 1e-4 * length * descent
            if decreased.all():
                break
            length = torch.where(decreased, length, length / 2)
        else:
            new_weight = torch.where(decreased[:, None, None], new_weight, weight)
        new_gradient = problems.gradient(x, new_weight, probability)
        curvature.add(new_weight - weight, new_gradient - gradient)
        weight, logits, loss, gradient = new_weight, new_logits, new_loss, new_gradient
    solution[running] = weight
    return solution


class _Curvature:
    """The last m steps s and gradient changes y of every problem, as rows of S and Y [m, K d].

    With R_ij = s_i.y_j where pair i is not newer than pair j, else 0, and its diagonal D, the
    two-loop recursion (algorithm 7.4) is

        R a = S g,   r = H_0 (g - Y^T a),   R^T b = D a - Y r,   H g = r + S^T b .

    The inverse of R is kept. A new pair adds a column to it; rows and columns of pairs that are
    missing or left out are 0. The order of the pairs has no effect.
    """

    def __init__(self, start: Tensor) -> None:
        self._steps = start.new_zeros(len(start), _PAIRS, start[0].numel())
        self._changes = torch.zeros_like(self._steps)
        self._inverse = start.new_zeros(len(start), _PAIRS, _PAIRS)
        self._diagonal = start.new_zeros(len(start), _PAIRS, 1)
        self._newest = -1

    def add(self, step: Tensor, change: Tensor) -> None:
        self._newest = new = (self._newest + 1) % _PAIRS
        self._steps[:, new], self._changes[:, new] = step.flatten(1), change.flatten(1)
        products = _times(self._steps, change)
        along = products[:, new]
        # f is convex, so s.y > 0 except for rounding; other pairs are left out.
        inverse = torch.where(along > 0, along.reciprocal(), 0)
        self._inverse[:, new], self._inverse[:, :, new] = 0, 0
        column = torch.bmm(self._inverse, products)[:, :, 0].mul_(-inverse)
        column[:, new] = inverse[:, 0]
        self._inverse[:, :, new] = column
        self._diagonal[:, new] = along

    def keep(self, problems: Tensor) -> None:
        self._steps, self._changes = self._steps[problems], self._changes[problems]
        self._inverse, self._diagonal = self._inverse[problems], self._diagonal[problems]

    def inverse_hessian_times(self, gradient: Tensor, start: Tensor) -> Tensor:
        """Return H g; H_0 is the diagonal `start`, rescaled."""
        a = torch.bmm(self._inverse, _times(self._steps, gradient))
        q = torch.baddbmm(gradient.flatten(1)[:, None], a.mT, self._changes, alpha=-1)
        r = self._fit_to_last_pair(start) * q.view_as(gradient)
        b = torch.bmm(self._inverse.mT, self._diagonal * a - _times(self._changes, r))
        return torch.baddbmm(r.flatten(1)[:, None], b.mT, self._steps).view_as(r)

    def _fit_to_last_pair(self, start: Tensor) -> Tensor:
        """Scale `start` so that H_0 y has the length of s, seen along y (equation 7.20)."""
        change = self._changes[:, self._newest].view(len(start), -1, start.shape[2])
        along = self._diagonal[:, self._newest]
        ratio = along / _dot(change, start * change)[:, None]
        return torch.where(along > 0, ratio, 1)[:, :, None] * start


def _times(rows: Tensor, matrix: Tensor) -> Tensor:
    return torch.bmm(rows, matrix.flatten(1)[:, :, None])


def _dot(a: Tensor, b: Tensor) -> Tensor:
    return (a * b).sum((1, 2))
