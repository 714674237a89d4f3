"""A module on a device that no machine computes on, to see whether it is brought back."""

from typing import Any

import torch
from torch import Tensor, nn

HOME = torch.device("meta")


class Elsewhere(nn.Module):
    """Pixels as features; it stays where it is, and keeps where it was told to go."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("here", torch.empty(1, device=HOME))
        self.moves: list[torch.device] = []

    def to(self, device: Any) -> "Elsewhere":  # type: ignore[override]
        self.moves.append(torch.device(device))
        return self

    def cpu(self) -> "Elsewhere":
        return self.to("cpu")

    def forward(self, x: Tensor) -> Tensor:
        return x.flatten(1)

    def came_back(self) -> bool:
        """Whether it was moved, and back each time."""
        there, back = self.moves[::2], self.moves[1::2]
        return len(there) == len(back) > 0 and set(back) == {HOME}
