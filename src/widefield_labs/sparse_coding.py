"""Masked views turn dense noise into singleton features; plain pairs do not.

Wen & Li, "Toward understanding the feature learning process of self-supervised contrastive
learning" (2021). Data x = M z + xi in R^{d1}: M has d orthonormal columns (the atoms), z in
{-1, 0, 1}^d is sparse, xi ~ N(0, sigma^2 I) is dense and of the larger norm (Definition 2.1):

    Pr(z_j != 0) = c log log d / d,   sigma^2 = s sqrt(log d) / d

RandomMask (Definition 2.3): x+ = D x / q and x++ = (I - D) x / (1 - q), D diagonal Bernoulli(q),
q = 1/2 in the paper; without it x+ = x++ = x. Theorem 3.4 takes the weight decay lam from
[d^-1.499, d^-1.001]. Bias (section 2.2): zero in stage I; from then on b_i = factor
sqrt(2 log d / d) |w_i|, growing with |w_i| up to log d / sqrt(d).

In stage I the net is linear and all p are equal, so that with a small step w follows
E[x+ x++^T] - 2 lam. RandomMask takes the diagonal out of E[x x^T] = E z_j^2 M M^T + sigma^2 I, and
with it all of the noise: the sparse and the dense part grow at the rates

    with RandomMask    E z_j^2 (1 - d/d1) - 2 lam   and   -E z_j^2 d/d1 - 2 lam
    without            E z_j^2 + sigma^2 - 2 lam    and   sigma^2 - 2 lam

Shapes: A arms (even with, odd without RandomMask), d atoms, d1 ambient dimensions, m neurons.
"""

import math
from typing import Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Gt, Interval
from torch import Generator, Tensor

from widefield.core.validation import require
from widefield_labs.lab import (
    Arrays,
    Check,
    Figure,
    Scale,
    at_least,
    at_most,
    at_scale,
    between,
    close,
)
from widefield_labs.sparse_downstream import SINGLETON, downstream, losses, weights
from widefield_labs.sparse_learner import Arms, SparseCoding, Training, train

Sweep = Literal["tau", "lam", "mask_rate", "noise", "size"]
TIME = 11.0  # length of the training in units of d/step_size, the time scale of all rates
INSIDE_RANGE = 1.49  # lam = d^-1.49, near the lower end of the theorem's range
MEASURES = ("best", "covered", "cos_noise", "cos_signal", "r2", "sign")
SWEEPS: dict[str, tuple[float, ...]] = {
    "tau": (0.3, 3.0),
    "lam": (1.4, 1.3, 1.2, 1.1),  # minus the exponent of d: through the theorem's range
    "mask_rate": (0.3, 0.7),
    "noise": (0.75, 1.25, 2.25),
}
AXES = {
    "tau": "temperature tau",
    "lam": "weight decay lam",
    "mask_rate": "share of coordinates shown, q",
    "noise": "noise constant s",
    "size": "atoms d (d1 in proportion)",
}


def sweep_rows(
    base: dict[str, float], sweep: Sweep | None, d: int
) -> tuple[list[dict[str, float]], list[float]]:
    """Return the values of each pair of arms, the base first, and those of the swept parameter."""
    if sweep is None or sweep == "size":
        return [base], []
    values = [d**-v if sweep == "lam" else v for v in SWEEPS[sweep]]
    return [base, *({**base, sweep: value} for value in values)], [base[sweep], *values]


def stage_one_rates(data: SparseCoding, lam: Tensor) -> Tensor:
    """Return the rates at which the sparse and the dense part grow in stage I, [2, A]."""
    d1, d = data.atoms.shape
    masked = torch.arange(len(lam)) % 2 == 0
    dense = torch.where(masked, -data.active * d / d1, data.variance) - 2 * lam
    return torch.stack([dense + data.active, dense])


def run_size(
    rows: list[dict[str, float]],
    how: Training,
    shape: tuple[int, int, float, int],
    generator: Generator,
) -> Arrays:
    """Train and measure one size; `shape` is d, d1, the constant c and the examples to test on."""
    d, d1, sparsity, count = shape
    arms = Arms.paired(rows)
    data = SparseCoding.random(d, d1, sparsity, arms.noise, generator)
    w, b, curves = train(data, arms, how, generator)
    return {
        **curves,
        **weights(w, data),
        **downstream(w, b, data, count, generator),
        **losses(w, b, data, arms, 512, generator),
        "stage_one_rates": stage_one_rates(data, arms.lam).numpy(),
    }


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test Theorems 3.2 and 3.4, their corollaries and the stages, at the base values."""
    return (
        *check_weights(arrays),
        *check_features(arrays),
        *check_losses(arrays),
        *check_stages(arrays),
        *(check_size(arrays) if str(arrays.get("sweep")) == "size" else ()),
    )


def check_weights(arrays: Arrays) -> tuple[Check, ...]:
    """Test what Theorem 3.4 says of the weights, and that plain pairs do not get there."""
    covered, best, dense = (arrays[name] for name in ("covered", "best", "dense"))
    even_share = arrays["best_of"].shape[1] / arrays["per_atom"].shape[1]
    per_atom = arrays["per_atom"] / even_share
    return (
        at_least(
            "Theorem 3.4, with RandomMask: share of atoms that some neuron singles out",
            covered[0],
            0.75,
        ),
        at_most(
            "Theorem 3.2, without: share of atoms that some neuron singles out", covered[1], 0.3
        ),
        between(
            "Theorem 3.4, with: neurons that single out an atom, mean over atoms, over m/d",
            per_atom[0].mean(),
            0.5,
            1.0,
        ),
        at_most(
            "Theorem 3.4, with: neurons that single out the same atom, most, over m/d",
            per_atom[0].max(),
            4.0,
        ),
        at_least("Theorem 3.4, with: largest |<w, M_j>|/|w| (mean over neurons)", best[0], 0.7),
        at_most("Theorem 3.2, without: largest |<w, M_j>|/|w| (mean)", best[1], 0.6),
        at_most(
            "Theorem 3.4, with: dense part over the largest |<w, M_j>| (mean over neurons)",
            dense[0],
            0.3,
        ),
    )


def check_features(arrays: Arrays) -> tuple[Check, ...]:
    """Test what f(x) is close to and what it is worth downstream."""
    closer_to_signal = arrays["cos_signal"] - arrays["cos_noise"]
    beyond_linear = {name: arrays[name] - arrays[f"linear_{name}"] for name in ("r2", "sign")}
    return (
        at_least(
            "Theorem 3.4, with: f(x) is closer to f(Mz) than to f(xi) (difference of cosines)",
            closer_to_signal[0],
            0.1,
        ),
        at_most(
            "Theorem 3.2, without: it is closer to f(xi) (difference of cosines)",
            closer_to_signal[1],
            -0.05,
        ),
        at_least(
            "Corollary 3.5, with: R^2 of <w*, z> on f(x) minus the best that is linear in x",
            beyond_linear["r2"][0],
            0.1,
        ),
        at_most(
            "Corollary 3.3, without: R^2 on f(x) minus the best that is linear in x",
            beyond_linear["r2"][1],
            0.02,
        ),
        at_least(
            "Corollary 3.5, with: accuracy of sign<w*, z> minus the best that is linear in x",
            beyond_linear["sign"][0],
            0.03,
        ),
        at_most(
            "Corollary 3.3, without: accuracy minus the best that is linear in x",
            beyond_linear["sign"][1],
            0.01,
        ),
    )


def check_losses(arrays: Arrays) -> tuple[Check, ...]:
    """Test how far the loss falls, and what the optimal learner of Definition E.10 reaches."""
    reached, optimal = arrays["loss_share"], arrays["optimal_share"]
    return (
        at_least("Theorem 3.4, with: fall of the loss, over what z tells", reached[0], 0.15),
        at_least("Theorem 3.2, without: fall of the loss, over what z tells", reached[1], 0.75),
        at_least(
            "Lemma E.11, with: fall of the optimal learner's loss, over what z tells",
            optimal[0],
            0.05,
        ),
        at_least(
            "Theorem E.1 (d), with: the trained net's fall minus the optimal learner's",
            reached[0] - optimal[0],
            0.0,
            tolerance=0.05,
        ),
    )


def check_stages(arrays: Arrays) -> tuple[Check, ...]:
    """Test the three stages of the training, and how trained biases move."""
    sparse, dense = np.log(arrays["stage_one_growth"])
    ratio = dense / np.where(sparse == 0, np.nan, sparse)  # an arm that never left stage I has none
    sparse_rate, dense_rate = arrays["stage_one_rates"][:, 1]
    best = arrays["best_curve"][:, 0]
    turn = int(np.searchsorted(arrays["step"], arrays["stage_two"][0]))
    trained = arrays["trained_bias"]
    half = len(trained) // 2
    return (
        at_most(
            "stage I, with: log growth of the dense part over that of the sparse part",
            ratio[0],
            0.4,
        ),
        close(
            "stage I, without: log growth of the dense part over that of the sparse part",
            ratio[1],
            dense_rate / sparse_rate,
            tolerance=0.08,
        ),
        at_most(
            "stage I, with: mean largest |<w, M_j>|/|w| at its end (no singletons yet)",
            best[turn],
            0.5,
        ),
        at_least("stage II, with: it then rises by", best[-1] - best[turn], 0.3),
        at_most(
            "stage III, with: it has converged, change over the last tenth of the steps",
            abs(best[-1] - best[-1 - len(best) // 10]),
            0.05,
        ),
        at_least(
            "footnote 4, with: rise of the mean trained bias from its lowest",
            trained[-1, 0] - trained[:, 0].min(),
            0.01,
        ),
        at_most(
            "footnote 4, without: change of the mean trained bias over the second half",
            trained[-1, 1] - trained[half, 1],
            -0.01,
        ),
    )


def check_size(arrays: Arrays) -> tuple[Check, ...]:
    """Test, where the size is swept, the trend that the theorems' limits ask for."""
    order = np.argsort(arrays["swept"])
    closer = arrays["sweep_cos_noise"][order, 1] - arrays["sweep_cos_noise"][order, 0]
    return (
        at_least(
            "trend: cos(f(x), f(xi)) without minus with, largest d minus smallest",
            closer[-1] - closer[0],
            0.0,
        ),
    )


def notes(arrays: Arrays) -> tuple[str, ...]:
    """Say what finite size changes."""
    neurons, d = arrays["best_of"].shape[1], arrays["per_atom"].shape[1]
    single = (arrays["best_of"][:2] >= SINGLETON).sum(1)
    low, high = d**-1.499, d**-1.001
    lam = float(arrays["lam"])
    trained = arrays["trained_bias"]
    lines = [
        f"The theorem's weight decay lies in [{low:.5f}, {high:.5f}] at {d} atoms; this run's is "
        f"{lam:.5f}, {'inside' if low <= lam <= high else 'outside'}.",
        f"Singletons among {neurons} neurons: {single[0]} with RandomMask, {single[1]} without.",
        "The limits are far: cos(f(x), f(xi)) without RandomMask tends to 1 and is "
        f"{arrays['cos_noise'][1]:.2f} here ({arrays['cos_noise'][0]:.2f} with), where x has a "
        f"signal. Without it R^2 does not fall to 0 but to {arrays['r2'][1]:.2f}, and the best "
        f"that is linear in x is {arrays['linear_r2'][1]:.2f}.",
        f"The dense part of stage I grows {arrays['stage_one_growth'][1, 0]:.1f} times with "
        "RandomMask, all by the noise of the gradient: without that noise it would shrink.",
        f"Trained biases end at {trained[-1, 0]:.3f} with RandomMask, {trained[-1, 1]:.3f} without "
        "(means). With it they first fall as |w| grows. Below zero they make no singletons: it is "
        "the schedule that does.",
        "The schedule's floor, a growth of at least eta/d a step, is left out: over this training "
        f"it alone would multiply the biases by e^{TIME:g}.",
    ]
    if "swept" in arrays:
        gain = arrays["sweep_r2"][:, 0] - arrays["sweep_r2"][:, 1]
        pairs = sorted(zip(arrays["swept"].tolist(), gain.tolist(), strict=True))
        listed = ", ".join(f"{value:.3g}: {change:+.2f}" for value, change in pairs)
        lines.append(f"R^2 with RandomMask minus without, over the swept values: {listed}.")
    return tuple(lines)


def measure(
    *,
    scale: Scale,
    generator: Generator,
    sweep: Sweep | None = None,
    tau: Annotated[float, Gt(0)] = 1.0,
    lam: Annotated[float | None, Ge(0)] = None,
    mask_rate: Annotated[float, Interval(gt=0, lt=1)] = 0.5,
    noise: Annotated[float, Gt(0)] = 1.75,
    sparsity: Annotated[float, Gt(0)] = 2.0,
    bias_factor: Annotated[float, Ge(0)] = 0.6,
    initial_norm: Annotated[float, Gt(0)] = 0.03,
    step_size: Annotated[float, Interval(gt=0, le=2)] = 0.3,
    atoms: Annotated[int | None, Ge(4)] = None,
    ambient: Annotated[int | None, Ge(4)] = None,
) -> Arrays:
    """Learn sparse-coding data with and without RandomMask, and use the features downstream.

    `noise` and `sparsity` are the constants s and c of sigma^2 and Pr(z_j != 0). `tau`, `lam` and
    `mask_rate` are the temperature, the weight decay (by default d^-1.49, inside the theorem's
    range) and q. `bias_factor`, `initial_norm` and `step_size` are those of the training. `atoms`
    (d) is 64 by default, or 36 at scale tiny, and `ambient` (d1, at least d) 4 d; there are 2 d
    neurons.

    `sweep` names tau, lam, mask_rate or noise and adds arms that vary it around the base values,
    or size, which adds runs at d/2 and 3d/4 with d1 in proportion. A sweep takes up to five times
    as long.
    """
    d = at_scale(scale, tiny=36, default=64) if atoms is None else atoms
    d1 = 4 * d if ambient is None else ambient
    require(d1 >= d, "ambient", d1, f"at least atoms={d}")
    densest = d / math.log(math.log(d))  # at which every z_j is non-zero
    require(sparsity <= densest, "sparsity", sparsity, f"at most {densest:g} for atoms={d}")
    start = generator.clone_state()

    def one_size(d: int, d1: int, trained: float = 0.0) -> tuple[Arrays, list[float]]:
        base = {"tau": tau, "mask_rate": mask_rate, "noise": noise, "trained": trained}
        base["lam"] = d**-INSIDE_RANGE if lam is None else lam
        rows, values = sweep_rows(base, None if trained else sweep, d)
        how = Training(
            neurons=2 * d,
            batch=at_scale(scale, tiny=160, default=384),
            steps=round(TIME * d / step_size),
            step_size=step_size,
            initial_norm=initial_norm,
            bias_factor=bias_factor,
        )
        shape = (d, d1, sparsity, at_scale(scale, tiny=3000, default=6000))
        return run_size(rows, how, shape, start.clone_state()) | {
            "lam": np.array(base["lam"])
        }, values

    arrays, values = one_size(d, d1)
    trained, _ = one_size(2 * d // 3, 2 * d1 // 3, trained=1.0)
    arrays |= {"trained_bias": trained["bias_curve"], "trained_step": trained["step"]}
    if sweep is None:
        return arrays
    smaller = [d // 2, 3 * d // 4] if sweep == "size" else []
    by_size = [arrays, *(one_size(size, d1 * size // d)[0] for size in smaller)]
    joined = {
        f"sweep_{name}": np.concatenate([run[name] for run in by_size]).reshape(-1, 2)
        for name in MEASURES
    }
    swept = np.asarray([d, *smaller] if sweep == "size" else values)
    return arrays | joined | {"swept": swept, "sweep": np.array(sweep)}


def draw(arrays: Arrays, figure: Figure) -> None:
    """Draw stages and outcomes of the base arms, or outcomes over the swept parameter."""
    from widefield_labs.sparse_figure import draw_base, draw_sweep

    if "swept" in arrays:
        draw_sweep(arrays, figure, AXES[str(arrays["sweep"])])
    else:
        draw_base(arrays, figure)
