"""MMCR against the singular values that numpy finds."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from draws import draw
from widefield.methods.mmcr import mmcr


def two_views(b: int, m: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    z1, z2 = draw(2, b, m, seed=seed)
    return z1, z2


def nuclear(matrix: np.ndarray) -> float:
    return float(np.linalg.svd(matrix, compute_uv=False).sum())


@settings(max_examples=15, deadline=None)
@given(
    b=st.integers(2, 7),
    m=st.integers(1, 5),
    weight=st.sampled_from([0.0, 0.3]),
    seed=st.integers(0, 9),
)
def test_mmcr_is_the_sum_of_singular_values(b: int, m: int, weight: float, seed: int) -> None:
    z1, z2 = two_views(b, m, seed)
    u1, u2 = (z.numpy() / np.linalg.norm(z.numpy(), axis=1, keepdims=True) for z in (z1, z2))
    local = np.mean([nuclear(np.stack([u1[i], u2[i]])) for i in range(b)])
    expected = -nuclear((u1 + u2) / 2) + weight * local
    assert float(mmcr(z1, z2, local_weight=weight)) == pytest.approx(expected, rel=1e-9)


def test_mmcr_is_least_for_orthogonal_examples_whose_views_agree() -> None:
    """|C|_* <= sqrt(b rank C) of rows of norm 1 at most."""
    z = 3 * torch.linalg.qr(two_views(6, 6)[0]).Q
    assert float(mmcr(z, z, local_weight=0.0)) == pytest.approx(-6)
    assert all(float(mmcr(*two_views(6, 6, seed), local_weight=0.0)) > -6 for seed in range(5))


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_gradient_is_that_of_small_steps(weight: float) -> None:
    views = [z.requires_grad_() for z in two_views(5, 4)]
    assert torch.autograd.gradcheck(lambda a, b: mmcr(a, b, local_weight=weight), views)


@pytest.mark.parametrize("weight", [0.0, 0.5])
def test_the_gradient_is_finite_where_singular_values_are_equal_or_zero(weight: float) -> None:
    """All singular values equal, then views that agree, all rows alike, and a row of zeros."""
    zeros = torch.ones(5, 4)
    zeros[2] = 0
    for z in (torch.eye(4), torch.ones(5, 4), zeros):
        z1, z2 = z.clone().requires_grad_(), z.clone().requires_grad_()
        mmcr(z1, z2, local_weight=weight).backward()
        assert z1.grad.isfinite().all()
        assert z2.grad.isfinite().all()
