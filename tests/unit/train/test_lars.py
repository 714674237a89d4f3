"""LARS against its equations, written out."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from widefield.train.lars import LARS


def by_hand(
    w: Tensor, grads: list[Tensor], *, lr: float, momentum: float, decay: float, trust: float
) -> Tensor:
    v = torch.zeros_like(w)
    for g in grads:
        d = g
        if w.ndim > 1:
            rate = trust * float(w.norm()) / (float(g.norm()) + decay * float(w.norm()) + 1e-8)
            d = min(1.0, rate / lr) * (g + decay * w)
        v = momentum * v + d
        w = w - lr * v
    return w


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 999),
    lr=st.floats(1e-3, 2.0),
    momentum=st.floats(0, 0.95),
    decay=st.floats(0, 0.1),
    trust=st.floats(1e-3, 0.5),
    steps=st.integers(1, 6),
)
def test_a_step_is_the_equation(
    seed: int, lr: float, momentum: float, decay: float, trust: float, steps: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    for shape in ((3, 4), (5,)):
        draws = [
            torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(steps + 1)
        ]
        w = torch.nn.Parameter(draws[0].clone())
        optimizer = LARS([w], lr=lr, momentum=momentum, weight_decay=decay, trust=trust)
        for grad in draws[1:]:
            w.grad = grad
            optimizer.step()
        expected = by_hand(draws[0], draws[1:], lr=lr, momentum=momentum, decay=decay, trust=trust)
        torch.testing.assert_close(w.data, expected, rtol=1e-9, atol=1e-11)


def test_weights_or_gradients_of_zero_take_plain_steps() -> None:
    zero, still = torch.nn.Parameter(torch.zeros(2, 2)), torch.nn.Parameter(torch.ones(2, 2))
    zero.grad, still.grad = torch.ones(2, 2), torch.zeros(2, 2)
    LARS([zero, still], lr=0.5, momentum=0.0, weight_decay=0.1).step()
    assert torch.equal(zero.data, torch.full((2, 2), -0.5))
    assert torch.equal(still.data, torch.ones(2, 2))


def test_no_step_is_longer_than_sgds() -> None:
    w = torch.nn.Parameter(torch.full((2, 2), 1e6))
    w.grad = torch.full((2, 2), 0.25)
    LARS([w], lr=1.0, momentum=0.0).step()
    assert torch.equal(w.data, torch.full((2, 2), 1e6) - 0.25)
