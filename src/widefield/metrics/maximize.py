"""What does a neuron want to see? Gradient ascent on an image, from noise.

Olah et al. (2017), "Feature visualization": the image is a sum of waves whose strength falls as
1 / frequency, colored along the axes that natural colors vary along, so that a step moves
large shapes as easily as fine ones; and each step shows a slightly moved, turned and scaled image,
so that no picture wins that depends on single pixels.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from widefield.metrics.firing import watching

_STEP = 0.05
_TURN, _SCALE, _MOVE = 0.17, 0.1, 0.1
"""Largest turn (radians), change of scale, and move (share of half the side) in a step."""


def activation_maximization(
    encoder: nn.Module,
    units: Sequence[int],
    *,
    shape: tuple[int, int, int],
    layer: str | None = None,
    color: Tensor | None = None,
    steps: int = 128,
    seed: int = 0,
) -> Tensor:
    """Return an image in [0, 1] that excites each of `units`, float [U, C, H, W].

    Args:
        encoder: x[B, C, H, W] in [0, 1] -> h[B, D]; it is left as it was.
        units: columns of h, or channels of `layer`.
        shape: (C, H, W) of an image.
        layer: name of a module within the encoder; by default its output h. A unit of it is a
            channel of [B, K, h, w] or a column of [B, ..., K]; places are averaged.
        color: maps independent colors to natural ones, [C, C], as `color_axes` gives it.
        steps: number of steps of Adam.
        seed: seeds the first image and the moves.

    An image that no gradient reaches stays noise: that of an encoder which works under
    `torch.no_grad()`, or does not look at its image.

    Raises:
        ValueError: no such layer or unit.

    Example:
        >>> brightness = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten())
        >>> image = activation_maximization(brightness, [0], shape=(1, 8, 8))
        >>> bool(image.median() > 0.9)
        True
    """
    device = next((p.device for p in encoder.parameters()), torch.device("cpu"))
    generator = torch.Generator().manual_seed(seed)
    channels, height, width = shape
    size = (len(units), channels, height, width // 2 + 1, 2)
    waves = (0.1 * torch.randn(size, generator=generator)).to(device).requires_grad_()
    mix = torch.eye(channels) if color is None else color
    chosen = torch.as_tensor(list(units), device=device)
    optimizer = torch.optim.Adam([waves], lr=_STEP)
    if layer is not None and layer not in dict(encoder.named_modules()):
        raise ValueError(f"the encoder has no layer {layer!r}")
    with torch.enable_grad(), watching(encoder, () if layer is None else (layer,)) as outputs:
        for _ in range(steps):
            outputs.clear()
            x = moved(paint(waves, mix.to(device), (height, width)), generator)
            h = encoder(x)
            excitement = _per_unit(h if layer is None else outputs[layer], chosen)
            waves.grad = _gradient(-excitement.sum(), waves)
            optimizer.step()
    return paint(waves.detach(), mix.to(device), (height, width))


def paint(waves: Tensor, mix: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the images [U, C, H, W] in [0, 1] of waves [U, C, H, W // 2 + 1, 2].

        x = sigmoid(M F^-1(s . waves)),  s_f = sqrt(H W) / max(|f|, 1 / max(H, W))

    with the inverse Fourier transform F^-1 (ortho), frequencies f in cycles a pixel, and the
    matrix `mix` M [C, C] over channels; the mean strength of s is 1.
    """
    height, width = size
    fy = torch.fft.fftfreq(height, device=waves.device)[:, None]
    fx = torch.fft.rfftfreq(width, device=waves.device)[None]
    strength = 1 / (fy.square() + fx.square()).sqrt().clamp(min=1 / max(size))
    strength = strength / strength.mean()
    spectrum = torch.view_as_complex(waves * strength[..., None])
    flat = torch.fft.irfft2(spectrum, s=size, norm="ortho")
    return torch.einsum("dc,uchw->udhw", mix, flat).sigmoid()


def color_axes(images: Tensor) -> Tensor:
    """Return the root M of the color covariance of images [n, C, H, W], float [C, C].

    M M' is proportional to the covariance, so independent coordinates become natural colors.
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
    roots = values.clamp(min=0).sqrt()
    largest = roots.max()
    scaled = roots / largest if largest > 0 else torch.ones_like(roots)
    root: Tensor = axes * scaled @ axes.T
    return root.float()


def moved(x: Tensor, generator: torch.Generator) -> Tensor:
    """Turn, scale and move each of the images x [U, C, H, W] a little."""
    turn, scale, right, down = (2 * torch.rand(4, len(x), generator=generator) - 1).to(x.device)
    turn, scale = _TURN * turn, 1 + _SCALE * scale
    top = torch.stack([scale * turn.cos(), -scale * turn.sin(), _MOVE * right], dim=1)
    bottom = torch.stack([scale * turn.sin(), scale * turn.cos(), _MOVE * down], dim=1)
    theta = torch.stack([top, bottom], dim=1)
    grid = functional.affine_grid(theta, list(x.shape), align_corners=False)
    return functional.grid_sample(x, grid, padding_mode="reflection", align_corners=False)


def _gradient(loss: Tensor, waves: Tensor) -> Tensor:
    """Return the gradient of a loss by the waves, zeros if it does not follow from them."""
    if not loss.requires_grad:
        return torch.zeros_like(waves)
    (gradient,) = torch.autograd.grad(loss, [waves], allow_unused=True, materialize_grads=True)
    return gradient


def _per_unit(activation: Tensor, units: Tensor) -> Tensor:
    """Return the activation of unit u on image u, mean over places, [U]."""
    if activation.ndim == 4:
        activation = activation.mean((2, 3))
    elif activation.ndim > 2:
        activation = activation.mean(tuple(range(1, activation.ndim - 1)))
    if int(units.max()) >= activation.shape[1] or int(units.min()) < 0:
        raise ValueError(
            f"units are {units.tolist()}: the layer has 0 to {activation.shape[1] - 1}"
        )
    return activation[torch.arange(len(units)), units]
