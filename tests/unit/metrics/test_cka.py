import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield.metrics import linear_cka


def kernel_form(x: np.ndarray, y: np.ndarray) -> float:
    """HSIC(K, L) / sqrt(HSIC(K, K) HSIC(L, L)) with linear kernels and the centering matrix."""
    center = np.eye(len(x)) - 1 / len(x)
    k, m = center @ x @ x.T @ center, center @ y @ y.T @ center
    return float(np.trace(k @ m) / np.sqrt(np.trace(k @ k) * np.trace(m @ m)))


@settings(max_examples=30, deadline=None)
@given(n=st.integers(2, 20), d=st.integers(1, 30), e=st.integers(1, 30), seed=st.integers(0, 99))
def test_it_is_the_ratio_of_kernels_whatever_is_larger(n: int, d: int, e: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, y = rng.normal(size=(n, d)), rng.normal(size=(n, e)) + 3
    found = linear_cka(torch.from_numpy(x), torch.from_numpy(y))
    assert found == pytest.approx(kernel_form(x, y), rel=1e-8)


def test_rotation_scale_and_shift_change_nothing_and_a_stretch_does() -> None:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(200, 6, generator=generator)
    turn = torch.linalg.qr(torch.randn(6, 6, generator=generator))[0]
    assert linear_cka(h, 3 * h @ turn - 2) == pytest.approx(1, abs=1e-5)
    assert linear_cka(h, h * torch.tensor([9.0, 1, 1, 1, 1, 1])) < 0.7
    assert linear_cka(h[:, :3], h[:, 3:]) < 0.1


def test_other_features_are_refused() -> None:
    with pytest.raises(ValueError, match="5 and 4 rows"):
        linear_cka(torch.rand(5, 2), torch.rand(4, 2))
    with pytest.raises(ValueError, match="do not vary"):
        linear_cka(torch.rand(5, 2), torch.ones(5, 2))
    one_row = torch.rand(1, 7, dtype=torch.float64).expand(100, 7)
    with pytest.raises(ValueError, match="do not vary"):  # its mean is a rounding away from it
        linear_cka(one_row / 3, torch.rand(100, 4))
