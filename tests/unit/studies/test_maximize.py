import numpy as np
import pytest
import torch
from torch import Tensor, nn

from studies import maximize
from studies.maximize import activation_maximization, color_axes
from widefield.encoders import build_encoder


class Sides(nn.Module):
    """Two neurons: right half minus left half, and red minus blue."""

    def forward(self, x: Tensor) -> Tensor:
        half = x.shape[3] // 2
        sides = x[..., half:].mean((1, 2, 3)) - x[..., :half].mean((1, 2, 3))
        return torch.stack([sides, x[:, 0].mean((1, 2)) - x[:, 2].mean((1, 2))], dim=1)


def test_the_image_shows_what_the_neuron_asks_for() -> None:
    images = activation_maximization(Sides(), [0, 1], shape=(3, 16, 16), steps=128)
    h = Sides()(images)
    assert ((images >= 0) & (images <= 1)).all()
    assert h[0, 0] > 0.7
    assert h[1, 1] > 0.7
    noise = Sides()(torch.rand(1000, 3, 16, 16)).amax(0)
    assert (h.diagonal() > noise).all()


def test_an_encoder_is_left_alone_and_its_neuron_is_excited() -> None:
    encoder = build_encoder("resnet-tiny", seed=0).train()
    before = {key: value.clone() for key, value in encoder.state_dict().items()}
    units = [3, 40]
    images = activation_maximization(encoder, units, shape=(3, 32, 32), steps=64)
    one, two = (
        activation_maximization(encoder, units, shape=(3, 32, 32), steps=4) for _ in range(2)
    )
    assert torch.equal(one, two)
    assert encoder.training
    assert all(p.grad is None for p in encoder.parameters())
    assert all(torch.equal(value, before[key]) for key, value in encoder.state_dict().items())
    encoder.eval()
    waves = torch.randn(200, 3, 32, 17, 2, generator=torch.Generator().manual_seed(0))
    drawn = maximize.to_images(waves, torch.eye(3), (32, 32))
    noise = encoder(drawn).detach()[:, units].amax(0)
    assert (encoder(images).detach()[:, units].diagonal() > noise).all()


def test_waves_become_the_image_that_numpy_makes_of_them() -> None:
    generator = torch.Generator().manual_seed(0)
    for size in ((8, 8), (7, 9), (6, 5)):
        waves = torch.randn(2, 3, size[0], size[1] // 2 + 1, 2, generator=generator)
        mix = torch.randn(3, 3, generator=generator)
        radius = np.hypot(np.fft.fftfreq(size[0])[:, None], np.fft.rfftfreq(size[1])[None])
        strength = 1 / np.maximum(radius, 1 / max(size))
        strength /= strength.mean()
        spectrum = (waves[..., 0] + 1j * waves[..., 1]).numpy() * strength
        flat = np.fft.irfft2(spectrum, s=size, norm="ortho")
        expected = 1 / (1 + np.exp(-np.einsum("dc,uchw->udhw", mix.numpy(), flat)))
        np.testing.assert_allclose(maximize.to_images(waves, mix, size), expected, atol=1e-5)


def test_color_axes_square_to_the_covariance() -> None:
    generator = torch.Generator().manual_seed(0)
    blend = torch.rand(3, 3, generator=generator)
    images = torch.einsum("dc,nchw->ndhw", blend, torch.rand(20, 3, 8, 8, generator=generator))
    covariance = np.cov(images.transpose(0, 1).flatten(1).numpy())
    root = color_axes(images).double().numpy()
    np.testing.assert_allclose(root @ root.T, covariance / np.linalg.norm(covariance, 2), atol=1e-5)
    assert color_axes(torch.ones(2, 1, 4, 4)).tolist() == [[1.0]]
    assert color_axes(torch.rand(1, 3, 1, 1)).tolist() == torch.eye(3).tolist()


def test_moves_are_small_and_drawn_for_each_image() -> None:
    ramp = torch.linspace(0, 1, 33).expand(4, 1, 33, 33)
    moved = maximize.random_affine(ramp, torch.Generator().manual_seed(0))
    assert (moved - ramp).abs().mean() < 0.15
    assert not torch.allclose(moved[0], moved[1])


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match=r"units are \[2\]: the features are 0 to 1"):
        activation_maximization(Sides(), [2], shape=(3, 8, 8))


class Blind(nn.Module):
    """Weights that learn, and an image that gradients do not reach."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.layer = way, nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        color = x.mean((2, 3))
        if self.way == "no_grad":
            with torch.no_grad():
                return self.layer(color)
        return self.layer(color.detach() if self.way == "detached" else 0 * color + 1)


@pytest.mark.parametrize("way", ["no_grad", "detached", "constant"])
def test_an_image_that_no_gradient_reaches_stays_noise(way: str) -> None:
    images = activation_maximization(Blind(way), [0, 1], shape=(3, 8, 8), steps=3)
    first = activation_maximization(Sides(), [0, 1], shape=(3, 8, 8), steps=0)
    assert torch.equal(images, first)


def test_a_caller_without_gradients_gets_the_same_image() -> None:
    images = activation_maximization(Sides(), [0], shape=(3, 8, 8), steps=3)
    with torch.no_grad():
        assert torch.equal(images, activation_maximization(Sides(), [0], shape=(3, 8, 8), steps=3))


def test_a_neuron_that_is_off_on_the_first_image_is_found_by_noise() -> None:
    class Bright(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            middle = x[:, :, 2:6, 2:6].mean((1, 2, 3))[:, None]
            return torch.relu(middle - torch.tensor([0.4, 0.6, 2.0]))

    images = activation_maximization(Bright(), [0, 1, 2], shape=(1, 8, 8))
    assert (Bright()(images)[:2].amax(1) > 0.3).all()
    assert torch.isfinite(images).all()
