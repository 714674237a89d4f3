"""The data of Wen & Li (2021), its learner, contrastive loss and training (section 2).

Data and masked views are those of Definitions 2.1 and 2.3.

Neurons h_i(x) = ReLU(y_i - b_i) - ReLU(-y_i - b_i) with y_i = <w_i, x>, f = (h_1, .., h_m), and

    L = -tau log( e^{Sim(x+, x++)/tau} / sum over {x++} and all x- of e^{Sim(x+, x')/tau} )
        + lam sum_i |w_i|^2,   Sim(x, x') = <f(x), f(x')>, its second argument held

Shapes: A arms (even with, odd without RandomMask), B pairs, N negatives, d atoms, d1 ambient
dimensions, m neurons.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional

from widefield_labs.lab import Arrays

GROWN = 6.0
"""Growth of the mean |w_i| that ends stage I: the sparse part is then nearly all of |w_i|."""
RECORDS = 50  # points of a curve over training


@dataclass(frozen=True)
class SparseCoding:
    """Definition 2.1: atoms [d1, d], the probability of a non-zero z_j, sigma^2 of each arm [A]."""

    atoms: Tensor
    active: float
    variance: Tensor

    @classmethod
    def random(
        cls, d: int, d1: int, sparsity: float, noise: Tensor, generator: Generator
    ) -> "SparseCoding":
        """Draw orthonormal atoms: their entries are O~(1/sqrt(d1))."""
        atoms = torch.linalg.qr(torch.randn(d1, d, generator=generator)).Q
        active = sparsity * math.log(math.log(d)) / d
        return cls(atoms, active, noise * math.sqrt(math.log(d)) / d)

    def sample(self, count: int, generator: Generator) -> tuple[Tensor, Tensor]:
        """Draw z [n, d] and xi [A, n, d1]; arms share the draw."""
        d1, d = self.atoms.shape
        u = torch.rand(count, d, generator=generator)
        z = (u < self.active / 2).float() - (u > 1 - self.active / 2).float()
        xi = torch.randn(count, d1, generator=generator)
        return z, self.variance.sqrt().view(-1, 1, 1) * xi


def masked_pair(x: Tensor, keep: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """Return x+ and x++ [A, B, d1]: D x / q and (I - D) x / (1 - q) in even arms, x in odd ones.

    `keep` [B, d1] holds uniform draws; D keeps a coordinate where they are below q [A, 1, 1].
    """
    first = (keep < q).float()
    plain = (torch.arange(len(x)) % 2 == 1).view(-1, 1, 1)
    return (torch.where(plain, x, x * first / q), torch.where(plain, x, x * (1 - first) / (1 - q)))


@dataclass(frozen=True)
class Arms:
    """What differs between arms, each [A]: every row of values twice, with and without mask."""

    tau: Tensor
    lam: Tensor
    mask_rate: Tensor
    noise: Tensor
    trained: Tensor
    """1 where the loss trains the biases in place of the schedule."""

    @classmethod
    def paired(cls, rows: Sequence[dict[str, float]]) -> "Arms":
        """Take each row of values for two arms, the first with RandomMask."""
        return cls(
            **{
                field.name: torch.tensor([row[field.name] for row in rows]).repeat_interleave(2)
                for field in fields(cls)
            }
        )

    def column(self, name: str) -> Tensor:
        """Return one field as [A, 1, 1]."""
        values: Tensor = getattr(self, name)
        return values.view(-1, 1, 1)


@dataclass(frozen=True, kw_only=True)
class Training:
    """What all arms of a run have in common."""

    neurons: int
    batch: int
    """The number of pairs, and of negatives, of a step."""
    steps: int
    step_size: float
    initial_norm: float
    bias_factor: float


def respond(y: Tensor, b: Tensor) -> Tensor:
    """Return h = ReLU(y - b) - ReLU(-y - b) for pre-activations y [.., n, m], biases b [.., m]."""
    return functional.relu(y - b.unsqueeze(-2)) - functional.relu(-y - b.unsqueeze(-2))


def similarities(f: Tensor, partner_f: Tensor, negative_f: Tensor) -> Tensor:
    """Return Sim(x+, x++) and Sim(x+, x-) of every anchor, [A, B, 1 + N]."""
    positive = (f * partner_f).sum(-1, keepdim=True)
    return torch.cat([positive, f @ negative_f.mT], dim=-1)


def contrastive_loss(similarity: Tensor, tau: Tensor) -> Tensor:
    """Return the mean of L without weight decay, [A], of similarities [A, B, 1 + N]."""
    log_p = torch.log_softmax(similarity / tau, dim=-1)[..., 0]
    return -tau.flatten() * log_p.mean(-1)


def gradient(
    w: Tensor, b: Tensor, views: tuple[Tensor, Tensor, Tensor], tau: Tensor
) -> tuple[Tensor, Tensor]:
    """Return dL/dw [A, m, d1] and dL/db [A, m], without weight decay.

    `views` = (x+, x++, x-). With p the softmax of the similarities over tau,
    dL/df(x+) = -f(x++) + p_{++} f(x++) + sum p_- f(x-), and dh/dy = 1(y > b) + 1(-y > b),
    dh/db = 1(-y > b) - 1(y > b).
    """
    anchor, partner, negative = views
    y = anchor @ w.mT
    f, partner_f, negative_f = (respond(pre, b) for pre in (y, partner @ w.mT, negative @ w.mT))
    p = torch.softmax(similarities(f, partner_f, negative_f) / tau, dim=-1)
    df = (p[..., :1] - 1) * partner_f + p[..., 1:] @ negative_f
    above, below = (side.to(y.dtype) for side in (y > b.unsqueeze(-2), -y > b.unsqueeze(-2)))
    along_w = (df * (above + below)).mT @ anchor / anchor.shape[-2]
    return along_w, (df * (below - above)).mean(-2)


def norms(w: Tensor) -> Tensor:
    """Return |w_i| [A, m]."""
    return w.square().sum(-1).sqrt()


def parts(w: Tensor, atoms: Tensor) -> tuple[Tensor, Tensor]:
    """Return |M M^T w_i| and the norm of the rest, the dense part, [A, m] each."""
    sparse = norms(w @ atoms)
    return sparse, (norms(w) ** 2 - sparse**2).clamp_min(0).sqrt()


def best_share(w: Tensor, atoms: Tensor) -> Tensor:
    """Return each neuron's largest |<w_i, M_j>| / |w_i|, [A, m]."""
    return (w @ atoms).abs().amax(-1) / norms(w)


def draw_views(
    data: SparseCoding, arms: Arms, batch: int, generator: Generator
) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
    """Draw z [2 B, d] of pairs and of negatives, and their x+, x++ and x- [A, B, d1]."""
    z, xi = data.sample(2 * batch, generator)
    x = z @ data.atoms.T + xi
    keep = torch.rand(batch, x.shape[-1], generator=generator)
    first, second = masked_pair(x[:, :batch], keep, arms.column("mask_rate"))
    return z, (first, second, x[:, batch:])


def scheduled(b: Tensor, growth: Tensor, cap: float) -> Tensor:
    """Return biases that grow as the norms do, up to a cap (section 2.2)."""
    return torch.where(b < cap, b * growth.clamp_min(1.0), b)


def train(
    data: SparseCoding, arms: Arms, how: Training, generator: Generator
) -> tuple[Tensor, Tensor, Arrays]:
    """Descend the gradient on fresh data: w [A, m, d1], b [A, m], and curves over the steps."""
    d1, d = data.atoms.shape
    start = how.initial_norm / math.sqrt(d1)
    w = start * torch.randn(1, how.neurons, d1, generator=generator).repeat(len(arms.tau), 1, 1)
    b = torch.zeros(w.shape[:2])
    by_loss = arms.trained.view(-1, 1) > 0
    begun_at = torch.full((len(w),), -1)  # the step at which an arm's stage II begins
    first = torch.stack([part.mean(1) for part in parts(w, data.atoms)])
    growth_in_stage_one = torch.ones_like(first)
    curves: list[Tensor] = []
    for step in range(how.steps + 1):
        if step % (how.steps // RECORDS) == 0:
            inside, outside = parts(w, data.atoms)
            recorded = (inside, outside, best_share(w, data.atoms), b)
            curves.append(torch.stack([values.mean(1) for values in recorded]))
        if step == how.steps:
            break
        _, views = draw_views(data, arms, how.batch, generator)
        along_w, along_b = gradient(w, b, views, arms.column("tau"))
        before = norms(w)
        w = w - how.step_size * (along_w + 2 * arms.column("lam") * w)
        in_stage_two = (begun_at >= 0).unsqueeze(1)
        grown = scheduled(b, norms(w) / before, math.log(d) / math.sqrt(d))
        moved = torch.where(by_loss, b - how.step_size * along_b, grown)
        b = torch.where(in_stage_two, moved, b)
        enters = (begun_at < 0) & (norms(w).mean(1) > GROWN * how.initial_norm)
        begun_at = torch.where(enters, step, begun_at)
        if enters.any():
            now = torch.stack([part.mean(1) for part in parts(w, data.atoms)])
            growth_in_stage_one = torch.where(enters, now / first, growth_in_stage_one)
            first_bias = how.bias_factor * math.sqrt(2 * math.log(d) / d) * norms(w)
            b = torch.where(enters.unsqueeze(1) & ~by_loss, first_bias, b)
    inside_curve, outside_curve, best_curve, bias_curve = torch.stack(curves).unbind(1)
    return (
        w,
        b,
        {
            "step": np.linspace(0, how.steps, len(curves)),
            "inside": inside_curve.numpy(),
            "outside": outside_curve.numpy(),
            "best_curve": best_curve.numpy(),
            "bias_curve": bias_curve.numpy(),
            "stage_two": begun_at.numpy(),
            "stage_one_growth": growth_in_stage_one.numpy(),
        },
    )
