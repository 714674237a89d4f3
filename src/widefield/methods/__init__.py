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

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
