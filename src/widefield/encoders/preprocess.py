"""Preprocessing as a module: pixels of images of any size become the input of an encoder.

It follows `core/form.py` and Pillow's fixed-point resampling, whose two passes round to whole
numbers, so that ONNX files compute the features of `embed`. Pillow 13 takes the passes in the other
order for some images whose height is reduced more than their width, which changes a few pixels by a
level or two of 255.
"""

import torch
from torch import Tensor, nn

from widefield.core.form import InputSpec
from widefield.core.types import as_size

_FIXED_POINT = 2.0**22
"""Pillow's resampling weights are multiples of 1 / 2^22."""


class Preprocess(nn.Module):
    """Pixels [B, H, W, C] of any size -> x [B, C, h, w] in [0, 1], as image files are decoded.

    Pixels are uint8. With black and white in the record they are the values in the files, of any
    type; with those of each channel they are not rounded to 8 bits.
    """

    def __init__(self, inputs: InputSpec) -> None:
        super().__init__()
        self.size, self.fit = as_size(inputs.image_size), inputs.fit
        self.black_white, self.levels = None, 255
        if inputs.black_white is not None:
            ranges = torch.tensor(inputs.black_white, dtype=torch.float64)
            self.levels = 255 if ranges.ndim == 1 else 65_535
            black, white = ranges.reshape(-1, 2).T
            self.black_white = black[:, None, None], white[:, None, None]

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the input of the encoder, float32 [B, C, h, w]."""
        x = pixels.to(torch.float64).permute(0, 3, 1, 2)
        if self.black_white is not None:
            black, white = self.black_white
            black, white = black.to(x.device), white.to(x.device)
            x = torch.round((x - black) * (self.levels / (white - black))).clamp(0, self.levels)
        rows, columns = (torch.arange(x.shape[k], device=x.device).double() for k in (2, 3))
        height, width = rows[-1] + 1, columns[-1] + 1
        resized_height, resized_width = self._resized(height, width)
        x = self._rounded(x @ _weights(columns, width, resized_width, self.size[1]).T)
        x = self._rounded(_weights(rows, height, resized_height, self.size[0]) @ x)
        return (x / self.levels).float()

    def _rounded(self, sums: Tensor) -> Tensor:
        return torch.clamp(torch.floor(sums / _FIXED_POINT + 0.5), 0, self.levels)

    def _resized(self, height: Tensor, width: Tensor) -> tuple[Tensor, Tensor]:
        """Return height and width before the cut or the borders, as `center_fit` does."""
        if self.fit == "squash":
            return torch.full_like(height, self.size[0]), torch.full_like(width, self.size[1])
        nearest = torch.minimum if self.fit == "crop" else torch.maximum
        if self.size[0] == self.size[1]:
            side = nearest(height, width)
            resized = (
                torch.floor(self.size[0] * height / side),
                torch.floor(self.size[1] * width / side),
            )
        else:
            ratio = nearest(height / self.size[0], width / self.size[1])
            resized = torch.round(height / ratio), torch.round(width / ratio)
        return torch.clamp(resized[0], min=1), torch.clamp(resized[1], min=1)


def _weights(positions: Tensor, length: Tensor, resized: Tensor, size: int) -> Tensor:
    """Return the bicubic weights [size, length] of the central `size` of `resized` pixels.

    Of a border, where `size` is larger, they are 0.
    """
    place = torch.arange(size, device=positions.device) + torch.round((resized - size) / 2)
    scale = length / resized
    center = ((place + 0.5) * scale)[:, None]
    stretch = torch.clamp(scale, min=1)  # antialiasing
    first = torch.floor(torch.clamp(center - 2 * stretch + 0.5, min=0))
    last = torch.minimum(torch.floor(center + 2 * stretch + 0.5), length)
    inside = (positions >= first) & (positions < last)
    weights = torch.where(inside, _cubic((positions - center + 0.5) * (1 / stretch)), 0.0)
    is_border = ((place < 0) | (place >= resized))[:, None]
    weights = torch.where(is_border, 0.0, weights / weights.sum(1, keepdim=True))
    return torch.trunc(weights * _FIXED_POINT + torch.where(weights < 0, -0.5, 0.5))


def _cubic(x: Tensor) -> Tensor:
    """Return the cubic convolution kernel with a = -1/2 (Keys, 1981, equation 15)."""
    x = x.abs()
    near = (1.5 * x - 2.5) * x * x + 1
    far = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return torch.where(x < 1, near, torch.where(x < 2, far, 0.0))
