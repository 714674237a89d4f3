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

from collections import deque
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
    excluded: Tensor
    """float32 [P, K], added to the logits: -inf for classes a problem lacks, else 0."""

    def __getitem__(self, index: Tensor) -> "Problems":
        """Return the problems that `index`, int64 [P'] or bool [P], selects."""
        return Problems(self.target[index], self.share[index], self.l2[index], self.excluded[index])

    def logits(self, x: DesignMatrix, weight: Tensor) -> Tensor:
        """Return the logits [P, K, n] of `weight` [P, K, d]."""
        return x.times(weight) + self.excluded[:, :, None]

    def loss(self, logits: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return f [P] in float64 and the probabilities [P, K, n]."""
        top = logits.amax(1, keepdim=True)
        probability = (logits - top).exp_()
        total = probability.sum(1, keepdim=True)
        nll = total.log() + top - logits.gather(1, self.target[:, None])
        penalty = self.l2 * weight.square().sum(1)
        loss = (self.share * nll[:, 0]).double().sum(1) + penalty.double().sum(1) / 2
        return loss, probability.div_(total)

    def gradient(self, x: DesignMatrix, weight: Tensor, probability: Tensor) -> Tensor:
        """Return df/dW, [P, K, d]."""
        share = self.share[:, None]
        residual = (probability * share).scatter_add_(1, self.target[:, None], -share)
        return x.sums(residual) + self.l2[:, None] * weight

    def diagonal(self, variance: Tensor, probability: Tensor) -> Tensor:
        """Return the approximate diagonal of the Hessian, [P, 1, d]: c v_d + l_d."""
        others = (self.excluded == 0).sum(1) - 1
        mean = (self.share * (1 - probability.square().sum(1))).sum(1) / others
        # The bias has no penalty: where probabilities round to one, this avoids 1 / 0.
        return (mean.clamp(min=1e-7)[:, None] * variance + self.l2)[:, None]


def minimize(x: DesignMatrix, problems: Problems, start: Tensor, *, tolerance: float) -> Tensor:
    """Return the minimizers [P, K, d] over the design matrix `x`, starting at `start` [P, K, d].

    A problem has converged when the norm of its gradient is below `tolerance`, or when no step
    decreases it because of rounding.
    """
    variance = x.mean_squares()
    solution, running = start.clone(), torch.arange(len(start), device=start.device)
    weight, logits, curvature = start, problems.logits(x, start), _Curvature()
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
        inverse = 1 / problems.diagonal(variance, probability)
        direction = -curvature.inverse_hessian_times(gradient, inverse)
        descent, logit_direction = _dot(gradient, direction), x.times(direction)
        length = torch.ones_like(descent)
        for _ in range(_TRIALS):  # until every problem satisfies the Armijo condition
            step = _scale(length, direction)
            new_logits = torch.addcmul(logits, length[:, None, None], logit_direction)
            new_loss, probability = problems.loss(new_logits, weight + step)
            # The constant of the Armijo condition is Nocedal and Wright's (section 3.1).
            decreased = new_loss <= loss + 1e-4 * length * descent
            if decreased.all():
                break
            length = torch.where(decreased, length, length / 2)
        step = _scale(decreased, step)
        weight, logits, loss = weight + step, new_logits, new_loss
        old, gradient = gradient, problems.gradient(x, weight, probability)
        curvature.add(step, gradient - old)
    solution[running] = weight
    return solution


class _Curvature:
    """The last steps s and gradient changes y of every problem, [P, K, d] each."""

    def __init__(self) -> None:
        self._pairs: deque[tuple[Tensor, Tensor, Tensor]] = deque(maxlen=_PAIRS)

    def add(self, step: Tensor, change: Tensor) -> None:
        along = _dot(step, change)
        # f is convex, so s.y > 0 except for rounding; other pairs get weight 0.
        self._pairs.append((step, change, torch.where(along > 0, 1 / along, 0)))

    def keep(self, problems: Tensor) -> None:
        for _ in range(len(self._pairs)):
            step, change, inverse = self._pairs.popleft()
            self._pairs.append((step[problems], change[problems], inverse[problems]))

    def inverse_hessian_times(self, gradient: Tensor, start: Tensor) -> Tensor:
        """Run the two-loop recursion (algorithm 7.4); H_0 is the diagonal `start`, rescaled."""
        q, alphas = gradient, []
        for step, change, inverse in reversed(self._pairs):
            alphas.append(inverse * _dot(step, q))
            q = q - _scale(alphas[-1], change)
        r = self._fit_to_last_pair(start) * q
        for (step, change, inverse), alpha in zip(self._pairs, reversed(alphas), strict=True):
            r = r + _scale(alpha - inverse * _dot(change, r), step)
        return r

    def _fit_to_last_pair(self, start: Tensor) -> Tensor:
        """Scale `start` so that H_0 y has the length of s, seen along y (equation 7.20)."""
        if not self._pairs:
            return start
        _, change, inverse = self._pairs[-1]
        ratio = 1 / (inverse * _dot(change, start * change))
        return _scale(torch.where(inverse > 0, ratio, 1), start)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return the inner products [P] of [P, K, d] with [P, K, d]."""
    return (a * b).sum((1, 2))


def _scale(factor: Tensor, stack: Tensor) -> Tensor:
    """Multiply each [K, d] of a stack [P, K, d] by its own factor [P]."""
    return factor[:, None, None] * stack
