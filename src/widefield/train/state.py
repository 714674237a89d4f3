"""State of a training run: encoder, method, views, and everything else that a step changes."""

from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Generator, Tensor, nn

from widefield.head.per_example_head import PerExampleHead
from widefield.methods.base import Method
from widefield.train.model import PretrainModel
from widefield.views.base import Augmentation


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
        return self.model.encoder

    @property
    def method(self) -> Method:
        return self.model.method

    @property
    def heads(self) -> list[PerExampleHead]:
        return [part for part in self.model.method.modules() if isinstance(part, PerExampleHead)]

    @property
    def head_optimizers(self) -> list[torch.optim.Optimizer]:
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
        for head in self.heads:
            head.storage.close()


def device_of(state: dict[str, Any]) -> Literal["cpu", "cuda"]:
    """Return the kind of device on which the run of a saved state was trained."""
    return "cuda" if "cuda" in state["random"] else "cpu"
