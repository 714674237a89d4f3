"""Weights in files: ours, timm's, torchvision's, those of other libraries."""
