"""How figures of the docs look, and their text as SVG."""

import io
import re
from typing import Any

from matplotlib.figure import Figure

TYPE = "Helvetica, Arial, sans-serif"
INK, FAINT = "#22262b", "#8b949e"


def style(name: str) -> dict[str, Any]:
    """Return the `rc_context` of the figure `name`; its ids are the same in every run."""
    return {
        "svg.fonttype": "none",
        "svg.hashsalt": name,
        "font.size": 10,
        "text.color": INK,
        "axes.labelcolor": INK,
        "xtick.color": FAINT,
        "ytick.color": FAINT,
    }


def svg_text(figure: Figure) -> str:
    """Return a figure as the text of an SVG file."""
    text = io.StringIO()
    figure.savefig(text, format="svg", facecolor="#ffffff", metadata={"Date": None})
    drawn = re.sub("font-family: [^;]*;", f"font-family: {TYPE};", text.getvalue())
    return "\n".join(line.rstrip() for line in drawn[drawn.index("<svg") :].splitlines()) + "\n"
