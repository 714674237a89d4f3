"""Two processes get the loss and the gradient of one process with the batch of both."""

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from two_processes import in_two_processes
from widefield.methods.gather import gather, rank_and_world

BATCH, DIM = 3, 4


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


def check_rank(rank: int) -> None:
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


def test_loss_and_gradient_equal_those_of_one_process() -> None:
    in_two_processes(check_rank)


def test_one_process_gathers_itself() -> None:
    x = torch.ones(2)
    assert gather(x) is x
    assert rank_and_world() == (0, 1)
