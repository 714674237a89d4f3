"""Monomial rows h(t) = t^k, which Assumption 1 of Tian (2022) covers, at a feature u_m.

A(w) = Var[x (w.x)^(k-1)]. In the latent summation model, with the moments mu_j = E y^j of its
standardized Bernoulli variables,

    A(u_m) = (mu_2k - mu_k^2) u_m u_m^T + mu_(2k-2) (I - u_m u_m^T)

so that u_m is an LME iff lambda_gap = mu_2k - mu_k^2 - mu_(2k-2) > 0. A is smooth: for
v = u_m + eps u_l, to first order,

    (A(v) - A(u_m)) u_m = eps rho u_l,   rho = (k - 1) (2 mu_(2k-2) - mu_(k-2) mu_k)

and a nudge grows at the rate rho - lambda_gap. Theorem 1's condition lambda_gap > rho is thus
necessary too, and an LME below it is no optimum. For k = 2 the gap is mu_4 - 2 and rho is 1, where
mu_4 = 1/(q (1-q)) - 3: an LME iff q (1-q) < 1/5, stable iff q (1-q) < 1/6.

The closed forms are ours.

Shapes: M features, G rates.
"""

import math
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from widefield_labs.lab import Arrays, Check, at_least, at_most, close
from widefield_labs.one_layer import ascend, gated_covariance, summation

POWERS = (2, 3)
LME_RATE = (1 - math.sqrt(1 / 5)) / 2
STABLE_RATE = (1 - math.sqrt(1 / 3)) / 2
"""The rates at which, for k = 2, u_m ceases to be an LME and to be stable: .276 and .211."""
RATES = torch.linspace(0.05, 0.35, 31, dtype=torch.float64)  # at 1/2 y^2 is constant
# Far inside the ball around u_m in which no atom of a ReLU row changes sides.
NUDGE, STEPS, STEP_SIZE = 1e-6, 10, 0.1


def moment(rate: Tensor, order: int) -> Tensor:
    """Return E y^order of a standardized Bernoulli variable."""
    on = ((1 - rate) / rate).sqrt()
    return rate * on**order + (1 - rate) * (-1 / on) ** order


def closed_forms(rate: Tensor, power: int) -> dict[str, Tensor]:
    """Return A's eigenvalue along u_m and across it, and rho, [G]."""
    across = moment(rate, 2 * power - 2)
    change = 2 * across - moment(rate, power - 2) * moment(rate, power)
    return {
        "along": moment(rate, 2 * power) - moment(rate, power) ** 2,
        "across": across,
        "rho": (power - 1) * change,
    }


def growth(w: Tensor, x: Tensor, p: Tensor, *, slope: float = 0.0, power: int = 1) -> Tensor:
    """Return the log growth per unit time of the nudges of rows `w` [..., R, M] off u_1, [..., R].

    Rows return to u_1 where it is negative.
    """
    end = ascend(w, x, p, steps=STEPS, step_size=STEP_SIZE, slope=slope, power=power)
    before, after = (torch.linalg.vector_norm(rows[..., 1:], dim=-1) for rows in (w, end))
    return torch.log(after / before) / (STEPS * STEP_SIZE)


def measure_power(rates: Tensor, features: int, power: int, generator: Generator) -> Arrays:
    """Measure at u_1, over all atoms: eigengap, rho by its definition, growth of a nudge, [G]."""
    x, p = summation(rates.unsqueeze(-1).expand(-1, features))
    first = torch.eye(features, dtype=x.dtype)[0].expand(len(rates), -1)
    aside = torch.randn(len(rates), features, generator=generator, dtype=x.dtype)
    aside[:, 0] = 0
    aside = torch.nn.functional.normalize(aside, dim=-1)
    v, opposite = (
        torch.nn.functional.normalize(first + sign * NUDGE * aside, dim=-1) for sign in (1, -1)
    )
    a, near, far = (gated_covariance(w, x, p, slope=1.0, power=power) for w in (first, v, opposite))
    change = ((near - far) @ first.unsqueeze(-1)).squeeze(-1)
    along = a[:, 0, 0]
    others = torch.linalg.eigvalsh(a[:, 1:, 1:])
    return {
        "along": along.numpy(),
        "gap": (along - others[:, -1]).numpy(),
        "rho": (torch.linalg.vector_norm(change, dim=-1) / (2 * NUDGE)).numpy(),
        "growth": growth(v.unsqueeze(1), x, p, slope=1.0, power=power).squeeze(1).numpy(),
    }


def measure(features: int, generator: Generator) -> Arrays:
    """Measure all powers, [P, G] each, beside their closed forms."""
    runs = [measure_power(RATES, features, power, generator) for power in POWERS]
    closed = [closed_forms(RATES, power) for power in POWERS]
    return {f"monomial_{name}": np.stack([run[name] for run in runs]) for name in runs[0]} | {
        f"monomial_closed_{name}": torch.stack([form[name] for form in closed]).numpy()
        for name in closed[0]
    }


def crossing(x: NDArray[Any], y: NDArray[Any]) -> float:
    """Return where y(x) first crosses zero, between grid points; infinite if nowhere."""
    turned = np.nonzero(np.sign(y[:-1]) != np.sign(y[1:]))[0]
    if not len(turned):
        return math.inf
    i = turned[0]
    return float(x[i] - y[i] * (x[i + 1] - x[i]) / (y[i + 1] - y[i]))


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test the closed forms, both critical rates of t^2, and Theorem 1, which is sharp here."""
    names = ("along", "gap", "rho", "growth")
    along, gap, rho, growth = (arrays[f"monomial_{name}"] for name in names)
    rates, spacing = RATES.numpy(), float(RATES[1] - RATES[0])
    closed = {name: arrays[f"monomial_closed_{name}"] for name in ("along", "across", "rho")}
    closed_gap = closed["along"] - closed["across"]
    # A step multiplies a nudge by (1 + eta (across + rho)/along)/(1 + eta).
    toward = (closed["across"] + closed["rho"]) / closed["along"]
    closed_growth = np.log((1 + STEP_SIZE * toward) / (1 + STEP_SIZE)) / STEP_SIZE
    clear = abs(growth) > 1e-3
    return (
        at_most(
            "t^2, t^3: eigengap of A(u_m) and rho minus their closed forms, over lambda_1 (worst)",
            max((abs(gap - closed_gap) / along).max(), (abs(rho - closed["rho"]) / along).max()),
            1e-4,
        ),
        at_most(
            "t^2, t^3: growth of a nudge minus its closed form (largest difference)",
            abs(growth - closed_growth).max(),
            1e-4,
        ),
        close(
            "t^2: rate at which u_m ceases to be a locally maximal eigenvector",
            crossing(rates, gap[0]),
            LME_RATE,
            tolerance=spacing**2 * 5,
        ),
        close(
            "t^2: rate at which rows nudged off u_m stop returning",
            crossing(rates, growth[0]),
            STABLE_RATE,
            tolerance=spacing**2 * 5,
        ),
        close(
            "Theorem 1, t^2 and t^3: rates at which lambda_gap > rho and a nudge grows, or neither",
            (clear & ((gap > rho) == (growth > 0))).sum(),
            0,
        ),
        at_least(
            "boundary: rates at which u_m is an LME of t^2 and a nudge off it grows",
            ((gap[0] > 0) & (growth[0] > 0)).sum(),
            1,
        ),
    )
