"""Frozen encoders: open one, compute its features, split the data."""
