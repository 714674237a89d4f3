"""Retention: predict the features that the encoder began with by a linear map of its features."""

import torch
from torch import Tensor, nn

from widefield.core.batch import check_index
from widefield.core.devices import to_device
from widefield.core.precision import full_precision

# Chosen by hand: features that hardly vary would weigh as much as the others.
_SMALLEST_STD = 1e-3
"""Smallest deviation of a feature that counts, as a share of the largest."""


class Retention(nn.Module):
    """The share of the variance of the initial features that a linear map of h does not predict.

        loss = 1/(V b D) sum_v sum_i sum_d ((W h_vi + c)_d - r_id)^2
        r_id = (h0_id - mean_d) / std_d,

    with h [D] of view v of example i by the encoder that is trained, and h0 [D] of the example
    without augmentation by the initial one. It is 1 - R^2, averaged over features: 0 if the initial
    features are predicted without error, 1 if each by its mean. W and c, which are trained too, are
    such at first that W h0 + c = r. A linear probe then finds in h what it finds in h0. A run adds
    it to its objective L as L + retention |L| loss, where |L| is a number without gradient: at
    `retention` 1, all that the start knew is worth as much as the objective.

    Args:
        initial: h0, the initial features of every example [n, D].

    Example:
        >>> h0 = torch.tensor([[0.0, 2.0], [2.0, 0.0], [1.0, 4.0]])
        >>> retention = Retention(h0)
        >>> retention(h0, torch.arange(3)).item() < 1e-6
        True
        >>> round(retention(h0.mean(0).expand(3, 2), torch.arange(3)).item(), 2)
        1.0

    Source: ours, by a row for each example as in S-DIET (2025), section 5.
    """

    def __init__(self, initial: Tensor) -> None:
        super().__init__()
        initial = initial.float().cpu()
        mean, std = initial.mean(0), initial.std(0, correction=0)
        varies = std > _SMALLEST_STD * std.max()
        scale = torch.where(varies, 1 / std, 0.0)
        self.rows = ((initial - mean) * scale).half()
        """r [n, D]; not part of the state dict, since it follows from the initial weights."""
        self.counted = int(varies.sum())
        """Number of features that vary."""
        self.map = nn.Linear(initial.shape[1], initial.shape[1])
        with torch.no_grad():
            self.map.weight.copy_(scale.diag())
            self.map.bias.copy_(-mean * scale)

    @full_precision
    def forward(self, h: Tensor, index: Tensor) -> Tensor:
        """Return the loss of features [V b, D], view by view, of the examples `index` [b]."""
        check_index(index, len(index), len(self.rows))
        rows = to_device(self.rows[index.cpu()], h.device).to(h.dtype)
        error = self.map(h).unflatten(0, (-1, len(rows))) - rows
        return error.square().mean() * (error.shape[-1] / max(1, self.counted))
