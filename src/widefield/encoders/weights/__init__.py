"""Weights in files: ours, timm's, torchvision's, those of other libraries.

A name, a file or a folder that cannot be used raises a `ValueError` of one line with the remedy.
"""
