"""The training loop: epochs of steps, with callbacks after each step and each epoch."""

import math
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from widefield.data import Loader
from widefield.train.state import TrainState
from widefield.train.step import StepMetrics, TrainStep

if TYPE_CHECKING:
    from lightning.fabric import Fabric

OnStep = Callable[[StepMetrics], None]


class Trainer:
    """Trains a state on the batches of a loader.

    Args:
        state: where the run stands; changed in place.
        fabric: device and precision, over all processes.
        loader: batches of the data, in the order of each epoch.
    """

    def __init__(self, state: TrainState, *, fabric: "Fabric", loader: Loader) -> None:
        self.state, self.fabric, self.loader = state, fabric, loader
        self.step = TrainStep(state, fabric=fabric)

    def fit(self, epochs: int, *, on_step: OnStep, on_epoch: OnStep) -> None:
        """Train until `epochs` are finished.

        Args:
            epochs: when to stop, counted from the run's beginning.
            on_step: called after every step; must not wait for the device unless it has to. What
                it raises stops the run.
            on_epoch: called after every epoch.

        Raises:
            ValueError: the loss of an epoch is not finite.
        """
        state = self.state
        while state.epoch < epochs:
            for metrics in self._epoch():
                on_step(metrics)
            state.epoch, state.epoch_step, state.sums = state.epoch + 1, 0, {}
            loss = metrics.means()["loss"]
            if not math.isfinite(loss):
                raise ValueError(
                    f"the loss is {loss} after epoch {state.epoch}: lower lr or use "
                    "--precision 32, and start again with another --out"
                )
            on_epoch(metrics)

    def _epoch(self) -> Iterator[StepMetrics]:
        """Take the steps that are left of the epoch under way."""
        state, loader = self.state, self.loader
        storages = [head.storage for head in state.heads]
        order = [torch.from_numpy(index) for index in loader.order(state.epoch, state.epoch_step)]
        for storage in storages:
            storage.prefetch(order)
        images, began = 0, time.perf_counter()
        data_waited = loader.wait_seconds
        rows_waited = sum(storage.wait_seconds for storage in storages)
        for batch in loader.epoch(state.epoch, start=state.epoch_step):
            _add(state.sums, self.step(batch))
            images += len(batch.index) * self.fabric.world_size
            seconds = time.perf_counter() - began
            rows_wait = sum(storage.wait_seconds for storage in storages) - rows_waited
            yield StepMetrics(
                epoch=state.epoch,
                step=state.step,
                lr=float(state.rates[state.step - 1]),
                images=images,
                seconds=seconds,
                data_wait=(loader.wait_seconds - data_waited) / seconds,
                row_wait=rows_wait / seconds,
                sums=state.sums,
            )


def _add(sums: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    """Accumulate on the device: nothing here waits for it."""
    count = torch.ones(())
    for name, value in {"count": count, **values}.items():
        sums[name] = sums[name] + value if name in sums else value
