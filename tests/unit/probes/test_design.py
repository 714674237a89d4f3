"""A design matrix that is computed at each use is the one in memory."""

import numpy as np
import pytest
import torch

from widefield.probes import fit_linear, pixels
from widefield.probes.design import DenseDesign, RotatedDesign
from widefield.probes.features import byte_pixels
from widefield.probes.standardize import Standardization


def made_images(n: int, seed: int = 0) -> tuple[np.ndarray, torch.Tensor]:
    """Images of 8 bits whose brightness on the left depends on their class, with a black row."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    images = rng.normal(110, 40, (n, 4, 5, 3))
    images[:, :, :2] += 25 * y[:, None, None, None]
    images[:, 0] = 0
    return images.clip(0, 255).astype(np.uint8), torch.from_numpy(y)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_products_in_blocks_are_those_of_the_formula(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("widefield.probes.design._BLOCK", 7 * 40)  # 7 rows at a time
    generator = torch.Generator().manual_seed(0)
    h = torch.randint(0, 256, (60, 40), generator=generator).to(dtype)
    mean, scale = h.float().mean(0), h.float().std(0)
    axes = torch.linalg.qr(torch.randn(40, 30, generator=generator))[0]
    z = (h.double() - mean) / scale
    x = torch.cat([z @ axes.double(), torch.ones(60, 1)], dim=1)
    variance = x[:, :-1].square().mean(0).float()
    design = RotatedDesign(h, Standardization(mean, scale), axes, variance)
    weight = torch.randn(2, 3, 31, generator=generator)
    residual = torch.randn(2, 3, 60, generator=generator)
    for got, expected in (
        (design.times(weight), weight.double() @ x.T),
        (design.sums(residual), residual.double() @ x),
        (design.mean_squares(), x.square().mean(0)),
        (DenseDesign(x.float()).times(weight), weight.double() @ x.T),
        (DenseDesign(x.float()).sums(residual), residual.double() @ x),
        (DenseDesign(x.float()).mean_squares(), x.square().mean(0)),
    ):
        torch.testing.assert_close(got, expected.float(), rtol=1e-4, atol=1e-4)
    assert design.width == DenseDesign(x.float()).width == 31


def test_a_probe_on_bytes_is_the_probe_on_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    images, y = made_images(300)
    stored, floats = byte_pixels(images), pixels(images)
    assert stored is not None
    assert stored.dtype == torch.uint8
    found = []
    for h, limit in ((floats, 2**26), (floats, 0), (stored, 2**26), (stored, 0)):
        monkeypatch.setattr("widefield.probes.linear._COORDINATES", limit)
        train, test = {"t": y[:200]}, {"t": y[200:]}
        found.append(fit_linear(h[:200], train, h[200:], test, classes={"t": 3})["t"])
    for other in found[1:]:
        assert torch.equal(other.predicted, found[0].predicted)
        assert other.validation == found[0].validation
    # Pixels are stored with the channels last, in 255 steps.
    weight = 255 * found[3].weight.view(3, 4, 5, 3).permute(0, 3, 1, 2).flatten(1)
    torch.testing.assert_close(weight, found[0].weight, rtol=0.01, atol=0.01)
    assert 0.5 < found[0].outcome.value < 1


def test_pixels_that_are_averaged_or_have_more_bits_are_floats() -> None:
    images, _ = made_images(3)
    assert byte_pixels(images, size=4) is None
    assert byte_pixels(images.astype(np.float32) / 255) is None
    read_only = np.broadcast_to(images[:, :, :, :1], images.shape)
    gray = byte_pixels(read_only)
    assert gray is not None
    assert gray.shape == (3, 60)
