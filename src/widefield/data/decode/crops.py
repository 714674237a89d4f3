"""Random crops of an encoded image at full resolution, by the JPEG's own scaled decoding."""

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from widefield.core.types import Crop, Fit, Range, Size
from widefield.data.decode.images import load_oriented, open_image, oriented_size
from widefield.data.examples import Encoded

# As in torchvision's RandomResizedCrop.
_TRIES = 10
UNIFORMS = 4 * _TRIES
"""Uniform numbers that a random box takes."""

Box = tuple[float, float, float, float]
"""Top, left, height and width, pixels."""


def random_box(uniforms: Sequence[float], frame: Size, crop: Crop) -> Box:
    """Return a random crop of an image of size `frame`: the first valid one of ten, else a center.

    Area and aspect ratio are drawn as by torchvision's RandomResizedCrop, from 40 `uniforms`.
    """
    height, width = frame
    low, high = map(math.log, crop.ratio)
    for k in range(0, UNIFORMS, 4):
        u = uniforms[k : k + 4]
        area = height * width * (crop.scale[0] + (crop.scale[1] - crop.scale[0]) * u[0])
        ratio = math.exp(low + (high - low) * u[1])
        h, w = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < h <= height and 0 < w <= width:
            return int(u[2] * (height - h + 1)), int(u[3] * (width - w + 1)), h, w
    h, w = min(height, round(width / crop.ratio[0])), min(width, round(height * crop.ratio[1]))
    return (height - h) // 2, (width - w) // 2, h, w


def frame_of(image: Size, size: Size, fit: Fit) -> Size:
    """Return the size at full resolution of what crops are taken of.

    This is the image, or what it is padded or squashed to, which has the shape of `size`.
    """
    if fit == "crop":
        return image
    scale = max(image[0] / size[0], image[1] / size[1])
    return round(size[0] * scale), round(size[1] * scale)


def decode_crops(
    file: Encoded,
    out: NDArray[np.uint8],
    boxes_in: Callable[[Size], Sequence[Box]],
    black_white: Range | None = None,
    fit: Fit = "crop",
) -> None:
    """Decode an image, and write its crops `boxes_in(frame)`, resized, into `out` [V, H, W, 3].

    A JPEG is decoded at 1/2, 1/4 or 1/8 of its size if all crops are larger than `size` then.
    Resizing is bilinear, with antialiasing. A damaged file raises the error of its decoder.
    """
    size: Size = (out.shape[1], out.shape[2])
    with open_image(file) as image:
        whole = oriented_size(image)
        frame = frame_of(whole, size, fit)
        boxes = boxes_in(frame)
        if image.format in ("JPEG", "MPO"):
            seen = (1.0, 1.0) if fit == "pad" else (whole[0] / frame[0], whole[1] / frame[1])
            scale = int(min(b[2 + k] * seen[k] / size[k] for b in boxes for k in (0, 1)))
            if scale > 1:  # libjpeg has the factors 2, 4 and 8, and takes the next smaller one
                image.draft(None, (image.width // scale, image.height // scale))
        oriented = load_oriented(image, file, black_white)
    assert oriented is not None, "black and white are known once the data are open"
    rgb = _padded(oriented.rgb, size) if fit == "pad" else oriented.rgb
    y, x = rgb.height / frame[0], rgb.width / frame[1]
    target = torch.from_numpy(out)
    for view, (top, left, height, width) in enumerate(boxes):
        first, start = int(top * y), int(left * x)
        last = max(first + 1, round((top + height) * y))
        end = max(start + 1, round((left + width) * x))
        _resize(rgb.crop((start, first, end, last)), target[view])


def _resize(image: Image.Image, out: Tensor) -> None:
    """Resize an RGB image into `out`, uint8 [h, w, 3]; torch is three times as fast as Pillow."""
    x = torch.from_numpy(np.array(image)).permute(2, 0, 1)[None]
    # Not `interpolate`, which has no `out` and would allocate and copy.
    size, y = out.shape[:2], out.permute(2, 0, 1)[None]
    torch.ops.aten._upsample_bilinear2d_aa.out(x, size, False, out=y)


def _padded(image: Image.Image, size: Size) -> Image.Image:
    height, width = frame_of((image.height, image.width), size, "pad")
    top, left = (image.height - height) // 2, (image.width - width) // 2
    return image.crop((left, top, left + width, top + height))
