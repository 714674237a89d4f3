"""The encoder's pass of a training step, compiled by torch; its weights and their names stay."""

import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from widefield.core.errors import option

if TYPE_CHECKING:
    from widefield.config.recipe import CompileMode, Recipe

BACKEND = "inductor"
"""Backend of `torch.compile`."""


class CompiledEncoder(nn.Module):
    """Features of an encoder, by code that torch compiles at the first batch of each size.

    Args:
        encoder: x[B, C, H, W] -> h[B, D]; it is not changed, and computes as before itself.
        mode: `default`, or `reduce-overhead` for CUDA graphs.

    Raises:
        ValueError: by the first batch: torch cannot compile the encoder.

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


def check_compile(recipe: "Recipe", device: torch.device) -> None:
    """Check that the encoder of a run can be compiled as its settings say.

    Raises:
        ValueError: there is no GPU for CUDA graphs, no C++ compiler for code of a CPU, or the
            settings exclude each other.
    """
    mode = recipe.compile
    if mode == "reduce-overhead" and recipe.micro_batch is not None:
        raise ValueError(
            f"CUDA graphs have the memory of a whole step, and {option('micro_batch')} recomputes "
            f"its parts: choose compile default, or leave {option('micro_batch')} out"
        )
    if mode == "none" or device.type == "cuda":
        return
    if mode == "reduce-overhead":
        raise ValueError(
            "compile reduce-overhead needs a GPU, for CUDA graphs, and this run trains on a CPU: "
            "choose compile default or none"
        )
    compiler = os.environ.get("CXX", "clang++" if sys.platform == "darwin" else "g++")
    if shutil.which(compiler) is None:
        raise ValueError(
            f"compile {mode} needs a C++ compiler, and {compiler} is not on the path: install it, "
            "name another one by the environment variable CXX, or choose compile none"
        )
