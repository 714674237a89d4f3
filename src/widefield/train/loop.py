"""The training loop: epochs of steps, with callbacks after each step and each epoch."""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from widefield.core.errors import option
from widefield.train.compute import Compute
from widefield.train.state import TrainState
from widefield.train.step import StepMetrics, TrainStep

if TYPE_CHECKING:
    from widefield.data import Loader

OnStep = Callable[[StepMetrics], None]


class Trainer:
    """Trains a state, in place, on the batches of a loader."""

    def __init__(self, state: TrainState, *, compute: Compute, loader: "Loader") -> None:
        self.state, self.compute, self.loader = state, compute, loader
        self.step = TrainStep(state, compute=compute)

    def fit(self, epochs: int, *, on_step: OnStep, on_epoch: OnStep) -> None:
        state = self.state
        while state.epoch < epochs:
            for metrics in self._epoch():
                on_step(metrics)
            state.epoch, state.epoch_step, state.sums = state.epoch + 1, 0, {}
            # Once an epoch, because the value waits for the device.
            loss = metrics.means()["loss"]
            if not math.isfinite(loss):
                raise ValueError(
                    f"the loss is {loss} after epoch {state.epoch}: lower lr or use "
                    f"{option('precision', 32)}, and start again with another {option('out')}"
                )
            on_epoch(replace(metrics, epoch=state.epoch))

    def _epoch(self) -> Iterator[StepMetrics]:
        state, loader = self.state, self.loader
        heads = [head.storage for head in state.heads]
        order = [torch.from_numpy(index) for index in loader.order(state.epoch, state.epoch_step)]
        for storage in heads:
            storage.prefetch(order)
        images, start_time = 0, time.perf_counter()
        data_wait_start = loader.wait_seconds
        row_wait_start = sum(storage.wait_seconds for storage in heads)
        for batch in loader.epoch(state.epoch, start=state.epoch_step):
            _add(state.sums, self.step(batch))
            images += len(batch.index) * self.compute.world
            seconds = time.perf_counter() - start_time
            rows_wait = sum(storage.wait_seconds for storage in heads) - row_wait_start
            yield StepMetrics(
                epoch=state.epoch,
                step=state.step,
                lr=float(state.rates[state.step - 1]),
                images=images,
                seconds=seconds,
                data_wait=(loader.wait_seconds - data_wait_start) / seconds,
                row_wait=rows_wait / seconds,
                sums=state.sums,
            )


def _add(sums: dict[str, Tensor], values: dict[str, Tensor]) -> None:
    """Accumulate on the device, without waiting for it."""
    count = torch.ones(())
    for name, value in {"count": count, **values}.items():
        sums[name] = sums[name] + value if name in sums else value
