"""A batch that passes through the encoder in parts, so that a step holds the memory of one part."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint


class MicroBatched(nn.Module):
    """Features of a whole batch, of which each part's activations are computed twice.

    The first time they are thrown away, the second time they give that part's gradient. So the loss
    is over the whole batch, unlike that of gradients accumulated over small batches: every example
    is still told apart from all others. Batch normalization sees a part at a time, as it would in
    as many processes.

    Args:
        encoder: x[B, C, H, W] -> h[B, D].
        most: examples of a part, at most, or one more where one would be left alone, which batch
            normalization may not take; parts are as equal as can be.

    Example:
        >>> encoder = nn.Linear(3, 2)
        >>> x = torch.rand(5, 3)
        >>> torch.equal(MicroBatched(encoder, most=2)(x), encoder(x))
        True

    Source: gradient caching (Gao et al. 2021), section 3, by recomputation (Chen et al. 2016).
    """

    def __init__(self, encoder: nn.Module, *, most: int) -> None:
        super().__init__()
        self.encoder = encoder
        self.most = most

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, D] of images [B, C, H, W]."""
        count = -(-len(x) // self.most)
        if self.most > 1:
            count = min(count, max(1, len(x) // 2))
        parts = x.tensor_split(count)
        if len(parts) == 1 or not torch.is_grad_enabled():
            return torch.cat([self.encoder(part) for part in parts])
        return torch.cat(
            [
                checkpoint(self.encoder, part, use_reentrant=False, context_fn=self._contexts)
                for part in parts
            ]
        )

    def _contexts(self) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        """Return what surrounds the first pass, and the second: one of them moves statistics."""
        return nullcontext(), _still_statistics(self.encoder)


@contextmanager
def _still_statistics(encoder: nn.Module) -> Iterator[None]:
    """Let batch normalization see batches without a trace in its running statistics.

    Their count is one of them: where `momentum` is None, it weighs the next batch.
    """
    norms = [module for module in encoder.modules() if isinstance(module, _BatchNorm)]
    momenta = [norm.momentum for norm in norms]
    counts = [norm.num_batches_tracked for norm in norms]
    for norm, count in zip(norms, counts, strict=True):
        norm.momentum = 0.0
        norm.num_batches_tracked = None if count is None else count.clone()
    try:
        yield
    finally:
        for norm, momentum, count in zip(norms, momenta, counts, strict=True):
            norm.momentum, norm.num_batches_tracked = momentum, count
