"""The HTML page of an exploration."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from widefield.core.hardware import choose_device, machine
from widefield.core.names import count_text
from widefield.data import Dataset
from widefield.data.decode.images import header_size
from widefield.data.spec import MEMORY, parse
from widefield.inference.pictures import render_examples
from widefield.metrics.groups import VOTERS
from widefield.report.explore import Coloring, ExplorePage, ImageGroup, Section, non_empty
from widefield.report.figures import thumbnail
from widefield.version import __version__
from widefield.workflows.explore_result import Exploration

# Chosen by hand. The page has a limit of size, which thumbnails share.
_MAX_GROUPS = 200
"""Largest number of groups, outliers or labels of each section; tables have all."""
# Chosen by hand, as the next ones.
_NEIGHBORS = 8
_BATCH, _SIDE = 256, 96
"""Sounds or windows that are rendered at once, and the longest side of each image."""


def explore_page(found: Exploration, *, seed: int) -> str:
    """Return the page as HTML; the same result gives the same text."""
    data = found.dataset
    one = data.kind.removesuffix("s")
    clusters = [str(i + 1) for i in range(len(found.typical))]
    labels = [
        Coloring(name=t, values=data.classes[t], ids=y, role="task") for t, y in data.labels.items()
    ]
    return ExplorePage(
        title=f"{data.spec} by {found.encoder}: {_to_check(found)}",
        summary=f"{len(data):,} {data.kind}: {_to_check(found)}.",
        tables=found.tables(),
        images=rendered(data),
        example=one,
        paths=data.paths,
        sizes=file_sizes(data),
        points=found.places,
        neighbors=found.graph.index[:, :_NEIGHBORS],
        colorings=[Coloring(name="cluster", values=clusters, ids=found.clusters), *labels],
        sections=non_empty(
            _clusters(found), _duplicates(found), _outliers(found), _quality(found), _labels(found)
        ),
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


def _to_check(found: Exploration) -> str:
    counts = {
        "label": sum(len(s.rows) for s in found.suspects.values()),
        "group": len(found.duplicates),
        "outlier": len(found.outliers),
    }
    parts = [
        count_text(count, one) + (" of near-duplicates" if one == "group" else "")
        for one, count in counts.items()
        if count
    ]
    return f"{', '.join(parts) or 'nothing'} to check"


def file_sizes(data: Dataset) -> NDArray[np.int64]:
    """Return width and height of each file of a folder, or of the images where there are none."""
    height, width = data.images.shape[1:3]
    folder = Path(data.spec if data.spec == MEMORY else parse(data.spec).base).expanduser()
    if data.kind != "images" or not folder.is_dir():
        return np.full((len(data), 2), (width, height))
    files = [folder / path for path in data.paths]
    sizes = (header_size(files, row) or (height, width) for row in range(len(files)))
    return np.array([(w, h) for h, w in sizes], dtype=np.int64).reshape(-1, 2)


def rendered(data: Dataset) -> NDArray[np.uint8]:
    """Return an image of each example, [n, h, w, C], of sounds and windows a thumbnail."""
    if data.kind == "images":
        return data.images
    chunks = (range(i, min(i + _BATCH, len(data))) for i in range(0, len(data), _BATCH))
    return np.stack([thumbnail(p, _SIDE) for rows in chunks for p in render_examples(data, rows)])


def _truncation(total: int) -> str:
    return f" The first {_MAX_GROUPS} of {total:,} are shown." if total > _MAX_GROUPS else ""


def _clusters(found: Exploration) -> Section:
    sizes = np.bincount(found.clusters[found.clusters >= 0], minlength=len(found.typical))
    return Section(
        name="clusters",
        title="Clusters",
        caption="Dense regions of the map, the largest first, each with the "
        f"{found.dataset.kind} nearest to its center." + _truncation(len(sizes)),
        groups=[
            ImageGroup(
                title=f"Cluster {i + 1}: {sizes[i]:,} {found.dataset.kind}", rows=rows.tolist()
            )
            for i, rows in enumerate(found.typical[:_MAX_GROUPS])
        ],
    )


def _duplicates(found: Exploration) -> Section:
    return Section(
        name="duplicates",
        title="Near-duplicates",
        caption=f"{found.dataset.kind.capitalize()} at most half as far from each other as "
        "neighbors usually are, the closest group first." + _truncation(len(found.duplicates)),
        groups=[
            ImageGroup(title=f"{len(group):,} {found.dataset.kind}", rows=group.tolist())
            for group in found.duplicates[:_MAX_GROUPS]
        ],
    )


def _outliers(found: Exploration) -> Section:
    return Section(
        name="outliers",
        title="Outliers",
        caption=f"{found.dataset.kind.capitalize()} unusually far from their nearest neighbors, "
        "the farthest first." + _truncation(len(found.outliers)),
        groups=[ImageGroup(rows=found.outliers[:_MAX_GROUPS].tolist())],
    )


def _quality(found: Exploration) -> Section:
    return Section(
        name="quality",
        title="Image quality",
        caption="The most extreme of each kind first. The limits are in the documentation of "
        "`explore`; an image may be as it should be.",
        groups=[
            ImageGroup(
                title=f"{name.capitalize()}: {len(rows):,}", rows=rows[:_MAX_GROUPS].tolist()
            )
            for name, rows in found.quality.items()
            if len(rows)
        ],
    )


def _labels(found: Exploration) -> Section:
    groups, total = [], 0
    for task, suspects in found.suspects.items():
        classes, rows = found.dataset.classes[task], suspects.rows[:_MAX_GROUPS]
        total = max(total, len(suspects.rows))
        labels = found.dataset.labels[task][rows]
        groups.append(
            ImageGroup(
                title=f"{task}: {suspects.agreement:.0%} of {found.checked(task)} have the label "
                f"of most neighbors, {found.commonest(task):.0%} that of the commonest class; the "
                "lower the first share, the weaker the evidence",
                rows=rows.tolist(),
                captions=[
                    f"labeled {classes[label]}; {share:.0%} of neighbors: {classes[other]}"
                    for label, other, share in zip(
                        labels, suspects.named, suspects.share, strict=False
                    )
                ],
            )
        )
    return Section(
        name="labels",
        title="Labels to check",
        caption=f"None of the {VOTERS} nearest neighbors has the label of these "
        f"{found.dataset.kind}, and half of them or more share another." + _truncation(total),
        groups=groups,
    )
