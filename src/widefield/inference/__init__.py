"""Frozen encoders: open one, compute its features, split the data.

An encoder and data that do not fit together, or cannot be opened, raise a `ValueError` of one line
with the remedy.
"""
