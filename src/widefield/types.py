"""The nouns that rooms exchange.

Shapes: B batch, C channels, H height, W width, D features, n examples.
"""

from dataclasses import dataclass, field

from torch import Tensor


@dataclass(slots=True)
class Batch:
    """One batch of examples on the device; not frozen, so that other loops can move it."""

    x: Tensor
    """Images in [0, 1], float [B, C, H, W]."""
    index: Tensor
    """Which examples these are, int64 [B] in host memory; the same for the whole run."""
    labels: dict[str, Tensor] = field(default_factory=dict)
    """Class ids of each task, int64 [B]."""


@dataclass(frozen=True, slots=True)
class Loss:
    """What a method returns: the number to minimise and its named parts for the log."""

    total: Tensor
    """Scalar to call backward on."""
    parts: dict[str, Tensor] = field(default_factory=dict)
    """Detached scalars that explain the total."""


@dataclass(frozen=True, slots=True)
class Score:
    """How well one task can be read off frozen features."""

    task: str
    accuracy: float
    """Share of test examples that the linear probe classifies correctly, in [0, 1]."""
    low: float
    """Lower end of the 95 % interval of `accuracy`."""
    high: float
    """Upper end of the 95 % interval of `accuracy`."""
    knn: float
    """Accuracy of the k-nearest-neighbour vote on the same features."""
    l2: float
    """The L2 strength that the validation split chose."""
    classes: int
    train_examples: int
    test_examples: int
