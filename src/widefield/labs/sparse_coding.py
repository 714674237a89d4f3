"""Masked views turn dense noise into singleton features; plain pairs do not.

Wen & Li, "Toward understanding the feature learning process of self-supervised contrastive
learning" (2021). Data x = M z + xi in R^{d1}: M has d orthonormal columns (the atoms), z in
{-1, 0, 1}^d is sparse, xi ~ N(0, sigma^2 I) is dense and of much the larger norm (Definition 2.1):

    Pr(z_j != 0) = c log log d / d,   sigma^2 = s sqrt(log d) / d

Learner h_i(x) = ReLU(y_i - b_i) - ReLU(-y_i - b_i) with y_i = <w_i, x>. Loss (Definition 2.2); x-
are negatives without augmentation, and the second argument of Sim is not differentiated:

    L = -tau log( e^{Sim(x+, x++)/tau} / sum over {x++} and all x- of e^{Sim(x+, x')/tau} )
        + lam sum_i |w_i|^2,   Sim(x, x') = <f(x), f(x')>

RandomMask (Definition 2.3): x+ = D x / q and x++ = (I - D) x / (1 - q), D diagonal Bernoulli(q),
q = 1/2 in the paper; without it x+ = x++ = x. Bias (section 2.2): zero in stage I; from then on
b_i = factor sqrt(2 log d / d) |w_i|, growing with |w_i| up to 8 / sqrt(d).

Shapes: A arms (even with, odd without RandomMask), B pairs, N negatives, d atoms, d1 ambient
dimensions, m neurons.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import torch
from annotated_types import Ge, Gt, Interval
from torch import Generator, Tensor
from torch.nn import functional

from widefield.labs.lab import Lab, Scale, at_scale, first_line
from widefield.labs.parameter import require
from widefield.labs.result import Arrays, Check, at_least, at_most
from widefield.labs.sparse_data import SparseCoding, masked_pair

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SINGLETON = 0.7
"""|<w, M_j>| / |w| from which a neuron is one atom's: nearly half of its |w|^2."""
GROWN, BIAS_CAP = 12.0, 8.0
MEASURES = ("best", "covered", "cos_noise", "cos_signal", "r2", "sign")
SWEEPS: dict[str, tuple[float, ...]] = {
    "tau": (0.3, 3.0),
    "lam": (1e-4, 1e-3),
    "mask_rate": (0.3, 0.7),
    "noise": (0.5, 1.5),
}
AXES = {
    "tau": "temperature tau",
    "lam": "weight decay lam",
    "mask_rate": "share of coordinates shown, q",
    "noise": "noise constant s",
    "size": "atoms d (d1 in proportion)",
}


@dataclass(frozen=True)
class Arms:
    """What differs between arms, each [A]: every value twice, with and without RandomMask."""

    tau: Tensor
    lam: Tensor
    mask_rate: Tensor
    noise: Tensor

    @classmethod
    def around(cls, base: dict[str, float], sweep: str | None) -> "Arms":
        """Take the base values, then the base with each value of one swept parameter."""
        values: Sequence[float] = SWEEPS.get(sweep or "", ())
        rows = [base, *({**base, sweep: value} for value in values if sweep)]
        return cls(
            **{
                name: torch.tensor([row[name] for row in rows]).repeat_interleave(2)
                for name in base
            }
        )

    def column(self, name: str) -> Tensor:
        """Return one field as [A, 1, 1]."""
        values: Tensor = getattr(self, name)
        return values.view(-1, 1, 1)


def respond(y: Tensor, b: Tensor) -> Tensor:
    """Return h = ReLU(y - b) - ReLU(-y - b) for pre-activations y [.., n, m], biases b [.., m].

    Example:
        >>> respond(torch.tensor([[-3.0, 0.5, 2.0]]), torch.tensor([1.0, 1.0, 1.0]))
        tensor([[-2.,  0.,  1.]])
    """
    return functional.relu(y - b.unsqueeze(-2)) - functional.relu(-y - b.unsqueeze(-2))


def gradient(w: Tensor, b: Tensor, views: tuple[Tensor, Tensor, Tensor], tau: Tensor) -> Tensor:
    """Return the gradient [A, m, d1] of the contrastive loss, without weight decay.

    `views` = (x+, x++, x-). With p the softmax of the similarities over tau,
    dL/df(x+) = -f(x++) + p_{++} f(x++) + sum p_- f(x-), through the neurons that fire.
    """
    anchor, partner, negative = views
    y = anchor @ w.mT
    f, partner_f, negative_f = (respond(pre, b) for pre in (y, partner @ w.mT, negative @ w.mT))
    similarity = torch.cat([(f * partner_f).sum(-1, keepdim=True), f @ negative_f.mT], dim=-1)
    p = torch.softmax(similarity / tau, dim=-1)
    df = (p[..., :1] - 1) * partner_f + p[..., 1:] @ negative_f
    fires = (y.abs() > b.unsqueeze(-2)).float()
    return (df * fires).mT @ anchor / anchor.shape[-2]


def norms(w: Tensor) -> Tensor:
    """Return |w_i| [A, m]."""
    return w.square().sum(-1).sqrt()


def best_share(w: Tensor, atoms: Tensor) -> Tensor:
    """Return each neuron's largest |<w_i, M_j>| / |w_i|, [A, m]."""
    return (w @ atoms).abs().amax(-1) / norms(w)


def train(
    data: SparseCoding,
    arms: Arms,
    *,
    neurons: int,
    batch: int,
    steps: int,
    step_size: float,
    initial_norm: float,
    bias_factor: float,
    generator: Generator,
) -> tuple[Tensor, Tensor, Arrays]:
    """Descend the gradient on fresh data: w [A, m, d1], b [A, m], and curves over the steps."""
    d1, d = data.atoms.shape
    start = initial_norm / math.sqrt(d1) * torch.randn(1, neurons, d1, generator=generator)
    w = start.repeat(len(arms.tau), 1, 1)
    b = torch.zeros(w.shape[:2])
    begun_at = torch.full((len(w),), -1)  # the step at which an arm's stage II begins
    curves: list[Tensor] = []
    for step in range(steps + 1):
        if step % (steps // 50) == 0:
            inside = norms(w @ data.atoms)
            outside = (norms(w) ** 2 - inside**2).clamp_min(0).sqrt()
            best = best_share(w, data.atoms)
            curves.append(torch.stack([inside.mean(1), outside.mean(1), best.mean(1)]))
        if step == steps:
            break
        z, xi = data.sample(2 * batch, generator)
        x = z @ data.atoms.T + xi
        keep = torch.rand(batch, d1, generator=generator)
        pair = masked_pair(x[:, :batch], keep, arms.column("mask_rate"))
        grad = gradient(w, b, (*pair, x[:, batch:]), arms.column("tau"))
        before = norms(w)  # the biases of stage II grow as the norms do
        w = w - step_size * (grad + 2 * arms.column("lam") * w)
        growth = norms(w) / before
        in_stage_two = begun_at >= 0
        growing = in_stage_two.unsqueeze(1) & (b < BIAS_CAP / math.sqrt(d))
        b = torch.where(growing, b * growth.clamp_min(1.0), b)
        enters = ~in_stage_two & (norms(w).mean(1) > GROWN * initial_norm)
        begun_at = torch.where(enters, step, begun_at)
        first_bias = bias_factor * math.sqrt(2 * math.log(d) / d) * norms(w)
        b = torch.where(enters.unsqueeze(1), first_bias, b)
    inside_curve, outside_curve, best_curve = torch.stack(curves).unbind(1)
    return (
        w,
        b,
        {
            "step": np.linspace(0, steps, len(curves)),
            "inside": inside_curve.numpy(),
            "outside": outside_curve.numpy(),
            "best_curve": best_curve.numpy(),
            "stage_two": begun_at.numpy(),
        },
    )


def downstream(f: Tensor, z: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return R^2 of y = <w*, z> and the accuracy of its sign, by ridge regression on f [A, n, m].

    Two thirds of the examples fit, the rest test; means over the columns w* of `targets` [d, k].
    The sign is tested where it exists (y != 0). Definition 3.1.
    """
    split = 2 * len(z) // 3
    scaled = (f / f[:, :split].std((1, 2), keepdim=True).clamp_min(1e-30)).double()
    y = (z @ targets).double()
    fit, test = scaled[:, :split], scaled[:, split:]
    ridge = 1e-3 * split * torch.eye(f.shape[-1], dtype=torch.float64)
    weights = torch.linalg.solve(fit.mT @ fit + ridge, fit.mT @ y[:split])
    fitted, true = test @ weights, y[split:]
    r2 = 1 - (fitted - true).square().mean((1, 2)) / true.var()
    exists = true != 0
    right = (fitted.sign() == true.sign()) & exists
    return r2, right.sum((1, 2)) / exists.sum()


def evaluate(w: Tensor, b: Tensor, data: SparseCoding, count: int, generator: Generator) -> Arrays:
    """Measure what Theorems 3.2 and 3.4 speak of, for each arm [A]; `best_of` is [A, m]."""
    z, xi = data.sample(count, generator)
    signal = z @ data.atoms.T
    f, f_noise, f_signal = (respond(x @ w.mT, b) for x in (signal + xi, xi, signal))
    targets = torch.randn(data.atoms.shape[1], 16, generator=generator).sign()
    r2, sign = downstream(f, z, targets)
    share = (w @ data.atoms).abs() / norms(w).unsqueeze(-1)
    has_signal = z.any(1)  # where z = 0 there is no signal to be close to
    return {
        "best_of": share.amax(-1).numpy(),
        "best": share.amax(-1).mean(1).numpy(),
        "covered": (share.amax(1) >= SINGLETON).float().mean(1).numpy(),
        "cos_noise": functional.cosine_similarity(f, f_noise, dim=-1).mean(1).numpy(),
        "cos_signal": functional.cosine_similarity(f, f_signal, dim=-1)[:, has_signal]
        .mean(1)
        .numpy(),
        "r2": r2.numpy(),
        "sign": sign.numpy(),
    }


def check(arrays: Arrays) -> tuple[Check, ...]:
    """Test Theorems 3.2 and 3.4 and the three stages, at the base values (arms 0 and 1)."""
    with_mask = {name: float(arrays[name][0]) for name in MEASURES}
    without = {name: float(arrays[name][1]) for name in MEASURES}
    gain = {name: with_mask[name] - without[name] for name in MEASURES}
    inside, best = arrays["inside"][:, 0], arrays["best_curve"][:, 0]
    turn = int(np.searchsorted(arrays["step"], arrays["stage_two"][0]))
    tenth = len(best) // 10
    return (
        at_least(
            "Theorem 3.4, with RandomMask: share of atoms that some neuron singles out",
            with_mask["covered"],
            0.9,
        ),
        at_most(
            "Theorem 3.2, without: share of atoms that some neuron singles out",
            without["covered"],
            0.5,
        ),
        at_least("RandomMask raises the mean largest |<w, M_j>|/|w| by", gain["best"], 0.1),
        at_most("RandomMask lowers cos(f(x), f(xi)): change", gain["cos_noise"], -0.1),
        at_least("RandomMask raises cos(f(x), f(Mz)): change", gain["cos_signal"], 0.1),
        at_least("RandomMask raises R^2 of y = <w*, z>: change", gain["r2"], 0.05),
        at_least("RandomMask raises the accuracy of sign<w*, z>: change", gain["sign"], 0.02),
        at_least(
            "stage I: |M M^T w| grows by this factor before any bias", inside[turn] / inside[0], 10
        ),
        at_most(
            "stage I: mean largest |<w, M_j>|/|w| at its end (no singletons yet)", best[turn], 0.6
        ),
        at_least("stage II: it then rises by", best[-1] - best[turn], 0.2),
        at_most(
            "stage III: it has converged, change over the last tenth of the steps",
            abs(best[-1] - best[-1 - tenth]),
            0.02,
        ),
    )


def notes(arrays: Arrays) -> tuple[str, ...]:
    """Say what finite size changes."""
    neurons = arrays["best_of"].shape[1]
    single = (arrays["best_of"][:2] >= SINGLETON).sum(1)
    lines = [
        f"Singletons among {neurons} neurons: {single[0]} with RandomMask, {single[1]} without.",
        "The theorems are asymptotic: cos(f(x), f(xi)) tends to 1 without RandomMask as the noise "
        f"outgrows the signal; at this size it is {arrays['cos_noise'][1]:.2f} without and "
        f"{arrays['cos_noise'][0]:.2f} with.",
        "The bias schedule's floor, a growth of at least eta/d a step, is left out: it assumes a "
        "vanishing step size, and at a step of 1 it silences every neuron within some hundred "
        "steps.",
    ]
    if "swept" in arrays:
        gain = arrays["sweep_r2"][:, 0] - arrays["sweep_r2"][:, 1]
        pairs = sorted(zip(arrays["swept"].tolist(), gain.tolist(), strict=True))
        listed = ", ".join(f"{value:g}: {change:+.2f}" for value, change in pairs)
        lines.append(f"R^2 with RandomMask minus without, over the swept values: {listed}.")
    return tuple(lines)


def draw(arrays: Arrays, figure: "Figure") -> None:
    """Draw stages and outcomes of the base arms, or outcomes over the swept parameter."""
    labels = ("RandomMask", "no augmentation")
    if "swept" in arrays:
        shown = (("best", "mean largest |<w, M_j>| / |w|"), ("cos_noise", "cos(f(x), f(ξ))"))
        panels = figure.subplots(1, 3)
        for axes, (name, title) in zip(panels, (*shown, ("r2", "R² of y = <w*, z>")), strict=True):
            order = np.argsort(arrays["swept"])
            for arm, (label, marker) in enumerate(zip(labels, "os", strict=True)):
                values = arrays[f"sweep_{name}"][order, arm]
                axes.plot(arrays["swept"][order], values, label=label, marker=marker)
            axes.set(xlabel=AXES[str(arrays["sweep"])], ylabel=title, ylim=(0, 1))
        panels[0].legend(fontsize=7)
        return
    stages, singles, outcome = figure.subplots(1, 3)
    for arm, (label, marker) in enumerate(zip(labels, "os", strict=True)):
        for name, what in (("inside", "|M Mᵀw|"), ("outside", "dense part")):
            curve = arrays[name][:, arm]
            stages.plot(
                arrays["step"], curve, label=f"{what}, {label}", marker=marker, ms=3, markevery=10
            )
        curve = arrays["best_curve"][:, arm]
        singles.plot(arrays["step"], curve, label=label, marker=marker, ms=3, markevery=10)
    for axes in (stages, singles):
        for start, style in zip(arrays["stage_two"][:2], ("-", "--"), strict=True):
            axes.axvline(start, color="0.5", lw=0.8, ls=style)
        axes.set(xlabel="step (grey: stage II begins)")
        axes.legend(fontsize=7)
    stages.set(yscale="log", ylabel="mean norm over neurons", title="Where the weight lies")
    singles.set(ylabel="mean largest |<w, M_j>| / |w|", ylim=(0, 1), title="Singletons")
    names = ("covered", "cos_noise", "cos_signal", "r2", "sign")
    ticks = ("atoms\ncovered", "cos to\nf(ξ)", "cos to\nf(Mz)", "R² of\n<w*, z>", "sign\n<w*, z>")
    place = np.arange(len(names))
    for arm, (label, hatch) in enumerate(zip(labels, ("", "//"), strict=True)):
        height = [arrays[name][arm] for name in names]
        outcome.bar(
            place + 0.4 * arm - 0.2, height, 0.4, label=label, hatch=hatch, edgecolor="black"
        )
    outcome.set_xticks(place, ticks, fontsize=7)
    outcome.set(ylim=(0, 1.25), ylabel="at the end", title="Theorems 3.2 and 3.4")
    outcome.legend(fontsize=7, loc="upper center")


def measure(
    *,
    scale: Scale,
    generator: Generator,
    sweep: Literal["tau", "lam", "mask_rate", "noise", "size"] | None = None,
    tau: Annotated[float, Gt(0)] = 1.0,
    lam: Annotated[float, Ge(0)] = 3e-4,
    mask_rate: Annotated[float, Interval(gt=0, lt=1)] = 0.5,
    noise: Annotated[float, Gt(0)] = 1.0,
    sparsity: Annotated[float, Gt(0)] = 1.0,
    bias_factor: Annotated[float, Ge(0)] = 0.7,
    initial_norm: Annotated[float, Gt(0)] = 0.03,
    step_size: Annotated[float, Gt(0)] = 1.0,
    atoms: Annotated[int | None, Ge(4)] = None,
    ambient: Annotated[int | None, Ge(4)] = None,
) -> Arrays:
    """Learn sparse-coding data with and without RandomMask, and use the features downstream.

    `noise` and `sparsity` are the constants s and c of sigma^2 and Pr(z_j != 0). `tau`, `lam` and
    `mask_rate` are the temperature, the weight decay and q. `bias_factor`, `initial_norm` and
    `step_size` are those of the training. `atoms` (d) and `ambient` (d1, at least d) default to 64
    and 1024, or to 24 and 512 at scale tiny; there are 4 d neurons.

    `sweep` names tau, lam, mask_rate or noise and adds arms that vary it around the base values,
    or size, which adds runs at d/2 and 3d/4 with d1 in proportion. A sweep takes up to three times
    as long.
    """
    d = at_scale(scale, tiny=24, default=64) if atoms is None else atoms
    d1 = at_scale(scale, tiny=512, default=1024) if ambient is None else ambient
    require(d1 >= d, "ambient", d1, f"at least atoms={d}")
    densest = d / math.log(math.log(d))  # at which every z_j is non-zero
    require(sparsity <= densest, "sparsity", sparsity, f"at most {densest:g} for atoms={d}")
    base = {"tau": tau, "lam": lam, "mask_rate": mask_rate, "noise": noise}
    arms = Arms.around(base, None if sweep == "size" else sweep)

    def one_size(d: int, d1: int) -> Arrays:
        draws = generator.clone_state()  # the same for all sizes
        data = SparseCoding.random(d, d1, sparsity, arms.noise, draws)
        w, b, curves = train(
            data,
            arms,
            neurons=4 * d,
            batch=at_scale(scale, tiny=128, default=192),
            steps=at_scale(scale, tiny=900, default=1200),
            step_size=step_size,
            initial_norm=initial_norm,
            bias_factor=bias_factor,
            generator=draws,
        )
        return curves | evaluate(w, b, data, at_scale(scale, tiny=3000, default=6000), draws)

    arrays = one_size(d, d1)
    if sweep is None:
        return arrays
    smaller = [d // 2, 3 * d // 4] if sweep == "size" else []
    by_size = [arrays, *(one_size(size, d1 * size // d) for size in smaller)]
    values = [d, *smaller] if sweep == "size" else getattr(arms, sweep)[::2]
    joined = {
        f"sweep_{name}": np.concatenate([run[name] for run in by_size]).reshape(-1, 2)
        for name in MEASURES
    }
    return arrays | joined | {"swept": np.asarray(values), "sweep": np.array(sweep)}


LAB = Lab(
    name="sparse-coding",
    claim=first_line(__doc__),
    measure=measure,
    check=check,
    notes=notes,
    draw=draw,
)
