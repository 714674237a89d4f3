"""Activation maximization: gradient ascent on an image, from noise.

Olah et al. (2017), "Feature visualization": the image is parameterized by Fourier coefficients
scaled by 1 / frequency and by decorrelated colors, so that a step changes large shapes as easily as
fine ones; and each step uses a slightly translated, rotated and scaled image, so that the result
does not depend on single pixels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from widefield.core.devices import eval_mode

_STEP = 0.05
_RESTART = 0.1
"""Std of the noise that a step adds to units that are still off, as that of the first image."""
_ANGLE, _SCALE, _SHIFT = 0.17, 0.1, 0.1
"""Maximum rotation (radians), change of scale, and shift (fraction of half the side)."""


def activation_maximization(
    encoder: nn.Module,
    units: Sequence[int],
    *,
    shape: tuple[int, int, int],
    color: Tensor | None = None,
    steps: int = 128,
    seed: int = 0,
) -> Tensor:
    """Return an image in [0, 1] that maximizes each of `units`, float [U, C, H, W].

    Args:
        encoder: x[B, C, H, W] in [0, 1] -> h[B, D]; it is not changed.
        units: columns of h.
        shape: (C, H, W) of an image.
        color: matrix from decorrelated to natural colors, [C, C], see `color_axes`.
        steps: number of steps of Adam.
        seed: seed of the first image and of the random transforms.

    A ReLU that is off on the whole image has no gradient: each step adds noise until it is on.
    Without any gradient the image stays noise: under `torch.no_grad()` within the encoder, or if
    its output does not depend on the image.

    Raises:
        ValueError: no such unit.

    Example:
        >>> brightness = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> image = activation_maximization(brightness, [0], shape=(1, 8, 8))
        >>> bool(image.median() > 0.9)
        True
    """
    device = next((p.device for p in encoder.parameters()), torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)
    noise = torch.Generator().manual_seed(seed + 1)  # apart: transforms do not depend on it
    channels, height, width = shape
    size = (len(units), channels, height, width // 2 + 1, 2)
    coefficients = (0.1 * torch.randn(size, generator=generator)).to(device).requires_grad_()
    mix = torch.eye(channels) if color is None else color
    unit_ids = torch.as_tensor(list(units), device=device)
    off = torch.ones_like(unit_ids, dtype=torch.bool)
    optimizer = torch.optim.Adam([coefficients], lr=_STEP)
    with torch.enable_grad(), eval_mode(encoder):
        for _ in range(steps):
            x = random_affine(to_images(coefficients, mix.to(device), (height, width)), generator)
            activation = _per_unit(encoder(x), unit_ids)
            coefficients.grad = _gradient(-activation.sum(), coefficients)
            optimizer.step()
            off &= activation == 0
            _disturb(coefficients, off, noise)
    return to_images(coefficients.detach(), mix.to(device), (height, width))


def to_images(coefficients: Tensor, mix: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the images [U, C, H, W] in [0, 1] of Fourier coefficients [U, C, H, W // 2 + 1, 2].

        x = sigmoid(M F^-1(s . coefficients)),  s_f = sqrt(H W) / max(|f|, 1 / max(H, W))

    with the inverse Fourier transform F^-1 (ortho), frequencies f in cycles a pixel, and the
    matrix `mix` M [C, C] over channels; the mean strength of s is 1.
    """
    height, width = size
    fy = torch.fft.fftfreq(height, device=coefficients.device)[:, None]
    fx = torch.fft.rfftfreq(width, device=coefficients.device)[None]
    strength = 1 / (fy.square() + fx.square()).sqrt().clamp(min=1 / max(size))
    strength = strength / strength.mean()
    spectrum = torch.view_as_complex(coefficients * strength[..., None])
    flat = torch.fft.irfft2(spectrum, s=size, norm="ortho")
    return torch.einsum("dc,uchw->udhw", mix, flat).sigmoid()


def color_axes(images: Tensor) -> Tensor:
    """Return a square root M of the color covariance of images [n, C, H, W], float [C, C].

    M M' is proportional to the covariance, so M maps independent coordinates to natural colors.
    The largest axis has length 1.

    Example:
        >>> gray = torch.rand(8, 1, 4, 4).expand(8, 3, 4, 4)
        >>> (3 * color_axes(gray)).round().abs()
        tensor([[1., 1., 1.],
                [1., 1., 1.],
                [1., 1., 1.]])
    """
    pixels = images.double().transpose(0, 1).flatten(1)
    covariance = torch.cov(pixels, correction=0).reshape(len(pixels), len(pixels))
    values, axes = torch.linalg.eigh(covariance)
    scales = values.clamp(min=0).sqrt()
    largest = scales.max()
    scaled = scales / largest if largest > 0 else torch.ones_like(scales)
    root: Tensor = axes * scaled @ axes.T
    return root.float()


def random_affine(x: Tensor, generator: torch.Generator) -> Tensor:
    """Rotate, scale and translate each of the images x [U, C, H, W] slightly."""
    angle, scale, right, down = (2 * torch.rand(4, len(x), generator=generator) - 1).to(x.device)
    angle, scale = _ANGLE * angle, 1 + _SCALE * scale
    top = torch.stack([scale * angle.cos(), -scale * angle.sin(), _SHIFT * right], dim=1)
    bottom = torch.stack([scale * angle.sin(), scale * angle.cos(), _SHIFT * down], dim=1)
    theta = torch.stack([top, bottom], dim=1)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False)


def _gradient(loss: Tensor, coefficients: Tensor) -> Tensor:
    """Return d loss / d coefficients, zeros if the loss does not depend on them."""
    if not loss.requires_grad:
        return torch.zeros_like(coefficients)
    (gradient,) = torch.autograd.grad(
        loss, [coefficients], allow_unused=True, materialize_grads=True
    )
    return gradient


def _disturb(coefficients: Tensor, off: Tensor, generator: torch.Generator) -> None:
    """Add noise to the coefficients of units that are `off`, bool [U]."""
    if off.any():
        added = _RESTART * torch.randn(coefficients.shape, generator=generator)
        coefficients.data[off] += added.to(coefficients.device)[off]


def _per_unit(h: Tensor, units: Tensor) -> Tensor:
    """Return feature u of image u, [U]."""
    if int(units.max()) >= h.shape[1] or int(units.min()) < 0:
        raise ValueError(f"units are {units.tolist()}: the features are 0 to {h.shape[1] - 1}")
    return h[torch.arange(len(units)), units]
