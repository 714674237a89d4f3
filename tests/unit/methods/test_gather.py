"""Two processes get the loss and the gradient of one process with the batch of both."""

from typing import Any
from unittest import mock

import torch
from torch import Tensor, distributed, nn
from torch.nn.parallel import DistributedDataParallel

from ranks import in_processes
from small_run import small_facts, small_recipe
from widefield.core.gather import gather, rank_and_world
from widefield.core.types import WHOLE, Shard
from widefield.methods import METHODS
from widefield.train.build import build
from widefield.train.state import TrainState
from widefield.train.step import set_learning_rate

BATCH, DIM, STEPS = 3, 4, 2


def batch_of(rank: int) -> tuple[Tensor, Tensor]:
    """Inputs and rows of one rank."""
    generator = torch.Generator().manual_seed(rank)
    x, rows = (torch.randn(BATCH, DIM, generator=generator).double() for _ in range(2))
    return x, rows


def model() -> nn.Linear:
    linear = nn.Linear(DIM, DIM, bias=False).double()
    nn.init.constant_(linear.weight, 0.1)
    linear.weight.data += torch.diag(torch.arange(DIM).double())
    return linear


def pair_loss(z: Tensor, rows: Tensor) -> Tensor:
    """Each example against all others: no sum over ranks of losses of their own."""
    return torch.logsumexp(z @ rows.T, dim=1).mean() + (z.square().mean() - 1) ** 2


def one_process() -> tuple[Tensor, Tensor, Tensor]:
    linear, (x, rows) = model(), map(torch.cat, zip(batch_of(0), batch_of(1), strict=True))
    rows.requires_grad_()
    loss = pair_loss(linear(x), rows)
    loss.backward()
    assert linear.weight.grad is not None
    assert rows.grad is not None
    return loss.detach(), linear.weight.grad, rows.grad


def check_plain(rank: int) -> None:
    assert rank_and_world() == (rank, 2)
    x, rows = batch_of(rank)
    both = gather(x.T.contiguous().T)  # a transposed memory layout arrives in order, too
    assert torch.equal(both, torch.cat([batch_of(0)[0], batch_of(1)[0]]))
    linear = DistributedDataParallel(model())
    rows.requires_grad_()
    loss = pair_loss(gather(linear(x)), gather(rows))
    loss.backward()
    value, grad, rows_grad = one_process()
    assert rows.grad is not None
    torch.testing.assert_close(loss.detach(), value)
    torch.testing.assert_close(linear.module.weight.grad, grad)
    torch.testing.assert_close(rows.grad / 2, rows_grad[rank * BATCH : (rank + 1) * BATCH])


def small_state(method: str, shard: Shard, *, gathered: bool) -> TrainState:
    """A method without batch normalization, whose statistics are each rank's own."""
    recipe = small_recipe(
        method,
        projector_batch_norm=False,
        projector_width=8,
        projector_dim=DIM,
        predictor_width=8,
        head_init="random",
        gather_distributed=gathered,
        batch_size=2 * BATCH,
    )
    facts = small_facts(STEPS * 2 * BATCH)
    # No image goes through it, so that its width is what it makes of the inputs.
    encoder = Linear(model().float())
    return build(recipe, facts, device=torch.device("cpu"), encoder=encoder, shard=shard)


class Linear(nn.Module):
    """A linear encoder of vectors; for a picture it answers with as many zeros."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        return x.new_zeros(len(x), DIM) if x.ndim == 4 else self.linear(x)


def take_steps(
    trained: nn.Module, state: TrainState, ranks: list[int]
) -> tuple[Tensor, dict[str, Any]]:
    """Losses of the batches of `ranks`, the last gradients, and first moments of the rows.

    The encoder stands still between the steps; queues and rows do not.
    """
    losses = []
    for step in range(STEPS):
        trained.zero_grad()
        views = [
            torch.cat([batch_of(r + 2 * v + 4 * step)[0].float() for r in ranks])
            for v in range(state.method.view_count)
        ]
        index = torch.cat([torch.arange(r, 2 * BATCH, 2) for r in ranks]) + 2 * BATCH * step
        loss, _ = trained(views, index)
        loss.backward()
        for optimizer in state.head_optimizers:
            set_learning_rate(optimizer, 0.1)
            optimizer.step()
        state.method.after_step()
        losses.append(loss.detach())
    result = {name: p.grad for name, p in state.model.named_parameters() if p.requires_grad}
    for head in state.heads:
        result["rows"] = head.storage.read(index).m
    return torch.stack(losses), result


def check_method(rank: int, method: str) -> None:
    """The run's loss is the mean of the ranks' own, each the whole where the loss is gathered."""
    ours = small_state(method, Shard(rank, 2), gathered=True)
    losses, found = take_steps(DistributedDataParallel(ours.model), ours, [rank])
    distributed.all_reduce(losses)
    alone = small_state(method, WHOLE, gathered=False)
    with mock.patch("widefield.core.gather.rank_and_world", return_value=(0, 1)):
        values, expected = take_steps(alone.model, alone, [0, 1])
    torch.testing.assert_close(losses / 2, values, msg=lambda m: f"{method}: {m}")
    assert found.keys() == expected.keys()
    if "rows" in expected:
        expected["rows"] = expected["rows"][rank * BATCH : (rank + 1) * BATCH]
    for name, gradient in found.items():
        what = f"{method}, {name}"
        torch.testing.assert_close(gradient, expected[name], msg=lambda m, w=what: f"{w}: {m}")
        assert gradient.abs().max() > 0, what


def check_all(rank: int) -> None:
    check_plain(rank)
    for method in METHODS:
        check_method(rank, method)


def test_loss_and_gradient_equal_those_of_one_process() -> None:
    in_processes(2, check_all)


def test_one_process_gathers_itself() -> None:
    x = torch.ones(2)
    assert gather(x) is x
    assert rank_and_world() == (0, 1)
