"""Gaussian blurs of a batch, one deviation for each image: torchvision's and Pillow's."""

import torch
from torch import Tensor


def separable(x: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Return R x C^T for every channel of x [N, C, H, W]; R: `rows` [N, H, H], C: `columns`."""
    # Matrix products are one call for a whole batch, whatever the boxes. `grid_sample` would mix in
    # pixels outside of a crop at its border, where torchvision repeats the crop's own.
    n, c, h, w = x.shape
    x = torch.bmm(x.reshape(n, c * h, w), columns.mT)
    return rows[:, None] @ x.view(n, c, h, w)


def gaussian_blur(x: Tensor, sigma: Tensor) -> Tensor:
    """Blur images [N, C, H, W] by Gaussians of `sigma` [N] pixels; 0 leaves an image unchanged.

    The kernel's side is odd, about a tenth of the image's and at least 3; borders are mirrored.
    """
    rows, columns = (blur_weights(sigma.to(x.dtype), side) for side in x.shape[-2:])
    return separable(x, rows, columns)


def blur_weights(sigma: Tensor, side: int) -> Tensor:
    """Return matrices [N, side, side] that blur one axis by Gaussians of `sigma` [N] pixels.

    The weight at distance t is proportional to exp(-t^2 / 2 sigma^2); each row sums to 1.
    """
    n, radius = len(sigma), max(1, side // 20)
    offset = torch.arange(-radius, radius + 1, device=sigma.device)
    kernel = ((offset / sigma[:, None].clamp_min(1e-3)).square() / -2).softmax(1)
    pixel = torch.arange(side, device=sigma.device)[:, None] + offset
    reflected = ((side - 1) - ((side - 1) - pixel.abs()).abs()).clamp_min(0)  # of a side of 1 too
    weights = torch.zeros(n, side, side, device=sigma.device, dtype=sigma.dtype)
    return weights.scatter_add_(
        2, reflected.expand(n, -1, -1), kernel[:, None].expand(-1, side, -1)
    )


def pillow_blur(x: Tensor, sigma: Tensor) -> Tensor:
    """Blur images [N, C, H, W] as Pillow's `GaussianBlur` does; `sigma` [N] of 0 changes nothing.

    It is a sequence of three box blurs with a total deviation of `sigma`; borders are repeated.
    Pillow rounds to 8 bits after each, which is not done here.
    """
    rows, columns = (box_weights(sigma.to(x.dtype), side) for side in x.shape[-2:])
    return separable(x, rows, columns)


def box_weights(sigma: Tensor, side: int) -> Tensor:
    """Return matrices [N, side, side] that blur one axis three times by a box.

    The three together have the standard deviations `sigma` [N], pixels. A box has the weights 1 up
    to a distance of l pixels and a at l + 1, divided by 2 (l + a) + 1, with l and a such that its
    variance is v = sigma^2 / 3:

        l = floor((sqrt(12 v + 1) - 1) / 2)
        a = (2 l + 1) (l (l + 1) - 3 v) / (6 (v - (l + 1)^2))

    Source: Gwosdek et al. (2011), equations 7, 11 and 14.
    """
    v = sigma[:, None].square() / 3
    whole = (((12 * v + 1).sqrt() - 1) / 2).floor()  # l
    part = (2 * whole + 1) * (whole * (whole + 1) - 3 * v) / (6 * (v - (whole + 1).square()))  # a
    pixel = torch.arange(side, device=sigma.device)
    distance = (pixel[:, None] - pixel).abs()
    inner, outer, share = whole[..., None], whole[..., None] + 1, part[..., None]
    box = (distance <= inner) + share * (distance == outer)
    # Taps beyond a border are added to the border pixel: for row i, those from i + 1 on.
    border = (whole - pixel).clamp_min(0) + part * (pixel <= whole)
    box[:, :, 0] += border
    box[:, :, -1] += border.flip(1)
    box = box / (2 * (inner + share) + 1)
    return box @ box @ box
