"""The version, below all rooms so that each may write it down."""

__version__ = "0.1.0"
