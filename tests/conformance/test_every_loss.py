"""What every loss of two views must do; a new method is tested without adding a line here."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from small_run import small_facts, small_recipe
from widefield import losses
from widefield.methods import METHODS, PairLoss
from widefield.methods.pair import PairConfig
from widefield.train.build import build

Loss = Callable[[Tensor, Tensor], Tensor]


def pair_loss(name: str) -> Loss:
    state = build(small_recipe(name), small_facts(), device=torch.device("cpu"))
    assert isinstance(state.method, PairLoss)
    return state.method.compare


PAIR_LOSSES = [name for name, config in METHODS.items() if issubclass(config, PairConfig)]
every_loss = pytest.mark.parametrize("name", PAIR_LOSSES)


def views(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    z1, z2 = torch.randn(2, 8, 4, generator=generator, dtype=torch.float64)
    return z1.to(dtype), (z1 + 0.5 * z2).to(dtype)


@every_loss
def test_it_is_computed_in_full_precision_and_keeps_it(name: str) -> None:
    """float64 stays float64; bfloat16 under autocast is as exact as float32."""
    assert pair_loss(name)(*views()).dtype == torch.float64
    half = views(torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        result = pair_loss(name)(*half)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result, pair_loss(name)(*(z.float() for z in half)))


@every_loss
def test_it_does_not_see_the_order_of_the_batch(name: str) -> None:
    z1, z2 = views()
    order = torch.randperm(8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(pair_loss(name)(z1[order], z2[order]), pair_loss(name)(z1, z2))


@every_loss
@pytest.mark.parametrize("rows", [[0], [2, 5], list(range(8))])
def test_zero_rows_give_finite_values_and_gradients(name: str, rows: list[int]) -> None:
    z1, z2 = (z.clone() for z in views())
    z1[rows], z2[rows] = 0, 0
    z1.requires_grad_()
    z2.requires_grad_()
    loss = pair_loss(name)(z1, z2)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(z1.grad).all()
    assert torch.isfinite(z2.grad).all()


@every_loss
def test_agreeing_views_are_better_than_shuffled_ones(name: str) -> None:
    z1, _ = views()
    compare = pair_loss(name)
    assert compare(z1, z1) < compare(z1, z1.roll(1, 0))


def test_losses_take_keywords() -> None:
    z1, z2 = views()
    by_position = losses.nt_xent(z1, z2, temperature=0.1)
    assert torch.equal(losses.nt_xent(z1=z1, z2=z2, temperature=0.1), by_position)
    assert torch.equal(
        losses.decoupled_contrast(rows=z2, z=z1, scale=2.0),
        losses.decoupled_contrast(z1, z2, scale=2.0),
    )


@pytest.mark.parametrize("name", losses.__all__)
def test_every_exported_loss_says_where_it_is_from(name: str) -> None:
    text = getattr(losses, name).__doc__
    assert "Source:" in text
    assert text.startswith("Return")
