"""Check that torch can compile the encoder of a run."""

import os
import shutil
import sys
from typing import TYPE_CHECKING

import torch

from widefield.core.errors import option

if TYPE_CHECKING:
    from widefield.config.recipe import Recipe


def check_compile(recipe: "Recipe", device: torch.device) -> None:
    """Check that the encoder of a run can be compiled as its settings say."""
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
