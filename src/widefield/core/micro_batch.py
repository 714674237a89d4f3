"""Encoding of a batch in micro-batches, with the activation memory of one of them."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


class MicroBatched(nn.Module):
    """Features of a whole batch, computed in micro-batches whose activations are recomputed.

    The forward pass discards the activations, the backward pass recomputes them. The loss is over
    the whole batch, unlike with gradient accumulation: every example is still contrasted with all
    others. Batch normalization uses the statistics of a micro-batch, as with as many processes.

    A micro-batch has at most `max_size` examples, or one more where one example would be left,
    which batch normalization cannot process; sizes differ by one at most.

    Source: gradient caching (Gao et al. 2021), section 3, by recomputation (Chen et al. 2016).
    """

    def __init__(self, encoder: nn.Module, *, max_size: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.max_size = max_size

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, D] of images [B, C, H, W]."""
        count = -(-len(x) // self.max_size)
        if self.max_size > 1:
            count = min(count, max(1, len(x) // 2))
        parts = x.tensor_split(count)
        if len(parts) == 1 or not torch.is_grad_enabled():
            return torch.cat([self.encoder(part) for part in parts])
        return torch.cat(
            [
                checkpoint(
                    self.encoder, part, use_reentrant=False, context_fn=self._checkpoint_contexts
                )
                for part in parts
            ]
        )

    def _checkpoint_contexts(
        self,
    ) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return the contexts of forward and recomputation: running statistics update once."""
        return nullcontext(), _frozen_statistics(self.encoder)


@contextmanager
def _frozen_statistics(encoder: nn.Module) -> Iterator[None]:
    """Freeze the running statistics of batch normalization in training mode.

    The count of batches is one of them: where `momentum` is None, it weights the next batch.
    """
    norms = [module for module in encoder.modules() if isinstance(module, _BatchNorm)]
    saved_momentum = [norm.momentum for norm in norms]
    saved_counts = [norm.num_batches_tracked for norm in norms]
    for norm, count in zip(norms, saved_counts, strict=True):
        norm.momentum = 0.0
        norm.num_batches_tracked = None if count is None else count.clone()
    try:
        yield
    finally:
        for norm, momentum, count in zip(norms, saved_momentum, saved_counts, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, count
