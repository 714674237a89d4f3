"""DCL against its equation, with plain loops, and against the loss that it decouples."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draws import draw
from widefield.methods.dcl import dcl
from widefield.methods.simclr import nt_xent


def views(b: int, seed: int) -> tuple[Tensor, Tensor]:
    z1, z2 = draw(2, b, 3, seed=seed)
    return z1, z2


def cosine(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True)) / (math.hypot(*a) * math.hypot(*b))


def terms(z1: Tensor, z2: Tensor, temperature: float) -> list[float]:
    """The loss of each anchor of both views."""
    sides, result = (z1.tolist(), z2.tolist()), []
    for anchors, others in (sides, sides[::-1]):
        for i, anchor in enumerate(anchors):
            negatives = [z for side in sides for j, z in enumerate(side) if j != i]
            total = sum(math.exp(cosine(anchor, z) / temperature) for z in negatives)
            result.append(math.log(total) - cosine(anchor, others[i]) / temperature)
    return result


@settings(max_examples=20, deadline=None)
@given(b=st.integers(2, 7), temperature=st.sampled_from([0.07, 0.2, 1.0]), seed=st.integers(0, 99))
def test_dcl_is_its_equation(b: int, temperature: float, seed: int) -> None:
    z1, z2 = views(b, seed)
    expected = sum(terms(z1, z2, temperature)) / (2 * b)
    assert float(dcl(z1, z2, temperature=temperature)) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=10, deadline=None)
@given(b=st.integers(2, 6), temperature=st.sampled_from([0.2, 1.0]), seed=st.integers(0, 99))
def test_nt_xent_is_its_softplus_anchor_by_anchor(b: int, temperature: float, seed: int) -> None:
    """With the positive in the sum, log(P + N) - log P = log(1 + N / P)."""
    z1, z2 = views(b, seed)
    expected = sum(math.log1p(math.exp(term)) for term in terms(z1, z2, temperature)) / (2 * b)
    assert float(nt_xent(z1, z2, temperature=temperature)) == pytest.approx(expected, rel=1e-9)


def test_it_does_not_see_scale_or_rotation() -> None:
    z1, z2 = views(6, 0)
    rotation = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    moved = dcl(5 * z1 @ rotation, z2 @ rotation, temperature=0.2)
    torch.testing.assert_close(moved, dcl(z1, z2, temperature=0.2))
