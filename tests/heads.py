"""A per-example head whose rows get the gradients that a test gives."""

from torch import Tensor

from widefield.head import PerExampleHead, Storage


def head_of(storage: Storage) -> PerExampleHead:
    """Return a head on `storage` whose gradient is the features that it is called with."""
    return PerExampleHead(
        storage.n,
        storage.dim,
        loss=lambda z, rows: (z * rows).sum(),
        normalize=False,
        init="random",
        storage=storage,
    )


def visit(head: PerExampleHead, index: Tensor, gradient: Tensor, *, lr: float) -> None:
    """Let the optimizer of `head_of` take a step of the rows `index` [b] with `gradient` [b, m]."""
    head(gradient, index).backward()
    miss_step(head, lr=lr)


def miss_step(head: PerExampleHead, *, lr: float) -> None:
    """Let the optimizer take a step; without a gradient all rows miss it."""
    assert head.optimizer is not None
    head.optimizer.param_groups[0]["lr"] = lr
    head.optimizer.step()
