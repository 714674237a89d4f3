"""The contract of every objective."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch
from torch import Tensor, nn

from widefield.recipe import Recipe
from widefield.types import WHOLE, Loss, Shard


@dataclass(frozen=True, kw_only=True, slots=True)
class RunFacts:
    """What a recipe cannot know before the data and the encoder are there."""

    encoder: nn.Module
    """The encoder to train, as it starts."""
    feature_dim: int
    """D, the encoder's output width."""
    examples: int
    """n."""
    labels: dict[str, Tensor]
    """Class ids of every example, task -> int64 [n]; empty without labels."""
    learning_rates: Tensor
    """Of steps 1..T, float64 [T]."""
    device: torch.device
    """Where the encoder is trained."""
    folder: Path | None = None
    """Where a method may keep files of its own for the run; None without a run."""
    shard: Shard = WHOLE
    """Which examples this process trains on."""


class Method(nn.Module, ABC):
    """One objective: turns views of a batch into a loss on the encoder.

    A method is a plain module: its parameters (a projector, say) are trained beside the
    encoder's, and it works in anybody's loop. Subclasses are final.
    """

    view_count: int
    """How many views of each example a step needs: 1 for DIET and S-DIET, 2 for pair losses."""

    @classmethod
    @abstractmethod
    def from_recipe(cls, recipe: Recipe, facts: RunFacts) -> Self:
        """The method as a run of `recipe` uses it."""

    @abstractmethod
    def loss(self, encoder: nn.Module, views: list[Tensor], index: Tensor) -> Loss:
        """Loss of `views` (each [B, C, H, W]) of the examples `index` (int64 [B], on the host)."""

    def head_parameters(self) -> list[nn.Parameter]:
        """Parameters that learn at the head's own rate; none unless the head is dense."""
        return []

    def after_step(self, encoder: nn.Module, step: int, lr: float) -> None:
        """Called once after optimiser step `step` (1, 2, ...) taken at learning rate `lr`."""

    @property
    def wait_seconds(self) -> float:
        """Time that steps have waited for files of the method's own."""
        return 0.0

    def expect(self, batches: Iterable[Tensor]) -> None:
        """Called before an epoch, or the rest of one, with the `index` of each batch to come."""

    def after_checkpoint(self) -> None:
        """Called once a checkpoint with this method's state is saved."""

    def close(self) -> None:
        """Called when the run ends, however it ends; lets go of files and threads."""
