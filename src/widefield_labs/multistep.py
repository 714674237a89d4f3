"""One closed form replaces every optimizer step that a row of the head missed.

"Memory-efficient self-supervised contrastive learning with a supervised loss" (S-DIET, 2025),
section 5.2.2. A row of the head gets a gradient once per visit and zero in between, yet its
optimizer moves it at every step. After k steps without gradient, with a = 1 - lr * decay,

    SGD:    m_k = mu^k m_0,                    theta_k = a^k theta_0 - lr mu F m_0
    AdamW:  m_k = b1^k m_0,  v_k = b2^k v_0,   theta_k = a^k theta_0 - lr mu F m_0/(sqrt(v_0) + eps)
    with F = (a^k - mu^k)/(a - mu), and mu = b1/sqrt(b2) for AdamW                          (7, 8)

without bias correction, exact for AdamW if eps = 0. Equations 7 and 8 print a plus before the
second term; the paper's listing (Appendix E) has the minus. The paper does not know when a row is
next visited and estimates t = n/b, the number T of steps of an epoch.

A setting is a column of `Settings`; G settings, or R rows of a head, are worked on at once.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from annotated_types import Ge, Gt, Interval
from torch import Generator, Tensor

from widefield.core import rng
from widefield.core.validation import require
from widefield_labs.lab import Arrays, Check, Figure, Scale, at_least, at_most, at_scale, close
from widefield_labs.row_replay import compare_head

ROUNDING = 1e-10  # float64 over a few hundred steps
GAP_LAWS = ("constant", "shuffled", "with replacement")


@dataclass(frozen=True)
class Settings:
    """Optimizer constants: learning rate, decoupled decay, and the two decay rates of moments."""

    lr: Tensor
    decay: Tensor
    b1: Tensor
    b2: Tensor

    @property
    def a(self) -> Tensor:
        """The factor by which one step of decay shrinks a row."""
        return 1 - self.lr * self.decay

    @property
    def mu(self) -> Tensor:
        """The factor by which one step shrinks m/sqrt(v); SGD's momentum where b2 = 1."""
        return self.b1 / self.b2.sqrt()


@dataclass(frozen=True)
class Row:
    """Weights and moments of rows."""

    theta: Tensor
    m: Tensor
    v: Tensor


def decayed_sum(a: Tensor, mu: Tensor, k: Tensor) -> Tensor:
    """Return F = (a^k - mu^k)/(a - mu) = sum_{j<k} a^{k-1-j} mu^j, and k a^{k-1} where a = mu.

    With q = mu/a it is a^{k-1} (q^k - 1)/(q - 1), which expm1 keeps exact near q = 1.
    """
    log_q = (mu / a).log()
    apart = log_q != 0
    safe = torch.where(apart, log_q, 1.0)
    return a ** (k - 1) * torch.where(apart, torch.expm1(k * safe) / torch.expm1(safe), k)


def skip(row: Row, k: Tensor, s: Settings, *, sgd: bool = False, sign: float = -1.0) -> Row:
    """Take `k` steps without gradient by (7) or (8); `sign` = +1 takes them as printed."""
    moved = s.lr * s.mu * decayed_sum(s.a, s.mu, k) * (row.m if sgd else row.m / row.v.sqrt())
    return Row(s.a**k * row.theta + sign * moved, s.b1**k * row.m, s.b2**k * row.v)


def step(row: Row, grad: Tensor, s: Settings, *, eps: float = 0.0) -> Row:
    """Take one AdamW step without bias correction."""
    m = s.b1 * row.m + (1 - s.b1) * grad
    v = s.b2 * row.v + (1 - s.b2) * grad**2
    return Row(s.a * row.theta - s.lr * m / (v.sqrt() + eps), m, v)


def by_adamw(row: Row, k: int, s: Settings) -> Tensor:
    """Return the weights [G] after k steps of `torch.optim.AdamW` without gradient, eps = 0.

    One parameter group for each setting. Its bias correction is worn out by starting at step 1e7.
    """
    weights = [torch.nn.Parameter(theta.clone()) for theta in row.theta]
    groups = [
        {
            "params": [w],
            "lr": float(s.lr[i]),
            "weight_decay": float(s.decay[i]),
            "betas": (float(s.b1[i]), float(s.b2[i])),
        }
        for i, w in enumerate(weights)
    ]
    optimizer = torch.optim.AdamW(groups, eps=0.0)
    for i, w in enumerate(weights):
        moments = {"exp_avg": row.m[i].clone(), "exp_avg_sq": row.v[i].clone()}
        optimizer.state[w] = {"step": torch.tensor(1e7, dtype=torch.float64), **moments}
        w.grad = torch.zeros_like(w)
    for _ in range(k):
        optimizer.step()
    return torch.stack([w.detach() for w in weights])


def settings_grid(generator: Generator, count: int) -> tuple[Settings, Row]:
    """Draw settings, the library's default and one with a = mu among them, and rows."""

    def uniform(low: float, high: float) -> Tensor:
        return low + (high - low) * torch.rand(count, generator=generator, dtype=torch.float64)

    lr, decay, b1, b2 = 10 ** uniform(-4, -1), uniform(0, 0.5), uniform(0.5, 0.95), uniform(0.95, 1)
    lr[0], decay[0], b1[0], b2[0] = 1e-3, 0.05, 0.9, 0.999
    b1[1] = (1 - lr[1] * decay[1]) * b2[1].sqrt()
    theta, m, v = torch.randn(3, count, generator=generator, dtype=torch.float64)
    return Settings(lr, decay, b1, b2), Row(theta, m, v**2 + 0.01)


def compare_forms(generator: Generator, count: int, steps: int) -> Arrays:
    """Compute rows by closed form, by k single steps and by torch, for k = 0..steps."""
    s, start = settings_grid(generator, count)
    of_sgd = Settings(s.lr, s.decay, s.b1, torch.ones_like(s.b2))  # whose mu is b1
    zero = torch.zeros_like(start.theta)
    adam, with_eps, sgd, eps = start, start, start, 1e-3
    forms: dict[str, list[Tensor]] = {
        name: [] for name in ("steps", "closed", "printed", "sgd", "sgd_closed", "eps_gap")
    }
    for taken in range(steps + 1):
        k = torch.tensor(float(taken), dtype=torch.float64)
        drift = s.a**k * start.theta
        closed_drift = (skip(start, k, s).theta - drift) * start.v.sqrt() / (start.v.sqrt() + eps)
        forms["steps"].append(adam.theta)
        forms["closed"].append(skip(start, k, s).theta)
        forms["printed"].append(skip(start, k, s, sign=1.0).theta)
        forms["sgd"].append(sgd.theta)
        forms["sgd_closed"].append(skip(start, k, of_sgd, sgd=True).theta)
        # eps added to sqrt(v_j) instead of sqrt(v_0): relative to the bound eps / sqrt(v_k).
        gap = (with_eps.theta - drift - closed_drift) / closed_drift
        forms["eps_gap"].append((gap * with_eps.v.sqrt() / eps).abs().nan_to_num(0.0))
        adam, with_eps = step(adam, zero, s), step(with_eps, zero, s, eps=eps)
        momentum = s.b1 * sgd.m  # a step of SGD without gradient, decoupled decay (eq. 6)
        sgd = Row(s.a * sgd.theta - s.lr * momentum, momentum, sgd.v)
    arrays = {name: torch.stack(values).numpy() for name, values in forms.items()}
    arrays["torch"] = by_adamw(start, steps, s).numpy()
    arrays["without_moment"] = (
        s.a ** torch.arange(steps + 1, dtype=torch.float64).unsqueeze(1) * start.theta
    ).numpy()
    return arrays


def gaps(law: str, epoch: int, visits: int, rows: int, generator: Generator) -> Tensor:
    """Draw the steps between visits of a row, int64 [visits, R], for T = `epoch` steps an epoch.

    Shuffled: a row's place in each epoch is the library's; if uniform, gaps are triangular.
    With replacement: a row is drawn at each step with probability 1/T.
    """
    if law == "constant":
        return torch.full((visits, rows), epoch)
    if law == "shuffled":
        seed, examples = int(torch.randint(2**31, (), generator=generator)), np.arange(rows)
        orders = [rng.shuffled(seed, f"epoch {i}", examples) for i in range(visits + 1)]
        place = torch.from_numpy(np.argsort(orders, axis=1) * epoch // rows)
        return epoch - place[:-1] + place[1:]
    missed = torch.rand(visits, rows, generator=generator, dtype=torch.float64).log()
    return 1 + (missed / math.log1p(-1 / epoch)).floor().long() if epoch > 1 else missed.long() + 1


def visit_error(law: str, epoch: int, s: Settings, rows: int, generator: Generator) -> Arrays:
    """Compare rows after 20 visits, t = T estimated or true gaps replayed, with every step taken.

    Every visit brings a fresh N(0, 1) gradient. Errors are root mean squares over rows, relative to
    how far rows moved; `sqrt_v` is the relative error of sqrt(v) after one gap.
    """
    visits = 20
    gap = gaps(law, epoch, visits, rows, generator)
    grads = torch.randn(visits, rows, generator=generator, dtype=torch.float64)
    theta = torch.randn(rows, generator=generator, dtype=torch.float64) / 16
    start = Row(theta, torch.zeros_like(theta), torch.ones_like(theta))
    true = replayed = estimated = start
    missed = torch.tensor(float(epoch - 1), dtype=torch.float64)
    for grad, steps in zip(grads, gap, strict=True):
        true, replayed, estimated = (step(row, grad, s) for row in (true, replayed, estimated))
        replayed = skip(replayed, (steps - 1).double(), s)
        estimated = skip(estimated, missed, s)
        zero = torch.zeros_like(theta)
        for taken in range(1, int(steps.max())):
            moved, active = step(true, zero, s), taken < steps
            true = Row(
                torch.where(active, moved.theta, true.theta),
                torch.where(active, moved.m, true.m),
                torch.where(active, moved.v, true.v),
            )

    def relative(row: Row) -> float:
        moved = (true.theta - start.theta).square().mean().sqrt()
        return float((row.theta - true.theta).square().mean().sqrt() / moved)

    root = s.b2 ** ((epoch - gap[0]) / 2) - 1
    return {
        "estimated": np.array(relative(estimated)),
        "replayed": np.array(relative(replayed)),
        "deviation": (gap - epoch).abs().double().mean().numpy(),
        "sqrt_v": root.square().mean().sqrt().numpy(),
    }


def predicted_deviation(epoch: int) -> float:
    """Return E|gap - T| of the shuffled law: (T^2 - 1)/(3T)."""
    return (epoch**2 - 1) / (3 * epoch)


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test the closed forms, their sign, the library's row optimizer, and what t = n/b costs."""
    return *check_forms(arrays), *check_gaps(arrays)


def check_forms(arrays: Arrays) -> tuple[Check, ...]:
    """Test the closed forms against single steps."""
    size = np.abs(arrays["steps"]).max(0)
    moment = arrays["closed"] - arrays["without_moment"]
    later = slice(1, None)  # at k = 0 there is nothing to compare
    printed = (arrays["printed"] - arrays["steps"])[later] / moment[later]
    return (
        at_most(
            "AdamW: closed form against k steps one by one (largest relative gap)",
            (np.abs(arrays["closed"] - arrays["steps"]) / size).max(),
            ROUNDING,
        ),
        at_most(
            "AdamW: closed form against torch.optim.AdamW (largest relative gap)",
            (np.abs(arrays["closed"][-1] - arrays["torch"]) / size).max(),
            ROUNDING,
        ),
        at_most(
            "SGD with momentum: closed form against k steps one by one (largest relative gap)",
            (np.abs(arrays["sgd_closed"] - arrays["sgd"]) / np.abs(arrays["sgd"]).max(0)).max(),
            ROUNDING,
        ),
        close(
            "erratum: with the printed plus the row is off by this multiple of the second term",
            printed.mean(),
            -2.0,
            tolerance=1e-6,
        ),
        at_most(
            "eps > 0: relative gap of the second term over eps / sqrt(v_k) (largest)",
            arrays["eps_gap"].max(),
            1.0,
        ),
    )


def check_gaps(arrays: Arrays) -> tuple[Check, ...]:
    """Test rows whose gaps vary: true gaps replayed, and t = n/b."""
    shuffled = GAP_LAWS.index("shuffled")
    epochs = arrays["epochs"]
    expected = np.array([predicted_deviation(int(epoch)) for epoch in epochs])
    gap = (arrays["deviation"][shuffled] - expected) / epochs
    worst = np.abs(gap).argmax()
    return (
        at_most(
            "replaying true gaps equals every step taken, under any law of gaps (largest error)",
            arrays["replayed"].max(),
            ROUNDING,
        ),
        at_most(
            "the library's row optimizer equals every step taken by AdamW (largest relative gap)",
            float(arrays["head_error"]),
            ROUNDING,
        ),
        at_most(
            "estimating t = n/b is exact if gaps are constant (largest error)",
            arrays["estimated"][GAP_LAWS.index("constant")].max(),
            ROUNDING,
        ),
        close(
            "the library's epochs: E|gap - T| / T is (T^2 - 1)/(3T^2), at the T of the largest gap",
            arrays["deviation"][shuffled][worst] / epochs[worst],
            expected[worst] / epochs[worst],
            tolerance=float(arrays["deviation_tolerance"]),
        ),
        at_least(
            "boundary: estimating t = n/b is not exact under shuffling (smallest error)",
            arrays["estimated"][shuffled].min(),
            1e3 * ROUNDING,
        ),
    )


def notes(arrays: Arrays) -> tuple[str, ...]:
    """Say what the closed forms leave out."""
    shuffled, drawn = (arrays["estimated"][GAP_LAWS.index(law)] for law in GAP_LAWS[1:])
    first, last = int(arrays["epochs"][0]), int(arrays["epochs"][-1])
    root = arrays["sqrt_v"][GAP_LAWS.index("shuffled")][-1]
    return (
        "Erratum: equations 7 and 8 need a minus before the second term.",
        f"t = n/b costs {shuffled[0]:.1%} of a row's movement at T = {first} steps an epoch and "
        f"{shuffled[-1]:.1%} at T = {last} under shuffling, {drawn[0]:.1%} and {drawn[-1]:.1%} "
        "with replacement: at small T momentum is not spent when the row is next visited; at large "
        f"T it is, and the error of sqrt(v) grows, {root:.1%} after one gap at T = {last}.",
        "The closed forms hold for a constant learning rate and without bias correction; eps > 0 "
        "costs at most eps / sqrt(v_k) of the second term.",
    )


def draw(arrays: Arrays, figure: Figure) -> None:
    """Draw a row's path, the error of either sign, and the error of t = n/b."""
    path, error, estimate = figure.subplots(1, 3)
    k = np.arange(len(arrays["steps"]))
    path.plot(k, arrays["steps"][:, 0], "o", ls="none", ms=3, markevery=4, label="k single steps")
    path.plot(k, arrays["closed"][:, 0], label="closed form, minus")
    path.plot(k, arrays["printed"][:, 0], label="as printed, plus")
    path.set(xlabel="steps without gradient k", ylabel="weight θ_k", title="AdamW, lr 0.001")
    size = np.abs(arrays["steps"]).max(0)
    for name, label, marker in (("closed", "minus", "o"), ("printed", "plus (as printed)", "s")):
        gap = np.median(np.abs(arrays[name] - arrays["steps"]) / size, axis=1)
        error.plot(k, np.maximum(gap, 1e-18), label=label, marker=marker, ms=3, markevery=8)
    error.set(yscale="log", xlabel="steps without gradient k", title="Closed form: which sign?")
    error.set(ylabel="relative gap to single steps")
    for row, (law, marker) in enumerate(zip(GAP_LAWS, "os^", strict=True)):
        values = np.maximum(arrays["estimated"][row], 1e-18)
        estimate.plot(arrays["epochs"], values, label=f"t = T, gaps {law}", marker=marker, ms=4)
    worst = np.maximum(arrays["replayed"].max(0), 1e-18)
    estimate.plot(arrays["epochs"], worst, label="true gaps (worst law)", marker="x", ms=4)
    estimate.set(xscale="log", yscale="log", xlabel="steps of an epoch T = n/b")
    estimate.set(ylabel="error / movement after 20 visits", title="Estimating the gap")


def measure(
    *,
    scale: Scale,
    generator: Generator,
    learning_rate: Annotated[float, Gt(0)] = 1e-3,
    weight_decay: Annotated[float, Ge(0)] = 0.05,
    beta1: Annotated[float, Interval(gt=0, lt=1)] = 0.9,
    beta2: Annotated[float, Interval(gt=0, le=1)] = 0.999,
) -> Arrays:
    """Compare the closed forms with single steps, and t = n/b with the true gaps.

    The closed forms are compared at random settings. `learning_rate`, `weight_decay`, `beta1` and
    `beta2` are the settings of the rows whose gaps vary; beta1 must be below sqrt(beta2), and the
    decay below 1 / learning_rate. The library's head has betas of its own.
    """
    most = f"below 1 / learning_rate={1 / learning_rate:g}"
    require(weight_decay < 1 / learning_rate, "weight_decay", weight_decay, most)
    most = f"below sqrt(beta2)={math.sqrt(beta2):.6g}"
    require(beta1 < math.sqrt(beta2), "beta1", beta1, most)
    constants = (learning_rate, weight_decay, beta1, beta2)
    s = Settings(*(torch.tensor(value, dtype=torch.float64) for value in constants))
    arrays = compare_forms(generator, at_scale(scale, tiny=16, default=64), 100)
    epochs = at_scale(scale, tiny=[2, 8, 32], default=[2, 4, 8, 16, 32, 64, 128])
    rows = at_scale(scale, tiny=1000, default=4000)
    cells = [[visit_error(law, epoch, s, rows, generator) for epoch in epochs] for law in GAP_LAWS]
    for name in cells[0][0]:
        arrays[name] = np.array([[cell[name] for cell in line] for line in cells])
    return {
        **arrays,
        "epochs": np.array(epochs),
        # |gap - T|/T has a deviation below 0.25; neighboring gaps of a row are correlated.
        "deviation_tolerance": np.array(4 * 0.25 * math.sqrt(2 / (20 * rows))),
        **compare_head(learning_rate, weight_decay, generator),
    }
