"""Induction hypotheses D.1 and E.2 of Wen and Li (2021), at every step of a training.

It begins at T1 with neurons for which D.1 holds, with c_0 = 0.4: one for each atom that it has won,
and as many without one. T2 is the step at which a squared norm has grown by d.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from draws import generator
from widefield_labs import sparse_learner as learner
from widefield_labs.sparse_learner import SparseCoding

D, D1 = 32, 256
LOG = math.log(D)
C0, TAU, NORM, STEP_SIZE, BATCH = 0.4, 1.0, 0.05, 0.3, 256


@dataclass(frozen=True)
class Neurons:
    """Weights [m, d1] and biases [m] after a step."""

    w: Tensor
    b: Tensor
    basis: Tensor
    """Of all d1 dimensions, orthonormal columns; the first d are the atoms."""

    @property
    def norm(self) -> Tensor:
        return self.w.norm(dim=1)

    @property
    def along(self) -> Tensor:
        """|<w_i, M_j>| [m, d]."""
        return (self.w @ self.basis[:, :D]).abs()

    @property
    def dense(self) -> Tensor:
        """The largest |<w_i, M_j^perp>| over |w_i|, of each neuron, [m]."""
        return (self.w @ self.basis[:, D:]).abs().amax(1) / self.norm


def begin(data: SparseCoding) -> Neurons:
    unit = math.sqrt(2 * LOG / D)  # of the bias, over the norm
    parts = (2 * torch.rand(2 * D, D, generator=generator(1)) - 1) * 0.8 * (1 - C0) * unit
    parts[range(D), range(D)] = 1.15 * (1 + C0) * unit
    others = torch.randn(D1, D1 - D, generator=generator(2))
    basis = torch.linalg.qr(torch.cat([data.atoms, others], 1)).Q
    basis = torch.cat([data.atoms, basis[:, D:]], 1)  # the signs of the atoms may be turned
    v = torch.randn(2 * D, D1 - D, generator=generator(3))
    parts = torch.cat([parts, 0.3 * v / v.norm(dim=1, keepdim=True)], 1)
    return Neurons(NORM * parts @ basis.T, torch.full((2 * D,), NORM * unit), basis)


def training(noise: float, steps: int) -> Iterator[Neurons]:
    """Yield the neurons before each step; sigma^2 is `noise` times that of Definition 2.1."""
    values = {"tau": TAU, "lam": 0.0, "mask_rate": 0.5, "noise": noise, "trained": 0.0}
    arm = learner.Arms(**{name: torch.tensor([value]) for name, value in values.items()})
    g = generator(0)
    data = SparseCoding.random(D, D1, 2.0, arm.noise, g)
    now = begin(data)
    for _ in range(steps):
        yield now
        _, views = learner.draw_views(data, arm, BATCH, g)
        slope, _ = learner.gradient(now.w[None], now.b[None], views, arm.column("tau"))
        after = now.w - STEP_SIZE * slope[0]
        growth = after.norm(dim=1) / now.norm
        now = Neurons(after, learner.scheduled(now.b, growth, LOG / math.sqrt(D)), now.basis)


def won(first: Neurons) -> tuple[Tensor, Tensor]:
    """Return M_j^* and the complement of M_j, both [m, d]."""
    bias = first.b[:, None]
    return first.along >= (1 + C0) * bias, first.along <= (1 - C0) * bias


def test_the_hypotheses_of_stages_two_and_three_hold_at_every_step():
    run = list(training(noise=1.0, steps=320))
    star, lost = won(run[0])
    assert (star.sum(0) == 1).all()
    assert (star | lost).all()
    grown = [float((now.norm / run[0].norm).square().max()) for now in run]
    t2 = next(t for t, growth in enumerate(grown) if growth >= D)
    for now in run[: t2 + 1]:  # D.1
        along, bias, norm = now.along, now.b[:, None], now.norm[:, None]
        assert (along >= (1 + C0) * bias)[star].all()  # (a)
        assert (along <= (1 - C0) * bias)[lost].all()  # (b)
        assert (along * math.sqrt(D) <= LOG * norm)[lost].all()
        many = (along.square() >= bias.square() / math.sqrt(LOG)).sum(1)
        assert many.max() <= 2 ** -math.sqrt(LOG) * D  # (c)
        assert now.dense.max() <= LOG / math.sqrt(D1)  # (d)
        assert (now.norm.square() <= D * now.b.square() / LOG).all()  # (e)
    assert len(run) > t2 + 100
    for now in run[t2:]:  # E.2, in its order
        along, norm = now.along, now.norm[:, None]
        assert (along >= 0.9 * norm)[star].all()
        assert now.norm.max() < 2
        of_atom = (along.square() * star).sum(0)
        assert of_atom.max() <= TAU * LOG**3
        assert (along.amax(0) == (along * star).amax(0)).all()
        assert (along * math.sqrt(D) <= LOG * norm)[lost].all()
        assert now.dense.max() <= LOG / math.sqrt(D1)
        assert (now.b * math.sqrt(D) >= 0.5 * LOG * now.norm).all()


def test_with_ten_times_the_noise_neurons_lose_the_atoms_that_they_had_won():
    """Definition 2.1 bounds the noise, and the induction needs it."""
    first, *_, last = training(noise=10.0, steps=100)
    star, _ = won(first)
    assert (last.along < last.b[:, None])[star].all()
