"""Data: a source -> decoded examples in a stable order -> batches on the device."""

import lazy_loader

# A data spec is checked without importing torch.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
