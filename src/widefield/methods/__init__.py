"""Every objective: a module that turns views of a batch into a loss, and its settings.

`SimCLR(encoder_dim)` and every other class work in any training loop:

Example:
    >>> import torch
    >>> from widefield import methods, views
    >>> torch.manual_seed(0).initial_seed()
    0
    >>> images = torch.rand(64, 3, 32, 32)
    >>> encoder = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, 64))
    >>> method = methods.SimCLR(encoder_dim=64, temperature=0.2)
    >>> draw_views = views.build_views("expert")
    >>> parameters = [*encoder.parameters(), *method.parameters()]
    >>> optimizer = torch.optim.AdamW(parameters, lr=1e-3)
    >>> for index in torch.randperm(64).split(16):
    ...     loss = method(encoder, draw_views(images[index], method.view_count), index).total
    ...     loss.backward()
    ...     optimizer.step()
    ...     optimizer.zero_grad()
    ...     method.after_step()
    >>> bool(loss.isfinite())
    True

The rows of a per-example head, as of `RowContrast`, `SDiet` and `ViewContrast`, are no parameters:
they have an optimizer of their own, which takes a step in the loop too.

Example:
    >>> method = methods.RowContrast(encoder_dim=64, examples=64)
    >>> optimizer = torch.optim.AdamW([*encoder.parameters(), *method.parameters()], lr=1e-3)
    >>> for index in torch.randperm(64).split(16):
    ...     loss = method(encoder, draw_views(images[index], method.view_count), index).total
    ...     loss.backward()
    ...     optimizer.step()
    ...     method.head.optimizer.step()
    ...     optimizer.zero_grad()
    >>> bool(loss.isfinite())
    True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from widefield.methods.registry import *  # noqa: F403

else:  # so that one method, or the base of all, can be imported without the others

    def __getattr__(name: str) -> Any:
        registry = import_module("widefield.methods.registry")
        if name == "__all__":
            return __dir__()
        if name.startswith("_") or not hasattr(registry, name):
            raise AttributeError(f"module 'widefield.methods' has no attribute {name!r}")
        return getattr(registry, name)

    def __dir__() -> list[str]:
        registry = import_module("widefield.methods.registry")
        return sorted(name for name in vars(registry) if not name.startswith("_"))
