"""The diagram of the data flow between packages: docs/architecture.svg."""

from html import escape
from itertools import pairwise
from typing import NamedTuple

WIDTH, HEIGHT = 960, 520
INK, FAINT, LINE = "#22262b", "#5b6470", "#3a6ea5"
FILLS = {"train": "#e8f0f8", "read": "#eef5ea", "settings": "#f7f0e0", "calls": "#f1eef6"}


class Box(NamedTuple):
    """One package: its place in the diagram, its name and its output."""

    left: int
    top: int
    title: str
    lines: tuple[str, ...]
    fill: str
    width: int = 150
    height: int = 86


FORWARD = 150
READ = 330
BOXES = {
    "data": Box(
        20, FORWARD, "data/", ("examples 0..n-1,", "uint8 [n, H, W, C],", "in batches"), "train"
    ),
    "views": Box(
        212, FORWARD, "views/", ("V random views", "of each image,", "[B, C, H, W] each"), "train"
    ),
    "encoders": Box(
        404, FORWARD, "encoders/", ("features h [B, D],", "timm by name", "or our own"), "train"
    ),
    "methods": Box(
        596, FORWARD, "methods/, head/", ("projector, loss;", "per-example head"), "train"
    ),
    "train": Box(
        788, FORWARD, "train/", ("backward, optimizer,", "checkpoints,", "run folder"), "train"
    ),
    "config": Box(
        404,
        20,
        "config/ -> train/build.py",
        ("settings of run, method, views and encoder", "-> one TrainState"),
        "settings",
        342,
        66,
    ),
    "inference": Box(20, READ, "inference/", ("frozen features,", "train and test split"), "read"),
    "probes": Box(
        212,
        READ,
        "probes/, metrics/",
        ("accuracy by task;", "effective rank,", "uniformity, ..."),
        "read",
    ),
    "evaluation": Box(
        404, READ, "evaluation/", ("comparison with", "untrained or initial", "encoders"), "read"
    ),
    "audits": Box(
        596,
        READ,
        "audits/",
        ("learned, hidden,", "weakened or lost, between", "floor and ceiling"),
        "read",
    ),
    "report": Box(788, READ, "report/", ("one HTML page,", "no torch"), "read"),
    "calls": Box(
        20,
        446,
        "workflows/ and cli/",
        ("pretrain, probe, audit, embed, export, plan, demo: a Python call and a command each",),
        "calls",
        918,
        56,
    ),
}


def svg() -> str:
    """Return the diagram as SVG."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
        f'width="{WIDTH}" height="{HEIGHT}" font-family="Helvetica, Arial, sans-serif">',
        "<title>Data flow between packages</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{LINE}"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        *(_box(box) for box in BOXES.values()),
        *_arrows(),
    ]
    return "\n".join(parts) + "\n</svg>\n"


def _box(box: Box) -> str:
    """Return a rounded box with its title and lines."""
    left, top = box.left + 12, box.top + 22
    lines = [_text(left, top + 19 + 16 * i, line, FAINT) for i, line in enumerate(box.lines)]
    return "\n".join(
        [
            f'<rect x="{box.left}" y="{box.top}" width="{box.width}" height="{box.height}" '
            f'rx="8" fill="{FILLS[box.fill]}" stroke="#c4ccd4"/>',
            f'<text x="{left}" y="{top}" font-size="13" font-weight="bold" fill="{INK}">'
            f"{escape(box.title)}</text>",
            *lines,
        ]
    )


def _text(x: int, y: int, text: str, color: str = INK, anchor: str = "start") -> str:
    return (
        f'<text x="{x}" y="{y}" font-size="12" fill="{color}" text-anchor="{anchor}">'
        f"{escape(text)}</text>"
    )


def _arrows() -> list[str]:
    """Return the arrows, each with what flows along it."""
    forward = ("data", "views", "encoders", "methods", "train")
    after = ("inference", "probes", "evaluation", "audits", "report")
    return [
        *(_between(a, b) for row in (forward, after) for a, b in pairwise(row)),
        _text(191, FORWARD - 8, "x, index", LINE, "middle"),
        _text(383, FORWARD - 8, "views", LINE, "middle"),
        _text(575, FORWARD - 8, "h", LINE, "middle"),
        _text(767, FORWARD - 8, "loss", LINE, "middle"),
        _text(191, READ - 8, "h, labels", LINE, "middle"),
        # The optimizer moves the encoder, the projector and the head.
        _path(f"M863 {FORWARD + 86} V276 H510 V{FORWARD + 89}"),
        _path(f"M671 276 V{FORWARD + 89}"),
        _text(687, 270, "gradient step", LINE),
        # After training the encoder is frozen.
        _path(f"M448 {FORWARD + 86} V290 H95 V{READ - 3}"),
        _text(107, 284, "frozen encoder", LINE),
        _path(f"M746 53 H863 V{FORWARD - 3}"),
        _text(756, 46, "build()", LINE),
    ]


def _between(one: str, other: str) -> str:
    """Return the arrow from a box to the next of its row."""
    a, b = BOXES[one], BOXES[other]
    return _path(f"M{a.left + a.width} {a.top + a.height // 2} H{b.left - 3}")


def _path(path: str) -> str:
    return (
        f'<path d="{path}" fill="none" stroke="{LINE}" stroke-width="1.5" marker-end="url(#tip)"/>'
    )
