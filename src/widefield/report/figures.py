"""Figures as text for a page: inline SVG and PNG in base64.

An inline SVG takes its colors from the page, `currentColor` for text and axes and `var(--accent)`
etc. for data, so that one figure suits light and dark pages.
"""

import base64
import io
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

from widefield.core.pixels import to_bytes
from widefield.report.parts import SERIES, Lines, Sound

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIDE = 96
"""Longest side of a thumbnail, in pixels."""
_INK = "#010203"
"""Placeholder for the text color of the page."""
_MARKERS = ("o", "s", "^", "D")
# Chosen by hand: more markers would hide the curve.
_MAX_MARKERS = 12
"""Curves of at most this many points get a marker at each."""


def chart(lines: Lines, *, prefix: str) -> str:
    """Draw curves as an `<svg>`; the page has the legend.

    `prefix` makes the ids of the figure unique on the page. Every string is escaped.
    """
    series = lines.series
    with _canvas(prefix) as (figure, axes):
        for color, marker, (x, y) in zip(SERIES, _MARKERS, series.values(), strict=False):
            axes.plot(
                x,
                y,
                color=color,
                linewidth=1.8,
                marker=marker if len(x) <= _MAX_MARKERS else "",
                markersize=5,
            )
        axes.set_xlabel(lines.x_label, parse_math=False)
        axes.set_ylabel(lines.y_label, parse_math=False)
        if lines.log_scale:
            axes.set_xscale("log")
            axes.set_yscale("log")
        elif all(float(value).is_integer() for x, _ in series.values() for value in x):
            axes.locator_params(axis="x", integer=True)
        first, last = (end(value for x, _ in series.values() for value in x) for end in (min, max))
        if first < last:  # NaN at an end would shorten the axis otherwise
            edge = 0 if lines.log_scale else 0.02 * (last - first)
            axes.set_xlim(first - edge, last + edge)
        else:
            axes.set_xticks([first])
        if lines.y_range is not None:
            low, high = lines.y_range
            if high is None:  # a margin above the highest curve
                high = low + 1.1 * (max(axes.get_ylim()[1], low) - low)
            axes.set_ylim(low, high)
        return _svg(figure, prefix)


def spectrogram(sound: Sound, *, prefix: str) -> str:
    """Draw the spectrogram of a sound, time in seconds and frequency in Hz, as an `<svg>`."""
    with _canvas(prefix) as (figure, axes):
        bands = len(sound.hertz)
        axes.imshow(
            sound.spectrogram,
            origin="lower",
            aspect="auto",
            cmap="magma",
            vmin=0,
            vmax=1,
            extent=(0, sound.seconds, -0.5, bands - 0.5),
        )
        axes.grid(visible=False)
        ticks = [tick for tick in _FREQUENCIES if sound.hertz[0] <= tick <= sound.hertz[-1]]
        axes.set_yticks(np.interp(ticks, sound.hertz, np.arange(bands)), [f"{m:,}" for m in ticks])
        axes.set_xlabel("seconds")
        axes.set_ylabel("Hz")
        axes.margins(0)
        return _svg(figure, prefix)


_FREQUENCIES = (250, 500, 1_000, 2_000, 4_000, 8_000, 16_000)


@contextmanager
def _canvas(prefix: str) -> Iterator[tuple["Figure", "Axes"]]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(
        {
            "svg.fonttype": "none",  # text stays text, in the font of the page
            "svg.hashsalt": prefix,
            "font.size": 10,
            "text.color": _INK,
            "axes.edgecolor": _INK,
            "axes.labelcolor": _INK,
            "xtick.color": _INK,
            "ytick.color": _INK,
        }
    ):
        figure = Figure(figsize=(4.2, 2.4))
        # Margins that fit the labels of every figure: to compute them takes as long as to draw.
        axes = figure.add_axes((0.17, 0.2, 0.81, 0.71))
        # Of smaller and larger numbers, the power of ten is written once, above the axis.
        axes.ticklabel_format(axis="y", scilimits=(-3, 4))
        axes.grid(axis="y", color=_INK, alpha=0.15, linewidth=0.8)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(length=0)
        axes.margins(x=0.02)
        yield figure, axes


def _svg(figure: "Figure", prefix: str) -> str:
    """Return an SVG without preamble, metadata and size, in the page's colors, with own ids."""
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg (.*?)width="[^"]*"(.*?)height="[^"]*"', r"<svg \1\2", svg, count=1)
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r"""(url\(|href=")#""", rf"\g<1>#{prefix}", svg)
    for placeholder, color in {_INK: "currentColor", **SERIES}.items():
        svg = svg.replace(placeholder, color)
    return svg


def thumbnail(image: np.ndarray, side: int = _SIDE) -> np.ndarray:
    """Shrink a stored image [H, W, C] to uint8 [h, w, 3], no side longer than `side`.

    The first three channels are used, or the first of one or two, in gray: [h, w].
    """
    image = to_bytes(image[:, :, :3] if image.shape[2] >= 3 else image[:, :, 0])
    resized = Image.fromarray(image)
    resized.thumbnail((side, side))
    return np.asarray(resized)


def png(image: np.ndarray, side: int = _SIDE) -> str:
    """Return a thumbnail of uint8 [H, W, C] as a PNG file in base64."""
    buffer = io.BytesIO()
    Image.fromarray(thumbnail(image, side)).save(buffer, format="PNG", optimize=True)
    return base64.b64encode(buffer.getvalue()).decode("ascii")


_INCH = 0.9
"""Side of a picture of a contact sheet, inches."""


def contact_sheet(blocks: Sequence[tuple[str, Sequence[Sequence[np.ndarray]]]]) -> bytes:
    """Return a PNG of blocks, each a title and rows of pictures uint8 [h, w, C]."""
    from matplotlib.figure import Figure

    rows = [row for _, images in blocks for row in images]
    width, height = max(map(len, rows)), len(rows) + 0.5 * len(blocks)
    figure = Figure(figsize=(_INCH * width, _INCH * height))
    bottom = height
    for title, images in blocks:
        bottom -= 0.5
        figure.text(0.01, (bottom + 0.12) / height, title, fontsize=7, parse_math=False)
        for row in images:
            bottom -= 1
            for k, image in enumerate(row):
                box = (k / width, bottom / height, 0.96 / width, 0.96 / height)
                axes = figure.add_axes(box)
                axes.imshow(np.squeeze(image), cmap="gray", vmin=0, vmax=255)
                axes.set_axis_off()
    file = io.BytesIO()
    # Without the version of matplotlib: equal views give equal files.
    figure.savefig(file, format="png", dpi=120, facecolor="white", metadata={"Software": None})
    return file.getvalue()
