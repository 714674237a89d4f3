import pytest
import torch
from torch.nn import functional

from widefield.core.scale import power_of_two, scale_rows, unit_rows


def rows(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(50, 7, generator=torch.Generator().manual_seed(0), dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rows_of_ordinary_length_are_those_of_torch_to_the_last_bit(dtype: torch.dtype) -> None:
    h = rows(dtype) * torch.logspace(-6, 6, 50, dtype=dtype)[:, None]
    before = h.clone()
    assert torch.equal(unit_rows(h), functional.normalize(h, dim=1))
    assert torch.equal(h, before)


@pytest.mark.parametrize("scale", [1e-38, 1e-30, 1e-20, 1e20, 1e37])
def test_rows_of_any_length_become_of_length_one(scale: float) -> None:
    h = rows() * scale
    expected = functional.normalize(h.double() / scale, dim=1)
    torch.testing.assert_close(unit_rows(h).double(), expected, rtol=0, atol=1e-6)
    mixed = torch.cat([rows(), h, torch.zeros(1, 7)])
    lengths = unit_rows(mixed).norm(dim=1)
    torch.testing.assert_close(lengths[:-1], torch.ones(100))
    assert lengths[-1] == 0


def test_powers_are_exact_and_just_below() -> None:
    size = torch.tensor([1e-45, 1e-38, 0.3, 1.0, 1.999, 2.0, 3e38])
    power = power_of_two(size)
    assert ((power <= size) & (size.double() < 2 * power.double())).all()
    assert (power.frexp().mantissa == 0.5).all()
    assert scale_rows(torch.zeros(2, 3)).tolist() == [[0, 0, 0], [0, 0, 0]]
