"""A page on which a whole set of images is looked at: a map, search, and groups of images."""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from widefield.report.atlas import Atlas, atlas
from widefield.report.pages import render

MAX_PAGE_BYTES = 15_000_000
"""Bytes that a page may have."""
_AROUND = 100_000
"""Bytes for what is neither data nor pictures."""
_CLOSE = 0.25
"""Share of the pictures' bytes for larger ones of the images in groups."""
_ENDS = 65535


@dataclass(frozen=True, kw_only=True)
class Coloring:
    """A way to color the map: a value of each image."""

    name: str
    """What the values are, such as `cluster` or a task."""
    values: Sequence[str]
    """Names of the values."""
    ids: NDArray[np.int64]
    """Position in `values` of each image, or -1 for none, [n]."""


@dataclass(frozen=True, kw_only=True)
class ImageGroup:
    """Images that are shown side by side."""

    rows: Sequence[int]
    title: str = ""
    captions: Sequence[str] = ()
    """One for each image, or none at all."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A kind of finding: how many there are in all, and those that are shown."""

    name: str
    title: str
    how: str
    """How to read it, in a sentence."""
    groups: Sequence[ImageGroup]


@dataclass(frozen=True, kw_only=True)
class ExplorePage:
    """Everything that the page shows; every string is shown as it is, whatever is in it."""

    title: str
    summary: str
    """What was found, in plain words: the first thing to be read."""
    images: NDArray[np.uint8]
    """[n, H, W, C]."""
    paths: Sequence[str]
    places: NDArray[np.floating]
    """Place of each image on the map, [n, 2]."""
    neighbors: NDArray[np.int64]
    """The nearest images of each, the nearest first, [n, k]."""
    colorings: Sequence[Coloring]
    sections: Sequence[Section]
    example: str = "image"
    """What an example is called."""
    notes: Sequence[str] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """Encoder, data, versions, seed: what it takes to do it again."""

    def html(self) -> str:
        """Return the page, of at most 15 MB unless names and neighbors alone take more."""
        shown = sorted({int(r) for s in self.sections for g in s.groups for r in g.rows})
        data = self._packed(shown)
        room = MAX_PAGE_BYTES - _AROUND - len(data)
        overview = atlas(self.images, range(len(self.images)), budget=int((1 - _CLOSE) * room))
        atlases = [overview]
        if shown:
            close = atlas(self.images, shown, budget=int(_CLOSE * room))
            atlases += [close] if close.width > overview.width else []
        script = resources.files("widefield.report").joinpath("explore.js").read_text("utf-8")
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
        return render(
            "explore.html",
            report=self,
            data=data,
            atlases=[_described(drawn) for drawn in atlases],
            script=Markup(script),  # our own file, with nothing put into it
            digest=digest,
        )

    def _packed(self, shown: Sequence[int]) -> str:
        """Return names and numbers, packed: base64 of gzip of a head in JSON and the arrays."""
        low = self.places.min(0)
        reach = np.maximum((self.places.max(0) - low).max(), 1e-9)  # one scale for both axes
        arrays = {
            "x": (_ENDS * (self.places[:, 0] - low[0]) / reach).round().astype("<u2"),
            "y": (_ENDS * (self.places[:, 1] - low[1]) / reach).round().astype("<u2"),
            "neighbors": self.neighbors.astype("<u4").ravel(),
            **{f"ids{i}": c.ids.astype("<i4") for i, c in enumerate(self.colorings)},
        }
        head = {
            "paths": [_text(path) for path in self.paths],
            "example": self.example,
            "k": self.neighbors.shape[1],
            "close": list(shown),
            "colorings": [
                {"name": _text(c.name), "values": [_text(v) for v in c.values]}
                for c in self.colorings
            ],
            "sections": {
                section.name: [
                    {
                        "title": _text(group.title),
                        "rows": [int(row) for row in group.rows],
                        "captions": [_text(caption) for caption in group.captions],
                    }
                    for group in section.groups
                ]
                for section in self.sections
            },
            "arrays": [[name, a.dtype.str[1:], len(a)] for name, a in arrays.items()],
        }
        text = json.dumps(head, ensure_ascii=False).encode()
        text += b" " * (-(4 + len(text)) % 4)  # arrays begin at a multiple of their width
        blocks = (a.tobytes() + b"\0" * (-a.nbytes % 4) for a in arrays.values())
        whole = len(text).to_bytes(4, "little") + text + b"".join(blocks)
        return base64.b64encode(gzip.compress(whole, mtime=0)).decode("ascii")


def _described(drawn: Atlas) -> dict[str, Any]:
    numbers = [drawn.width, drawn.height, drawn.columns, drawn.rows]
    return {"shape": " ".join(map(str, numbers)), "sheets": drawn.sheets}


def _text(name: str) -> str:
    """Return a name that UTF-8 can write: names of files need not be valid text."""
    return name.encode("utf-8", errors="backslashreplace").decode("utf-8")
