"""The device and precision of a step."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from widefield.core.types import Precision


@dataclass(frozen=True)
class Compute:
    """The device and precision of a step.

    Args:
        device: of weights and batches.
        precision: arithmetic of the forward pass; weights and gradients stay float32.
        world: processes that take the step together; gradients are their means.
    """

    device: torch.device
    precision: Precision
    world: int = 1

    @property
    def is_mixed(self) -> bool:
        """Whether the forward pass computes in bfloat16."""
        return self.precision == "bf16-mixed"

    def autocast(self) -> torch.autocast:
        """Context of a forward pass."""
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.is_mixed)

    def wrap(self, module: nn.Module) -> nn.Module:
        """Return `module` with gradients averaged over the processes."""
        if self.world == 1:
            return module
        return DistributedDataParallel(
            module, device_ids=None if self.device.type == "cpu" else [self.device]
        )

    def cast(self, views: list[Tensor]) -> list[Tensor]:
        """Return the views in the type that the forward pass computes in."""
        return [view.bfloat16() for view in views] if self.is_mixed else views
