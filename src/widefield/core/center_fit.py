"""Geometry of resizing and cutting an image to a size: that of timm's `center` crop."""

from widefield.core.types import Size


def center_fit(before: Size, size: Size) -> tuple[Size, Size]:
    """Return (height, width) to resize an image to, and (top, left) of the cut of `size` in it.

    The shorter side fits. The other one is rounded down for squares, as by torchvision's `Resize`,
    and to the nearest for other sizes, as by timm's `ResizeKeepRatio`; the cut is that of
    torchvision's `CenterCrop`. So `timm.data.create_transform` does the same to each pixel.

    Example:
        >>> center_fit((128, 144), (64, 64))
        ((64, 72), (0, 4))
    """
    (height, width), (target_height, target_width) = before, size
    if target_height == target_width:
        short = min(before)
        resized = target_height * height // short, target_width * width // short
    else:
        ratio = min(height / target_height, width / target_width)
        resized = round(height / ratio), round(width / ratio)
    top, left = ((resized[k] - size[k]) / 2 for k in range(2))
    return resized, (round(top), round(left))


def cut_share(before: Size, size: Size) -> float:
    """Return the share of the area of an image that `center_fit` cuts off.

    Example:
        >>> cut_share((128, 256), (64, 64))
        0.5
    """
    (height, width), _ = center_fit(before, size)
    return 1 - size[0] * size[1] / (height * width)
