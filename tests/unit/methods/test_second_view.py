"""The second view of view-contrast: rows start by it, and it gets no gradient."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from small_run import small_facts, small_recipe
from widefield.head import PerExampleHead
from widefield.train.build import build
from widefield.train.state import TrainState

CPU = torch.device("cpu")


def built(**settings: Any) -> TrainState:
    recipe = small_recipe("view-contrast", batch_size=6, precision="32", **settings)
    return build(recipe, small_facts(), device=CPU)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


def middle(z: Tensor, second: Tensor) -> Tensor:
    """The direction between two."""
    return F.normalize(F.normalize(z, dim=1) + F.normalize(second, dim=1), dim=1)


def test_a_row_starts_between_both_views() -> None:
    z, second = draw(4, 8) - 0.5, draw(4, 8, seed=1) - 0.5
    head = PerExampleHead(9, 8, loss=lambda z, rows, second: rows)
    torch.testing.assert_close(head(z, torch.arange(4), second), middle(z, second))


def test_no_gradient_goes_through_it() -> None:
    """The gradient is that of a loss in which the second view's features are constants."""
    state = built(projector_batch_norm=False)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(48, state.encoder.dim))  # type: ignore[arg-type]
    views = [draw(6, 3, 4, 4, seed=s) for s in (0, 1)]
    state.method(encoder, views, torch.arange(6)).total.backward()
    found = encoder[1].weight.grad.clone()

    encoder.zero_grad()
    project = state.method.projection_head()
    assert project is not None
    z, second = (project(encoder(view)) for view in views)
    rows, second = middle(z, second).detach(), F.normalize(second.detach(), dim=1)
    state.heads[0].compare(F.normalize(z, dim=1), rows, second).backward()
    torch.testing.assert_close(encoder[1].weight.grad, found)
    assert found.abs().max() > 0
