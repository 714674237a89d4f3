"""The page of `explore`, `classify` and `search`: a map, groups, names, and decisions on images."""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Literal

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from widefield.report.atlas import atlas
from widefield.report.pages import render
from widefield.report.tables import ResultTable

# Chosen by hand.
MAX_PAGE_BYTES = 15_000_000
_RESERVED = 100_000
"""Bytes for everything but data and images."""
# Chosen by hand.
_DETAIL_SHARE = 0.25
"""Share of the image bytes for larger thumbnails of the images in groups."""
_MAX_COORDINATE = 65535
"""Coordinates are stored as uint16."""


@dataclass(frozen=True, kw_only=True)
class Coloring:
    """A coloring of the map: one value for each image."""

    name: str
    """What the values mean, such as `cluster` or a task."""
    values: Sequence[str]
    ids: NDArray[np.int64]
    """Position in `values` of each image, or -1 for none, [n]."""
    role: Literal["", "task", "prediction"] = ""
    """Whether these are labels, which the page can change, or predictions of them."""


@dataclass(frozen=True, kw_only=True)
class ImageGroup:
    """Images shown side by side."""

    rows: Sequence[int]
    title: str = ""
    captions: Sequence[str] = ()
    """One for each image, or empty."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One kind of finding, such as outliers, as groups of images."""

    name: str
    title: str
    caption: str
    """How to interpret it, in one sentence."""
    groups: Sequence[ImageGroup]


def non_empty(*sections: Section) -> list[Section]:
    """Return the sections that have images."""
    return [section for section in sections if any(group.rows for group in section.groups)]


@dataclass(frozen=True, kw_only=True)
class ExplorePage:
    """Content of the page; every string is escaped."""

    title: str
    summary: str
    """The findings in one paragraph, at the top of the page."""
    images: NDArray[np.uint8]
    """[n, H, W, C]."""
    paths: Sequence[str]
    colorings: Sequence[Coloring]
    sections: Sequence[Section]
    sizes: NDArray[np.int64]
    """Width and height of each file, which exported labels state, [n, 2]."""
    points: NDArray[np.floating] | None = None
    """Coordinates of each image on the map, [n, 2]; None for a page without a map."""
    neighbors: NDArray[np.int64] | None = None
    """Nearest neighbors of each image, nearest first, [n, k]."""
    tables: Sequence[ResultTable] = ()
    example: str = "image"
    """Noun for one example."""
    notes: Sequence[str] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    """Encoder, data, versions and seed, to reproduce the result."""

    def html(self) -> str:
        """Return the page, of at most 15 MB unless names and neighbors alone take more."""
        rows = sorted({int(r) for s in self.sections for g in s.groups for r in g.rows})
        data = self._packed(rows)
        budget = MAX_PAGE_BYTES - _RESERVED - len(data)
        overview = atlas(
            self.images, range(len(self.images)), budget=int((1 - _DETAIL_SHARE) * budget)
        )
        atlases = [overview]
        if rows:
            details = atlas(self.images, rows, budget=int(_DETAIL_SHARE * budget))
            atlases += [details] if details.width > overview.width else []
        script = resources.files("widefield.report").joinpath("explore.js").read_text("utf-8")
        script_hash = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
        return render(
            "explore.html",
            report=self,
            data=data,
            atlases=atlases,
            script=Markup(script),  # a file of this package, with no values inserted
            script_hash=script_hash,
            has_map=self.points is not None,
        )

    def _packed(self, rows: Sequence[int]) -> str:
        """Return base64 of gzip of a JSON header followed by the arrays."""
        arrays = self._coordinates()
        neighbors = np.zeros((len(self.paths), 0)) if self.neighbors is None else self.neighbors
        arrays |= {
            "neighbors": neighbors.astype("<u4").ravel(),
            "width": self.sizes[:, 0].astype("<u4"),
            "height": self.sizes[:, 1].astype("<u4"),
            **{f"ids{i}": c.ids.astype("<i4") for i, c in enumerate(self.colorings)},
        }
        roles = [c.role for c in self.colorings]
        head = {
            "paths": [_text(path) for path in self.paths],
            "example": self.example,
            "k": neighbors.shape[1],
            "tasks": [i for i, role in enumerate(roles) if role == "task"],
            "predicted": roles.index("prediction") if "prediction" in roles else None,
            "close": list(rows),
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
        # Typed arrays in JavaScript need aligned offsets.
        text += b" " * (-(4 + len(text)) % 4)
        blocks = (a.tobytes() + b"\0" * (-a.nbytes % 4) for a in arrays.values())
        content = len(text).to_bytes(4, "little") + text + b"".join(blocks)
        # Without a time of compression: equal results give equal pages.
        return base64.b64encode(gzip.compress(content, mtime=0)).decode("ascii")

    def _coordinates(self) -> dict[str, NDArray[np.generic]]:
        if self.points is None:
            return {}
        low = self.points.min(0)
        # One scale for both axes, so that distances stay comparable.
        extent = np.maximum((self.points.max(0) - low).max(), 1e-9)
        coordinates = (_MAX_COORDINATE * (self.points - low) / extent).round().astype("<u2")
        return {"x": coordinates[:, 0], "y": coordinates[:, 1]}


def _text(name: str) -> str:
    """Return a name that UTF-8 can encode: file names may be invalid text."""
    return name.encode("utf-8", errors="backslashreplace").decode("utf-8")
