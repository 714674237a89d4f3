"""Training that brings directions of earlier stages back into pooled features, at the same width.

With h[D] the pooled features of a plain image, standardized by the mean and deviation that they had
before, h_0 their former values and t[K] what is wanted beside them,

    L = |A h + a - h_0|^2 / D + w |B h + b - t|^2 / K

The first term keeps what a linear map of h predicts, the second adds t. A starts as the identity,
B and b as the least-squares solution. Adam updates the encoder and the linear maps. The encoder is
in evaluation mode, so running statistics stay as they are. Without the second term the gradient is
zero up to rounding, and the encoder stays as it is.

Our method. The first term is the one of feature distillation (FitNets, Romero et al. 2015, eq. 3).
"""

from collections.abc import Iterator
from copy import deepcopy
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from widefield.config.defaults import LR_SCALES
from widefield.core.devices import eval_mode, on_device, to_device
from widefield.core.types import Precision, ProgressCallback
from widefield.encoders.layers import family_of_network
from widefield.probes.features import extract, image_batch
from widefield.probes.standardize import Standardization
from widefield.train.optim import learning_rates

# Rate, batch and warm-up were chosen by hand; study `recover` has their result.
_LR = 5e-3
"""Learning rate of networks with batch norm; other families take a multiple, as in runs."""
_BATCH = 50
_WARMUP = 0.1
"""Share of the steps."""
_EPS = 1e-6
"""Adam's epsilon, above gradients that are rounding errors, as all of them are if w is 0."""
# Chosen by hand: the Gram matrix of dependent features has no inverse without it.
_RIDGE = 1e-3
"""Ridge of the least squares, relative to the variance of a standardized feature."""

Network = TypeVar("Network", bound=nn.Module)


def train_to_predict(
    encoder: Network,
    images: np.ndarray,
    wanted: Tensor,
    *,
    weight: float = 1.0,
    epochs: int,
    seed: int = 0,
    device: torch.device | None = None,
    precision: Precision = "32-true",
    progress: ProgressCallback | None = None,
) -> Network:
    """Return a copy of `encoder`, trained so that linear maps of its output predict `wanted` too.

    `wanted` is t [n, K], of mean 0 and variance 1, and `weight` is w; 0 is the control.
    """
    device = device or torch.device("cpu")
    student = deepcopy(encoder)
    with on_device(student, device), eval_mode(student):
        before = extract(student, images, device=device, precision=precision)
        objective = _Objective(before, wanted.to(device), weight=weight)
        trained = [p for p in (*student.parameters(), *objective.parameters()) if p.requires_grad]
        # Without weight decay, so that the encoder stays as it is where nothing is wanted (w = 0):
        # that is the control of study `recover`.
        optimizer = torch.optim.Adam(trained, eps=_EPS)
        batches = list(_batches(len(images), epochs=epochs, seed=seed))
        peak = _LR * LR_SCALES[family_of_network(student)]
        rates = learning_rates(peak, steps=len(batches), warmup_steps=int(_WARMUP * len(batches)))
        for step, (rows, lr) in enumerate(zip(batches, rates.tolist(), strict=True)):
            optimizer.param_groups[0]["lr"] = lr
            x = image_batch(images[rows.numpy()], device)
            with torch.autocast(device.type, torch.bfloat16, enabled=precision == "bf16-mixed"):
                h = student(x)
            objective(h.float(), to_device(rows, device)).backward()
            optimizer.step()
            optimizer.zero_grad()
            if progress is not None:
                progress(step + 1, len(batches))
    if not all(p.isfinite().all() for p in student.parameters()):
        raise ValueError("the loss became NaN or infinite: the encoder is as it was")
    return student


class _Objective(nn.Module):
    """The loss L of features h[B, D] of examples with rows [B]."""

    def __init__(self, before: Tensor, wanted: Tensor, *, weight: float) -> None:
        super().__init__()
        self.standardize = Standardization.of(before)
        self.kept, self.wanted, self.weight = self.standardize(before), wanted, weight
        # The former features are predicted exactly at first, so that the first steps are for the
        # wanted ones.
        self.to_kept = nn.Parameter(torch.eye(before.shape[1], device=before.device))
        self.to_wanted = nn.Parameter(_least_squares(self.kept, wanted))
        self.kept_offset = nn.Parameter(torch.zeros_like(self.kept[0]))
        self.wanted_offset = nn.Parameter(torch.zeros_like(wanted[0]))

    def forward(self, h: Tensor, rows: Tensor) -> Tensor:
        z = self.standardize(h)
        kept = z @ self.to_kept + self.kept_offset - self.kept[rows]
        added = z @ self.to_wanted + self.wanted_offset - self.wanted[rows]
        return kept.square().mean() + self.weight * added.square().mean()


def _least_squares(z: Tensor, t: Tensor) -> Tensor:
    """Return argmin_B |z B - t|^2 + ridge |B|^2 for z[n, D] and t[n, K] of mean 0, [D, K]."""
    gram = z.T @ z / len(z) + _RIDGE * torch.eye(z.shape[1], device=z.device)
    return torch.linalg.solve(gram, z.T @ t / len(z))


def _batches(count: int, *, epochs: int, seed: int) -> Iterator[Tensor]:
    """Yield the rows of each batch, int64 [B], in another order in every epoch."""
    generator = torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        order = torch.randperm(count, generator=generator)
        for start in range(0, count, _BATCH):
            yield order[start : start + _BATCH]
