"""Encoders: x[B, C, H, W] in [0, 1] -> h[B, D]; of timm, torchvision and other weights."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
