"""Figures as text to be put into a page: inline SVG and PNG data URIs.

Colours of an inline SVG come from the page: `currentColor` for text and axes and `var(--accent)`
for data, so that one figure serves a light and a dark page.
"""

import base64
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIDE = 96
"""Longest side of a thumbnail, in pixels."""
_INK, _ACCENT = "#010203", "#040506"
"""Stand-ins that are replaced by the page's colours."""
SERIES = {
    "#040506": "var(--accent)",
    "#070809": "var(--second)",
    "#0a0b0c": "var(--third)",
    "#0d0e0f": "var(--fourth)",
}
"""Stand-ins of up to four curves, and the page's colours for them."""
_MARKERS = ("o", "s", "^", "D")


def line_chart(
    x: Sequence[float], y: Sequence[float], x_label: str, from_zero: bool, prefix: str
) -> str:
    """An `<svg>` of y over x; `prefix` keeps its ids apart from those of other figures."""
    with _canvas(prefix) as (figure, axes):
        marker = "o" if len(x) == 1 else ""
        axes.plot(x, y, color=_ACCENT, linewidth=1.8, marker=marker, solid_capstyle="round")
        axes.set_xlabel(x_label, parse_math=False)
        if from_zero:
            axes.set_ylim(bottom=0)
        return _svg(figure, prefix)


def lines_chart(
    series: Mapping[str, tuple[Sequence[float], Sequence[float]]],
    x_label: str,
    y_label: str,
    y_range: tuple[float, float] | None,
    logarithmic: bool,
    prefix: str,
) -> str:
    """An `<svg>` of up to four named curves, name -> (x, y); the legend is left to the page."""
    with _canvas(prefix) as (figure, axes):
        for colour, marker, (x, y) in zip(SERIES, _MARKERS, series.values(), strict=False):
            few = len(x) <= 12
            axes.plot(x, y, color=colour, linewidth=1.8, marker=marker if few else "", markersize=5)
        axes.set_xlabel(x_label, parse_math=False)
        axes.set_ylabel(y_label, parse_math=False)
        if logarithmic:
            axes.set_xscale("log")
            axes.set_yscale("log")
        elif all(float(place).is_integer() for x, _ in series.values() for place in x):
            axes.locator_params(axis="x", integer=True)
        low, high = (end(place for x, _ in series.values() for place in x) for end in (min, max))
        if low < high:  # the axis is as long where the first or the last value is a gap
            edge = 0 if logarithmic else 0.02 * (high - low)
            axes.set_xlim(low - edge, high + edge)
        if y_range is not None:
            axes.set_ylim(*y_range)
        return _svg(figure, prefix)


@contextmanager
def _canvas(prefix: str) -> Iterator[tuple["Figure", "Axes"]]:
    """A figure with one pair of axes in the page's manner."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(
        {
            "svg.fonttype": "none",  # text stays text, in the page's own type
            "svg.hashsalt": prefix,
            "font.size": 10,
            "text.color": _INK,
            "axes.edgecolor": _INK,
            "axes.labelcolor": _INK,
            "xtick.color": _INK,
            "ytick.color": _INK,
        }
    ):
        figure = Figure(figsize=(4.2, 2.4), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(axis="y", color=_INK, alpha=0.15, linewidth=0.8)
        axes.spines[["top", "right", "left"]].set_visible(False)
        axes.tick_params(length=0)
        axes.margins(x=0.02)
        yield figure, axes


def _svg(figure: "Figure", prefix: str) -> str:
    text = io.StringIO()
    figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    return _for_page(text.getvalue(), prefix)


def thumbnail(image: np.ndarray, side: int = _SIDE) -> np.ndarray:
    """uint8 [H, W, C] -> [h, w] or [h, w, 3]: the first three channels, at most `side` pixels.

    Fewer than three channels show the first, in grey.
    """
    picture = Image.fromarray(image[:, :, :3] if image.shape[2] >= 3 else image[:, :, 0])
    picture.thumbnail((side, side))
    return np.asarray(picture)


def image_uri(image: np.ndarray) -> str:
    """A PNG data URI of uint8 [h, w] or [h, w, 3]."""
    buffer = io.BytesIO()
    Image.fromarray(image).save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode("ascii")


def _for_page(svg: str, prefix: str) -> str:
    """Without its XML preamble and its own size, in the page's colours, with its own ids."""
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'<svg (.*?)width="[^"]*"(.*?)height="[^"]*"', r"<svg \1\2", svg, count=1)
    svg = re.sub(r'\bid="', f'id="{prefix}', svg)
    svg = re.sub(r"""(url\(|href=")#""", rf"\g<1>#{prefix}", svg)
    for stand_in, colour in {_INK: "currentColor", **SERIES}.items():
        svg = svg.replace(stand_in, colour)
    return svg
