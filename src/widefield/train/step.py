"""One training step: sample views, compute the loss, update encoder and head.

Views with parameters are trained adversarially: after the encoder's step they take a step that
increases the loss of new views.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from widefield.core.types import Batch
from widefield.train.adversary import frozen_state, loss_gradients
from widefield.train.compute import Compute
from widefield.views.base import AugmentContext

if TYPE_CHECKING:
    from widefield.train.state import TrainState


@dataclass(kw_only=True)
class StepMetrics:
    """Metrics of a step; the loss is a mean over the current epoch."""

    epoch: int
    """Finished epochs."""
    step: int
    """Steps of the run."""
    lr: float
    images: int
    """Images of this epoch so far, in this call and over all processes."""
    seconds: float
    data_wait: float
    """Share of the epoch's time spent waiting for data, in [0, 1]."""
    row_wait: float
    """Share of the epoch's time spent waiting for rows of a head on disk, in [0, 1]."""
    sums: dict[str, Tensor] = field(repr=False)

    def means(self) -> dict[str, float]:
        """Return mean loss and parts; waits for the device."""
        count = self.sums["count"].item()
        return {k: float(v) / count for k, v in self.sums.items() if k != "count"}


class TrainStep:
    """Takes training steps of a state, in place, and those of adversarial views."""

    def __init__(self, state: "TrainState", *, compute: Compute) -> None:
        self.state, self.compute = state, compute
        self.model = compute.wrap(state.model)
        self.model.train()
        self.views: nn.Module = state.views
        if state.adversary is not None:
            self.views = compute.wrap(state.views)

    def __call__(self, batch: Batch) -> dict[str, Tensor]:
        """Take a step on `batch`; return its loss and parts, detached, without waiting for them."""
        state = self.state
        lr = float(state.rates[state.step])
        optimizers = (state.optimizer, *state.head_optimizers)
        for optimizer in optimizers:
            set_learning_rate(optimizer, lr)
        with torch.no_grad():
            views = self.draw(batch)
        with self.compute.autocast():
            # As numpy, because DistributedDataParallel would move a tensor to the device.
            total, parts = self.model(self.compute.cast(views), batch.index.numpy())
        total, parts = total.float(), {name: value.float() for name, value in parts.items()}
        total.backward()
        for optimizer in optimizers:
            optimizer.step()
        state.optimizer.zero_grad()
        # After the optimizers, because target networks follow the new weights.
        state.model.method.after_step()
        state.step += 1
        state.epoch_step += 1
        values = {"loss": total.detach(), **parts}
        if state.adversary is not None:
            values["adversary_loss"] = self.adversarial_step(batch)
        return values

    def adversarial_step(self, batch: Batch) -> Tensor:
        """Take a step of the views on minus the loss of new views; return that loss."""
        adversary = self.state.adversary
        assert adversary is not None
        with frozen_state(self.state.model):
            views = self.draw(batch)
            with self.compute.autocast():
                total: Tensor = self.state.model(views, batch.index)[0]
            (-total).backward()  # type: ignore[no-untyped-call]
        adversary.step()
        adversary.zero_grad()
        return total.detach()

    def draw(self, batch: Batch) -> list[Tensor]:
        state = self.state
        gradients = partial(loss_gradients, state.model, batch.index, self.compute.autocast)
        context = AugmentContext(mask=batch.mask, crops=batch.crops, gradients=gradients)
        return self.views(batch.x, state.model.method.view_count, state.generator, context)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every group to `lr` times its `lr_scale`."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group["lr_scale"]
