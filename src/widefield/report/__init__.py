"""Scores and images of a run or an audit -> one self-contained HTML file."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
