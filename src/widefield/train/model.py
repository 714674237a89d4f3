"""Encoder and method as one module, whose encoder may be compiled."""

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from widefield.core.micro_batch import MicroBatched
from widefield.core.types import Loss
from widefield.methods.base import Method
from widefield.methods.target import target_networks

if TYPE_CHECKING:
    from widefield.config.recipe import CompileMode


BACKEND = "inductor"
"""Backend of `torch.compile`."""


class CompiledEncoder(nn.Module):
    """Features of an encoder, by code that torch compiles at the first batch of each size.

    Args:
        encoder: x[B, C, H, W] -> h[B, D]; it is not changed, and computes as before itself.
        mode: `default`, or `reduce-overhead` for CUDA graphs.

    Source: PyTorch 2 (Ansel et al. 2024).
    """

    def __init__(self, encoder: nn.Module, *, mode: "CompileMode") -> None:
        super().__init__()
        self.encoder = encoder
        # Sizes are few: that of a batch, and of the last one or of micro-batches.
        self._run = torch.compile(encoder, mode=mode, dynamic=False, backend=BACKEND)

    def forward(self, x: Tensor) -> Tensor:
        """Return features [B, D] of images [B, C, H, W]."""
        try:
            with _gradients_of_views() if x.requires_grad else nullcontext():
                features: Tensor = self._run(x)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = str(error).strip().partition("\n")[0]
            raise ValueError(
                f"torch cannot compile the encoder: {reason}: choose compile none"
            ) from error
        return features


@contextmanager
def _gradients_of_views() -> Iterator[None]:
    """Context without the warning of torch that views have no `grad`, which it looks for."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The .grad attribute of a Tensor", UserWarning)
        yield


class PretrainModel(nn.Module):
    """Encoder and method as one module, which is wrapped once for distributed training."""

    def __init__(
        self,
        encoder: nn.Module,
        method: Method,
        frozen_modules: Sequence[nn.Module] = (),
        micro_batch: int | None = None,
        compile: "CompileMode" = "none",
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.method = method
        self.frozen_modules = tuple(frozen_modules)
        self.micro_batch, self.compile_mode = micro_batch, compile
        self._seen = (self._wrapped(encoder),)  # a tuple: the state dict has the weights once
        for target in target_networks(method):
            target.encode_by(self._wrapped)

    def _wrapped(self, encoder: nn.Module) -> nn.Module:
        if self.compile_mode != "none":
            encoder = CompiledEncoder(encoder, mode=self.compile_mode)
        if self.micro_batch is not None:
            encoder = MicroBatched(encoder, max_size=self.micro_batch)
        return encoder

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all modules except the frozen ones."""
        super().train(mode)
        for module in self.frozen_modules:
            module.eval()
        return self

    def forward(
        self, views: list[Tensor], index: Tensor | NDArray[np.int64]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the loss of a batch and its named parts."""
        (encoder,) = self._seen
        if self.compile_mode == "reduce-overhead":
            # Features of the step before are overwritten from here on.
            torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        index = torch.as_tensor(index)
        loss: Loss = self.method(encoder, views, index)
        return loss.total, loss.parts
