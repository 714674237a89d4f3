"""A grid of pictures with a title for each block of rows, as a PNG file."""

from collections.abc import Sequence
from io import BytesIO
from typing import Any

import numpy as np
from numpy.typing import NDArray

_INCH = 0.9
"""Side of a picture, inches."""


def contact_sheet(blocks: Sequence[tuple[str, Sequence[Sequence[NDArray[Any]]]]]) -> bytes:
    """Return a PNG of blocks, each a title and rows of pictures uint8 [h, w, C]."""
    from matplotlib.figure import Figure

    rows = [row for _, pictures in blocks for row in pictures]
    width, height = max(map(len, rows)), len(rows) + 0.5 * len(blocks)
    figure = Figure(figsize=(_INCH * width, _INCH * height))
    bottom = height
    for title, pictures in blocks:
        bottom -= 0.5
        figure.text(0.01, (bottom + 0.12) / height, title, fontsize=7, parse_math=False)
        for row in pictures:
            bottom -= 1
            for k, picture in enumerate(row):
                place = (k / width, bottom / height, 0.96 / width, 0.96 / height)
                axes = figure.add_axes(place)
                axes.imshow(np.squeeze(picture), cmap="gray", vmin=0, vmax=255)
                axes.set_axis_off()
    file = BytesIO()
    # Without the version of matplotlib: equal views give equal files.
    figure.savefig(file, format="png", dpi=120, facecolor="white", metadata={"Software": None})
    return file.getvalue()
