"""Color profiles of image files: conversion to sRGB, by littleCMS.

A profile describes the colors that the numbers of an image stand for. The pixels of an image with
another profile than sRGB, such as Adobe RGB, Display P3, a gray one or one of inks, are converted
to sRGB by relative colorimetric rendering with black point compensation.
"""

from contextlib import suppress
from functools import lru_cache
from io import BytesIO

import numpy as np
from PIL import Image, ImageCms

# Chosen by hand: profiles named sRGB differ by rounding of their curves, others by more.
_EQUAL = 3
"""Largest change of a color, of 255, by a profile that counts as sRGB: programs round its curve."""
# 18 levels of each channel with both ends: 15 divides 255.
_GRID = np.stack(np.meshgrid(*[np.arange(0, 256, 15)] * 3, indexing="ij"), -1).astype(np.uint8)
"""Colors in which a profile is compared with sRGB."""


def to_srgb(image: Image.Image, profile: bytes) -> Image.Image | None:
    """Return an image of 8 bits with a color profile as sRGB.

    Returns:
        The image itself if its profile is sRGB, None if it is damaged or for other colors.
    """
    modes = ["CMYK" if image.mode == "CMYK" else "RGB"]
    if image.mode in ("1", "L", "LA"):
        modes = ["L", "RGB"]  # programs that turn an image gray may leave its profile
    for mode in modes:
        with suppress(OSError, ValueError):
            transform = _transform(profile, mode)
            return image if transform is None else _transformed(image, mode, transform)
    return None


def _transformed(
    image: Image.Image, mode: str, transform: ImageCms.ImageCmsTransform
) -> Image.Image:
    """Return an image, transformed as one of `mode`, with its opacity."""
    alpha = image.convert("RGBA").getchannel("A") if image.has_transparency_data else None
    # Through RGBA, which resolves palettes and transparent colors.
    colors = image if image.mode == mode else image.convert("RGBA").convert("RGB").convert(mode)
    result = transform.apply(colors)
    if alpha is not None:
        result.putalpha(alpha)
    return result


@lru_cache(maxsize=32)
def _transform(profile: bytes, mode: str) -> ImageCms.ImageCmsTransform | None:
    """Return the transform of a profile to sRGB, or None if it is sRGB."""
    # Threads share a transform, and its cache holds one pixel. Optimized gray curves are coarse.
    flags = ImageCms.Flags.BLACKPOINTCOMPENSATION | ImageCms.Flags.NOCACHE
    flags |= ImageCms.Flags.NOOPTIMIZE if mode == "L" else ImageCms.Flags.NONE
    transform = ImageCms.ImageCmsTransform(
        ImageCms.ImageCmsProfile(BytesIO(profile)),
        ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")),
        mode,
        "RGB",
        ImageCms.Intent.RELATIVE_COLORIMETRIC,
        flags=flags,
    )
    if mode == "CMYK":
        return transform
    grid = Image.fromarray(_GRID.reshape(1, -1, 3))
    before = grid.convert(mode)
    change = np.asarray(before.convert("RGB"), int) - np.asarray(transform.apply(before), int)
    return None if np.abs(change).max() <= _EQUAL else transform
