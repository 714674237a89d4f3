"""The device, the precision and the CPU threads of a step."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from widefield.core.cpus import available_cpus
from widefield.core.types import Precision


@dataclass(frozen=True)
class Compute:
    device: torch.device
    precision: Precision
    """Arithmetic of the forward pass; weights and gradients stay float32."""
    world: int = 1
    """Processes that take the step together; gradients are their means."""

    @property
    def is_mixed(self) -> bool:
        """Whether the forward pass computes in bfloat16."""
        return self.precision == "bf16-mixed"

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_mixed)

    def wrap(self, module: nn.Module) -> nn.Module:
        """Return `module` with gradients averaged over the processes."""
        if self.world == 1:
            return module
        return DistributedDataParallel(
            module,
            device_ids=None if self.device.type == "cpu" else [self.device],
            static_graph=True,  # else a layer that the loss does not reach is an error
        )

    def cast(self, views: list[Tensor]) -> list[Tensor]:
        """Return the views in the type that the forward pass computes in.

        Windows and waveforms stay float32: the encoder subtracts their mean, of any size, first.
        """
        is_cast = self.is_mixed and views[0].shape[2] > 1
        return [view.bfloat16() for view in views] if is_cast else views


def check_threads(threads: int | None) -> None:
    """Check that there are as many cores."""
    most = available_cpus()
    if threads is not None and not 1 <= threads <= most:
        raise ValueError(f"threads is {threads}; expected 1 to {most}, the cores of this process")


def default_threads() -> int:
    """Return the threads of torch, which OMP_NUM_THREADS sets, up to the cores of this process.

    The number can change the last bits of sums, so a run keeps the one that it began with.
    """
    return min(torch.get_num_threads(), available_cpus())
