"""A linear decoder beside the loss: features predict a small gray copy of their own view.

With h [b, D] the features of views x, LN(h) each row with mean 0 and variance 1, and g(x) [b, P]
the mean over channels of x, averaged over a grid of P = 16 x 16 positions,

    t = (g(x) - mean_i g(x_i)) / s,             s the deviation of g(x) over examples and positions
    loss = 1/(b P) sum_i |W LN(h_i) + c - t_i|^2.

The objective makes features invariant to what differs between views. This term keeps in them what
is linearly readable of the view itself, such as a digit that the objective suppresses.

Ours. Related: masked autoencoders (He et al. 2022) and colorization (Zhang et al. 2016) train
features by reconstruction alone, with a deep decoder of feature maps.
"""

from torch import Tensor, nn
from torch.nn import functional

from widefield.core.precision import full_precision

SIDE = 16
"""Positions of the grid along each side."""


class Decoder(nn.Module):
    """A linear map from features h [b, D] to 256 gray pixels, and its error.

    Args:
        encoder_dim: D, the encoder's output width.

    Example:
        >>> import torch
        >>> error = Decoder(8)(torch.rand(4, 8), torch.rand(4, 3, 32, 32))
        >>> error.shape
        torch.Size([])
    """

    def __init__(self, encoder_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(encoder_dim, SIDE**2)

    @full_precision
    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        """Return the mean squared error for features h [b, D] of views x [b, C, H, W]."""
        predicted = self.linear(functional.layer_norm(h, h.shape[1:]))
        return functional.mse_loss(predicted, gray_target(x))


def gray_target(x: Tensor) -> Tensor:
    """Return the standardized gray pixels of views x [b, C, H, W], [b, 256].

    Views of height 1, windows and waveforms, have as many positions along time.

    Example:
        >>> import torch
        >>> gray_target(torch.rand(4, 3, 32, 32)).shape
        torch.Size([4, 256])
    """
    grid = (1, SIDE**2) if x.shape[2] == 1 else (SIDE, SIDE)
    gray = functional.adaptive_avg_pool2d(x.mean(1, keepdim=True), grid).flatten(1)
    centered = gray - gray.mean(0)
    return centered / gray.std(correction=0).clamp_min(1e-6)  # equal pixels have no deviation
