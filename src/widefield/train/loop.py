"""The training loop: draw views, encode, loss, step. The only place that moves an encoder.

Views with parameters are a second player: after the encoder's step they draw again and take a step
of their own, on minus the loss.
"""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from lightning.fabric import Fabric
from numpy.typing import NDArray
from torch import Generator, Tensor, nn

from widefield.data import Loader
from widefield.methods import Method
from widefield.train.opponent import scene, undisturbed
from widefield.train.optim import set_learning_rate
from widefield.types import Batch, Loss
from widefield.views import Views


class Objective(nn.Module):
    """Encoder and method as one module, so that one wrapper sees every trained parameter."""

    def __init__(self, encoder: nn.Module, method: Method) -> None:
        super().__init__()
        self.encoder = encoder
        self.method = method

    def forward(
        self, views: list[Tensor], index: Tensor | NDArray[np.int64]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Loss of a batch and its named parts."""
        loss: Loss = self.method.loss(self.encoder, views, torch.as_tensor(index))
        return loss.total, loss.parts


@dataclass(kw_only=True)
class Training:
    """A run in progress: all that a step changes, and nothing else."""

    objective: Objective
    optimizer: torch.optim.Optimizer
    views: Views
    opponent: torch.optim.Adam | None = None
    """Optimiser of views that learn."""
    generator: Generator
    """Draws the views."""
    epoch: int = 0
    """Finished epochs."""
    epoch_step: int = 0
    """Steps taken in the epoch under way."""
    step: int = 0
    """Steps taken in all."""

    def state_dict(self) -> dict[str, Any]:
        """A consistent cut of the run, between two steps."""
        device = self.generator.device
        random = {"torch": torch.get_rng_state(), "views": self.generator.get_state()}
        if device.type == "cuda":
            random["cuda"] = torch.cuda.get_rng_state(device)
        return {
            "objective": self.objective.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "views": self.views.state_dict(),
            "opponent": None if self.opponent is None else self.opponent.state_dict(),
            "random": random,
            "epoch": self.epoch,
            "epoch_step": self.epoch_step,
            "step": self.step,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from where `state_dict` was taken."""
        self.objective.load_state_dict(state["objective"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.views.load_state_dict(state["views"])
        if self.opponent is not None:
            self.opponent.load_state_dict(state["opponent"])
        torch.set_rng_state(state["random"]["torch"].cpu())
        self.generator.set_state(state["random"]["views"].cpu())
        if "cuda" in state["random"]:
            torch.cuda.set_rng_state(state["random"]["cuda"].cpu(), self.generator.device)
        self.epoch, self.epoch_step = state["epoch"], state["epoch_step"]
        self.step = state["step"]


@dataclass(kw_only=True)
class Pulse:
    """What the loop reports after a step; `loss` and `parts` are means since the epoch began."""

    epoch: int
    step: int
    lr: float
    images: int
    seconds: float
    data_wait: float
    """Share of the epoch's time spent waiting for data, in [0, 1]."""
    row_wait: float
    """Share of the epoch's time spent waiting for rows of a head on disk, in [0, 1]."""
    sums: dict[str, Tensor] = field(repr=False)

    def means(self) -> dict[str, float]:
        """Mean loss and parts; waits for the device."""
        count = self.sums["count"].item()
        return {k: float(v) / count for k, v in self.sums.items() if k != "count"}


class Stepper:
    """One training step: draw views, encode, loss, backward, optimise, tell the method.

    Where the views learn, it is also their step.
    """

    def __init__(self, training: Training, *, fabric: Fabric, rates: Tensor) -> None:
        self.training, self.fabric, self.rates = training, fabric, rates
        self.objective, self.optimizer = fabric.setup(training.objective, training.optimizer)
        self.objective.train()
        self.views: nn.Module = training.views
        self.losses_per_step = 1 + training.views.gradient_calls
        if training.opponent is not None:
            self.views, self.opponent = fabric.setup(training.views, training.opponent)
            self.losses_per_step *= 2

    def step(self, batch: Batch) -> dict[str, Tensor]:
        """Loss and parts of the step just taken, detached; nothing waits for the device."""
        training, method = self.training, self.training.objective.method
        lr = float(self.rates[training.step])
        set_learning_rate(training.optimizer, lr)
        with torch.no_grad():
            drawn = self.draw(batch)
        # As numpy, because DistributedDataParallel would take a tensor to the device.
        total, parts = self.objective(drawn, batch.index.numpy())
        self.fabric.backward(total)
        self.optimizer.step()
        self.optimizer.zero_grad()
        training.step += 1
        training.epoch_step += 1
        method.after_step(training.objective.encoder, training.step, lr)
        values = {"loss": total.detach(), **parts}
        if training.opponent is not None:
            values["opponent_loss"] = self.oppose(batch)
        return values

    def oppose(self, batch: Batch) -> Tensor:
        """Let the views take a step on minus the loss of views drawn anew; that loss, detached."""
        with undisturbed(self.training.objective):
            drawn = self.draw(batch)
            with self.fabric.autocast():
                total: Tensor = self.training.objective(drawn, batch.index)[0]
            self.fabric.backward(-total)
        self.opponent.step()
        self.opponent.zero_grad()
        return total.detach()

    def draw(self, batch: Batch) -> list[Tensor]:
        """As many views as the method needs."""
        training = self.training
        around = scene(training.objective, batch, self.fabric.autocast)
        drawn: list[Tensor] = self.views(
            batch.x, training.objective.method.view_count, training.generator, around
        )
        return drawn


def train(
    training: Training,
    *,
    fabric: Fabric,
    loader: Loader,
    rates: Tensor,
    epochs: int,
    on_step: Callable[[Pulse], None],
    on_epoch: Callable[[Pulse], None],
) -> None:
    """Train until `epochs` are done; the callbacks see each step and each finished epoch.

    Args:
        training: where the run stands; changed in place.
        fabric: device and precision, over all processes.
        loader: batches of the data, in the order of each epoch.
        rates: learning rate of steps 1..T, float64 [T].
        epochs: when to stop.
        on_step: called after every step; must not wait for the device unless it has to.
        on_epoch: called after every epoch; may raise to stop the run.

    Raises:
        ValueError: the loss of an epoch is not finite.
    """
    stepper = Stepper(training, fabric=fabric, rates=rates)
    method = training.objective.method
    while training.epoch < epochs:
        sums: dict[str, Tensor] = {}
        order = torch.from_numpy(loader.order(training.epoch, training.epoch_step))
        method.expect(index for index in order for _ in range(stepper.losses_per_step))
        images, began = 0, time.perf_counter()
        data_waited, rows_waited = loader.wait_seconds, method.wait_seconds
        for batch in loader.epoch(training.epoch, start=training.epoch_step):
            _add(sums, stepper.step(batch))
            images += len(batch.index) * fabric.world_size
            seconds = time.perf_counter() - began
            pulse = Pulse(
                epoch=training.epoch,
                step=training.step,
                lr=float(rates[training.step - 1]),
                images=images,
                seconds=seconds,
                data_wait=(loader.wait_seconds - data_waited) / seconds,
                row_wait=(method.wait_seconds - rows_waited) / seconds,
                sums=sums,
            )
            on_step(pulse)
        training.epoch += 1
        training.epoch_step = 0
        if not math.isfinite(pulse.means()["loss"]):
            raise ValueError(
                f"the loss is {pulse.means()['loss']} after epoch {training.epoch}: "
                "lower lr or use --precision 32, and start again"
            )
        on_epoch(pulse)


def _add(sums: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    """Accumulate on the device: nothing here waits for it."""
    one = torch.ones(())
    for name, value in {"count": one, **values}.items():
        sums[name] = sums[name] + value if name in sums else value
