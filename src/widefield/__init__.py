"""Self-supervised learning that keeps the whole field of features in view."""

__version__ = "0.1.0"
