"""Augmentations: x[B, C, H, W] -> V views of the same images, windows or sounds, drawn jointly.

Example:
    >>> import torch
    >>> from widefield.views import build_views
    >>> augmentation = build_views("expert")
    >>> first, second = augmentation(torch.rand(8, 3, 32, 32), 2)
    >>> first.shape
    torch.Size([8, 3, 32, 32])
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
