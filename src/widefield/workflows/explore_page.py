"""What was found among images, as one page."""

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from widefield.core.hardware import choose_device, machine
from widefield.data import Dataset
from widefield.inference.pictures import pictures_of
from widefield.metrics.groups import VOTERS
from widefield.report.explore import Coloring, ExplorePage, ImageGroup, Section
from widefield.report.figures import thumbnail
from widefield.version import __version__

if TYPE_CHECKING:
    from widefield.workflows.explore import Exploration

_SHOWN = 200
"""Groups, outliers or labels that are shown of each kind; tables have all."""
_NEIGHBORS = 8
_DRAWN, _SIDE = 256, 96
"""Sounds or windows that are drawn at once, and the longest side of a picture of one."""


def explore_page(found: "Exploration", *, seed: int) -> str:
    """Return the page as HTML; the same findings give the same text."""
    data = found.dataset
    one = data.kind.removesuffix("s")
    clusters = [str(i + 1) for i in range(len(found.typical))]
    labels = [Coloring(name=t, values=data.classes[t], ids=y) for t, y in data.labels.items()]
    return ExplorePage(
        title=f"widefield explore: {data.spec} as {found.encoder} sees it",
        summary=_summary(found),
        images=_pictures(data),
        example=one,
        paths=data.paths,
        points=found.places,
        neighbors=found.graph.index[:, :_NEIGHBORS],
        colorings=[Coloring(name="cluster", values=clusters, ids=found.clusters), *labels],
        sections=[
            section
            for section in (_clusters(found), _duplicates(found), _outliers(found), _labels(found))
            if any(group.rows for group in section.groups)
        ],
        notes=[f"Note: {note}." for note in found.notes],
        metadata={
            "encoder": found.encoder,
            "data": data.spec,
            data.kind: f"{len(data):,}",
            "seed of the map": str(seed),
            "widefield": __version__,
            **machine(choose_device("auto")),
        },
    ).html()


def _summary(found: "Exploration") -> str:
    copies, labels = len(found.duplicates), sum(len(s.rows) for s in found.suspects.values())
    parts = [
        _count(len(found.typical), "cluster"),
        _count(copies, "group") + " of near-duplicates",
        _count(len(found.outliers), "outlier"),
    ]
    if found.suspects:
        parts.append(_count(labels, "label") + " to check")
    return f"{len(found.dataset):,} {found.dataset.kind}: {', '.join(parts[:-1])} and {parts[-1]}."


def _pictures(data: Dataset) -> NDArray[np.uint8]:
    """Return a picture of each example, [n, h, w, C]; of sounds and windows small ones."""
    if data.kind == "images":
        return data.images
    chunks = (range(i, min(i + _DRAWN, len(data))) for i in range(0, len(data), _DRAWN))
    return np.stack([thumbnail(p, _SIDE) for rows in chunks for p in pictures_of(data, rows)])


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _first(total: int) -> str:
    """Return a sentence if not all of so many are shown."""
    return f" The first {_SHOWN} of {total:,} are shown." if total > _SHOWN else ""


def _clusters(found: "Exploration") -> Section:
    sizes = np.bincount(found.clusters[found.clusters >= 0], minlength=len(found.typical))
    return Section(
        name="clusters",
        title="Clusters",
        caption="Dense places of the map, the largest first, each by the "
        f"{found.dataset.kind} nearest to its middle." + _first(len(sizes)),
        groups=[
            ImageGroup(
                title=f"Cluster {i + 1}: {sizes[i]:,} {found.dataset.kind}", rows=rows.tolist()
            )
            for i, rows in enumerate(found.typical[:_SHOWN])
        ],
    )


def _duplicates(found: "Exploration") -> Section:
    return Section(
        name="duplicates",
        title="Near-duplicates",
        caption=f"{found.dataset.kind.capitalize()} at most half as far from each other as from an "
        "ordinary neighbor, the closest group first." + _first(len(found.duplicates)),
        groups=[
            ImageGroup(title=f"{len(group):,} {found.dataset.kind}", rows=group.tolist())
            for group in found.duplicates[:_SHOWN]
        ],
    )


def _outliers(found: "Exploration") -> Section:
    return Section(
        name="outliers",
        title="Outliers",
        caption=f"{found.dataset.kind.capitalize()} unusually far from their nearest neighbors, "
        "the farthest first." + _first(len(found.outliers)),
        groups=[ImageGroup(rows=found.outliers[:_SHOWN].tolist())],
    )


def _labels(found: "Exploration") -> Section:
    groups, total = [], 0
    for task, suspects in found.suspects.items():
        classes, rows = found.dataset.classes[task], suspects.rows[:_SHOWN]
        total = max(total, len(suspects.rows))
        given = found.dataset.labels[task][rows]
        groups.append(
            ImageGroup(
                title=f"{task}: neighbors name the label of {suspects.agreement:.0%} of "
                f"{found.judged(task)}; the lower, the weaker these suspicions",
                rows=rows.tolist(),
                captions=[
                    f"labeled {classes[own]}; {share:.0%} of neighbors: {classes[other]}"
                    for own, other, share in zip(
                        given, suspects.named, suspects.share, strict=False
                    )
                ],
            )
        )
    return Section(
        name="labels",
        title="Labels to check",
        caption=f"None of the {VOTERS} nearest neighbors has the label of these "
        f"{found.dataset.kind}, and half of them or more share another." + _first(total),
        groups=groups,
    )
