"""Random filters of whitened patches: their equation by loops, and inputs of every form."""

import itertools

import pytest
import torch

from widefield.encoders.patches import (
    COUNT,
    fit_patch_filters,
    grid_means,
    grid_of,
    patch_features,
)


def inputs(*shape: int) -> torch.Tensor:
    """Noise of different strength in each channel, smoothed along both axes, away from zero."""
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x = x + x.roll(1, 2) + x.roll(1, 3)
    return 3 + x * torch.arange(1, shape[1] + 1)[:, None, None]


def test_filters_of_patches_are_uncorrelated_with_equal_variance() -> None:
    x = inputs(200, 3, 8, 8)
    filters, offset = fit_patch_filters(x)
    inside = torch.nn.functional.conv2d(x, filters, offset).transpose(0, 1).flatten(1)
    covariance = torch.cov(inside)
    assert inside.mean(1).abs().max() < 1e-3
    # The ridge lowers each variance by less than its share of the smallest eigenvalue.
    assert 0.7 < covariance.diagonal().min() <= covariance.diagonal().max() <= 1.001
    assert (covariance - covariance.diagonal().diag()).abs().max() < 0.2
    # The control: the same filters of patches that are not whitened respond alike.
    plain = torch.nn.functional.conv2d(x, torch.ones_like(filters)).transpose(0, 1).flatten(1)
    assert torch.corrcoef(plain)[0, 1] > 0.99


@pytest.mark.parametrize("shape", [(3, 8, 8), (1, 9, 6), (4, 1, 64), (2, 2, 2)])
def test_features_are_means_of_positive_parts(shape: tuple[int, int, int]) -> None:
    x = inputs(5, *shape)
    filters, offset = fit_patch_filters(x)
    found = patch_features(x, filters, offset, 2)
    _, height, width = shape
    high, across = filters.shape[2] // 2, filters.shape[3] // 2
    padded = torch.nn.functional.pad(x, (across, across, high, high))
    maps = torch.zeros(5, COUNT, height, width)
    for i in range(height):
        for j in range(width):
            patch = padded[:, :, i : i + filters.shape[2], j : j + filters.shape[3]]
            maps[:, :, i, j] = torch.einsum("bchw,fchw->bf", patch, filters) + offset
    torch.testing.assert_close(found, grid_means(maps.clamp_min(0), 2), rtol=1e-4, atol=1e-4)
    cells = 4
    assert found.shape == (5, COUNT * cells)


def test_constant_inputs_give_finite_features() -> None:
    x = torch.full((4, 3, 8, 8), 0.5)
    filters, offset = fit_patch_filters(x)
    assert filters.isfinite().all()
    assert patch_features(x, filters, offset, 4).isfinite().all()


@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize(
    ("shape", "side"),
    [
        ((8, 8), 4),
        ((16, 16), 4),
        ((16, 8), 2),
        ((32, 32), 4),
        ((7, 5), 3),
        ((1, 32), 4),
        ((4, 4), 4),
    ],
)
def test_grid_means_are_those_of_each_cell(
    shape: tuple[int, int], side: int, form: torch.memory_format
) -> None:
    x = inputs(3, 2, *shape).contiguous(memory_format=form)
    height, width = shape
    rows, columns = grid_of(height, width, side)
    found = grid_means(x, side)
    assert found.shape == (3, 2 * rows * columns)
    for n, (i, j) in enumerate(itertools.product(range(rows), range(columns))):
        top, left = i * height // rows, j * width // columns
        bottom, right = -(-(i + 1) * height // rows), -(-(j + 1) * width // columns)
        mean = x[:, :, top:bottom, left:right].mean((2, 3))
        torch.testing.assert_close(found.unflatten(1, (2, -1))[:, :, n], mean, rtol=1e-6, atol=1e-6)
