"""What a view policy may ask of a run: the planted object's mask, and the slope of the loss.

Whoever asks the loss without training the encoder, views that learn or views that attack, leaves
encoder and method as they were: neither running statistics, queues, rows nor gradients move.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import numpy as np
import torch
from torch import Tensor, nn

from widefield.data import Dataset
from widefield.methods import Method
from widefield.methods.supervised import Supervised
from widefield.recipe import Recipe
from widefield.types import Batch
from widefield.views import Scene, Views


def build_opponent(views: Views, recipe: Recipe) -> torch.optim.Adam | None:
    """Adam over the parameters of `views`; None where they have none.

    Source: Feature Dropout (Tamkin et al. 2022), who keep its learning rate constant.
    """
    learned = list(views.parameters())
    return torch.optim.Adam(learned, lr=recipe.opponent_lr, fused=True) if learned else None


def opponent_facts(opponent: torch.optim.Adam | None) -> dict[str, float | str]:
    """What a log says of `opponent` beside its loss: its kind, steps so far and learning rate."""
    if opponent is None:
        return {}
    (group,) = opponent.param_groups
    return {
        "opponent_optimizer": type(opponent).__name__.lower(),
        "opponent_step": float(opponent.state[group["params"][0]]["step"]),
        "opponent_lr": group["lr"],
    }


def refuse_misfit(recipe: Recipe, views: Views, method: type[Method], dataset: Dataset) -> None:
    """Refuse views that cannot do for this method, or on this data, what they are there for.

    Raises:
        ValueError: in one line, why not, and what to do.
    """
    if views.come_in_pairs and method.view_count < 2:
        raise ValueError(
            f"views {recipe.views!r} are two halves of an image, and {recipe.method} takes one "
            "view of each: choose a method that compares two, such as simclr, or other views"
        )
    if issubclass(method, Supervised) and dataset.plain is not None:
        raise ValueError(
            f"{recipe.method} tells each example its labels, and in {dataset.spec!r} those of what "
            "is planted change at each read: plant it without ':fresh'"
        )
    if views.needs_mask and not dataset.masks(np.zeros(1, dtype=np.int64)).any():
        raise ValueError(
            f"views {recipe.views!r} go by where an object is planted, and there is none in "
            f"{dataset.spec!r}: plant one, as in 'photos+digits', or choose other views"
        )


@contextmanager
def undisturbed(objective: nn.Module) -> Iterator[None]:
    """Inside, `objective` gives its loss and no gradient reaches it; its buffers are put back.

    Example:
        >>> norm = nn.BatchNorm1d(2)
        >>> with undisturbed(norm):
        ...     norm(torch.rand(4, 2)).requires_grad
        False
        >>> norm.running_mean, norm.weight.requires_grad
        (tensor([0., 0.]), True)
    """
    trained = [p for p in objective.parameters() if p.requires_grad]
    before = [(buffer, buffer.clone()) for buffer in objective.buffers()]
    for p in trained:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in trained:
            p.requires_grad_(True)
        # Only now: a graph that still needed a buffer would not survive this.
        for buffer, value in before:
            buffer.detach().copy_(value)


def scene(
    objective: nn.Module, batch: Batch, autocast: Callable[[], AbstractContextManager[None]]
) -> Scene:
    """What views of `batch` may need: its mask, and the slope of `objective`'s loss."""

    def gradients(at: list[Tensor]) -> list[Tensor]:
        leaves = [view.detach().requires_grad_() for view in at]
        with torch.enable_grad(), undisturbed(objective):
            with autocast():
                total, _ = objective(leaves, batch.index)
            # MoCo's teacher alone sees the second view: no gradient comes back to that one.
            return list(torch.autograd.grad(total, leaves, materialize_grads=True))

    return Scene(mask=batch.mask, gradients=gradients)
