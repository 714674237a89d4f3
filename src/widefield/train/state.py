"""State of a training run: encoder, method, views, and everything else that a step changes."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from widefield.core.micro_batch import MicroBatched
from widefield.core.types import Loss
from widefield.head.per_example_head import PerExampleHead
from widefield.methods.base import Method
from widefield.methods.target import target_networks
from widefield.views.base import Augmentation


class PretrainModel(nn.Module):
    """Encoder and method as one module, which is wrapped once for distributed training.

    Args:
        encoder: x[B, C, H, W] -> h[B, D].
        method: computes the loss.
        frozen_modules: modules of the encoder that stay in eval mode.
        micro_batch: examples that are encoded at a time; None for the whole batch.
    """

    def __init__(
        self,
        encoder: nn.Module,
        method: Method,
        frozen_modules: Sequence[nn.Module] = (),
        micro_batch: int | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.method = method
        self.frozen_modules = tuple(frozen_modules)
        seen = encoder
        if micro_batch is not None:
            seen = MicroBatched(encoder, max_size=micro_batch)
            for target in target_networks(method):
                target.use_micro_batches(size=micro_batch)
        self._seen = (seen,)  # a tuple, so that the state dict has the weights once

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
        loss: Loss = self.method(encoder, views, torch.as_tensor(index))
        return loss.total, loss.parts


@dataclass(kw_only=True)
class TrainState:
    """State of a training run, and its learning rates."""

    model: PretrainModel
    optimizer: torch.optim.Optimizer
    views: Augmentation
    adversary: torch.optim.Adam | None = None
    """Optimizer of views that learn."""
    generator: Generator
    """Random generator of the views and the method."""
    rates: Tensor
    """Learning rate of steps 1..T, float64 [T]; not part of the state dict."""
    epoch: int = 0
    """Finished epochs."""
    epoch_step: int = 0
    """Steps of the current epoch."""
    step: int = 0
    """Steps of the run."""
    sums: dict[str, Tensor] = field(default_factory=dict)
    """Sums of loss and parts over the current epoch on this rank, with their `count`."""

    @property
    def encoder(self) -> nn.Module:
        """The encoder that is trained."""
        return self.model.encoder

    @property
    def method(self) -> Method:
        """The method that trains it."""
        return self.model.method

    @property
    def heads(self) -> list[PerExampleHead]:
        """The method's per-example heads."""
        return [part for part in self.model.method.modules() if isinstance(part, PerExampleHead)]

    @property
    def head_optimizers(self) -> list[torch.optim.Optimizer]:
        """Optimizers of the rows of the heads."""
        return [head.optimizer for head in self.heads if head.optimizer is not None]

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the run between two steps."""
        device = self.generator.device
        random = {"torch": torch.get_rng_state(), "views": self.generator.get_state()}
        if device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(device)
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "head_optimizers": [one.state_dict() for one in self.head_optimizers],
            "views": self.views.state_dict(),
            "adversary": None if self.adversary is None else self.adversary.state_dict(),
            "random": random,
            "sums": self.sums,
            "epoch": self.epoch,
            "epoch_step": self.epoch_step,
            "step": self.step,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned.

        Random states are loaded only if they are of this kind of device.
        """
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        for one, saved in zip(self.head_optimizers, state["head_optimizers"], strict=True):
            one.load_state_dict(saved)
        self.views.load_state_dict(state["views"])
        if self.adversary is not None:
            self.adversary.load_state_dict(state["adversary"])
        random = state["random"]
        if device_of(state) == self.generator.device.type:
            torch.set_rng_state(random["torch"].cpu())
            self.generator.set_state(random["views"].cpu())
            if "cuda" in random:
                torch.cuda.set_rng_state(random["cuda"].cpu(), self.generator.device)
        self.epoch, self.epoch_step = state["epoch"], state["epoch_step"]
        self.step, self.sums = state["step"], state["sums"]

    def close(self) -> None:
        """Close files and threads of the heads."""
        for head in self.heads:
            head.storage.close()


def device_of(state: dict[str, Any]) -> Literal["cpu", "cuda"]:
    """Return the kind of device on which the run of a saved state was trained."""
    return "cuda" if "cuda" in state["random"] else "cpu"
