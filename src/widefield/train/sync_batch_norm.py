"""Batch normalization over the batches of all processes."""

import torch
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from widefield.core.errors import option
from widefield.core.gather import gather, rank_and_world


class _Synchronized(_BatchNorm):
    """Takes mean and variance over the batches of all processes in training, of one size each."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the normalized input [b, C, ...]."""
        x, world = input, rank_and_world()[1]
        if not self.training or world == 1:
            return super().forward(x)
        var, mean = torch.var_mean(x.float(), [0, *range(2, x.ndim)], correction=0)
        stats = gather(torch.stack([mean, var])[None])  # [world, 2, C]
        mean = stats[:, 0].mean(0)
        var = (stats[:, 1] + (stats[:, 0] - mean).square()).mean(0)
        self._track(mean.detach(), var.detach(), count=world * x.numel() // len(mean))
        scale = torch.rsqrt(var + self.eps)
        if self.weight is not None:
            scale = scale * self.weight
        shift = -mean * scale if self.bias is None else self.bias - mean * scale
        shape = (-1, *[1] * (x.ndim - 2))
        return (x * scale.view(shape) + shift.view(shape)).to(x.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, var: Tensor, *, count: int) -> None:
        """Update the running statistics, as torch does, with the variance of `count` values."""
        if self.num_batches_tracked is None or self.running_mean is None:
            return
        self.num_batches_tracked.add_(1)
        weight = self.momentum
        if weight is None:
            weight = 1 / float(self.num_batches_tracked)
        assert self.running_var is not None
        self.running_mean.lerp_(mean, weight)
        self.running_var.lerp_(var * count / max(1, count - 1), weight)


class SyncBatchNorm1d(_Synchronized, nn.BatchNorm1d):
    """`BatchNorm1d` over all processes."""


class SyncBatchNorm2d(_Synchronized, nn.BatchNorm2d):
    """`BatchNorm2d` over all processes."""


class SyncBatchNormAct2d(_Synchronized, BatchNormAct2d):
    """timm's batch normalization with an activation, over all processes."""

    def forward(self, input: Tensor) -> Tensor:
        """Return the activations [b, C, H, W]."""
        x = super().forward(input)
        is_done = not self.training or rank_and_world()[1] == 1
        return x if is_done else self.act(self.drop(x))


_SYNCHRONIZED: dict[type[nn.Module], type[_Synchronized]] = {
    nn.BatchNorm1d: SyncBatchNorm1d,
    nn.BatchNorm2d: SyncBatchNorm2d,
    BatchNormAct2d: SyncBatchNormAct2d,
}


def synchronize_batch_norm(model: nn.Module) -> None:
    """Let each batch normalization of `model` compute over the batches of all processes.

    Modules keep their parameters, buffers and names, so checkpoints are the same. In evaluation
    mode and in one process they compute as before. torch's own `SyncBatchNorm` needs a GPU.
    """
    for name, module in model.named_modules():
        if not isinstance(module, _BatchNorm) or isinstance(module, _Synchronized):
            continue
        kind = _SYNCHRONIZED.get(type(module))
        if kind is None:
            raise ValueError(
                f"{option('sync_batch_norm')} cannot synchronize {name}, a "
                f"{type(module).__name__}: use torch's BatchNorm1d or BatchNorm2d there, or leave "
                f"{option('sync_batch_norm')} out"
            )
        module.__class__ = kind  # in place, so that optimizers and hooks keep it
