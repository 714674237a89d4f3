"""Image atlases: many thumbnails in a few WebP files of limited size."""

import base64
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from widefield.report.figures import thumbnail

_SIDES = (96, 80, 64, 48, 40, 32, 28, 24, 20, 16, 14, 12, 10, 8, 6, 4)
"""Candidate lengths of the longer side of a tile, in pixels."""
_SHEET = 2048
"""Longest side of a sheet: phones do not display much larger images."""
# Chosen by hand.
_QUALITY = 60
_SAMPLE = 512
"""Number of tiles that are encoded to estimate the bytes of one."""


@dataclass(frozen=True, kw_only=True)
class Atlas:
    """Tiles of one size in row-major order, on one sheet after another."""

    width: int
    height: int
    """Size of a tile, in pixels."""
    columns: int
    rows: int
    """Rows of a full sheet."""
    sheets: Sequence[str]
    """WebP files in base64."""


def atlas(images: NDArray[np.uint8], rows: Sequence[int], *, budget: int) -> Atlas:
    """Draw the images `rows` of [n, H, W, C] as large as `budget` characters of base64 allow.

    A tile is never larger than its image. If no size fits, the smallest one is used.
    """
    spread = np.linspace(0, len(rows) - 1, min(_SAMPLE, len(rows))).round().astype(int)
    sample = [rows[i] for i in spread]
    largest = max(images.shape[1:3])
    # A sample comes first: to draw all images at each size would take long.
    for side in [min(largest, _SIDES[0]), *(s for s in _SIDES[1:] if s < largest)]:
        cost = sum(map(len, _draw(images, sample, side).sheets)) / len(sample)
        if cost * len(rows) > budget:
            continue
        result = _draw(images, rows, side)
        if sum(map(len, result.sheets)) <= budget:
            return result
    return _draw(images, rows, _SIDES[-1])


def _draw(images: NDArray[np.uint8], rows: Sequence[int], side: int) -> Atlas:
    height, width = thumbnail(images[rows[0]], side).shape[:2]
    columns = min(_SHEET // width, math.ceil(math.sqrt(len(rows))))
    full = min(_SHEET // height, math.ceil(len(rows) / columns))
    sheets = []
    for start in range(0, len(rows), columns * full):
        part = rows[start : start + columns * full]
        sheet = np.zeros((math.ceil(len(part) / columns) * height, columns * width, 3), np.uint8)
        for i, row in enumerate(part):
            top, left = i // columns * height, i % columns * width
            tile = thumbnail(images[row], side)
            sheet[top : top + height, left : left + width] = (
                tile if tile.ndim == 3 else tile[:, :, None]
            )
        buffer = io.BytesIO()
        Image.fromarray(sheet).save(buffer, format="WEBP", quality=_QUALITY, method=4)
        sheets.append(base64.b64encode(buffer.getvalue()).decode("ascii"))
    return Atlas(width=width, height=height, columns=columns, rows=full, sheets=sheets)
