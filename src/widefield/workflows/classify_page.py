"""The HTML page of a classification: uncertain predictions and doubted labels, to be corrected."""

import numpy as np
from numpy.typing import NDArray

from widefield.core.hardware import choose_device, machine
from widefield.data import Dataset
from widefield.report.explore import Coloring, ExplorePage, ImageGroup, Section, non_empty
from widefield.version import __version__
from widefield.workflows.classify_result import Classification
from widefield.workflows.explore_page import file_sizes, rendered

# Chosen by hand: thumbnails share the limit of the page's size.
_MOST, _LEAST = 4000, 12
"""Predictions on the page, and those of each class at least."""
# Chosen by hand.
_NAMED = 2
"""Classes in the caption of an image."""


def classify_page(result: Classification, dataset: Dataset, *, seed: int) -> str:
    """Return the page as HTML; it has all labeled and suggested images, and the least certain."""
    row_of = {path: row for row, path in enumerate(dataset.paths)}
    by_class = _least_certain(result)
    suggested = np.array([row_of[path] for path in result.suggested], dtype=np.int64)
    labeled = np.array([row_of[path] for path in result.labels], dtype=np.int64)
    rows = np.unique(np.concatenate([labeled, suggested, *by_class]))
    subset, p = dataset.subset(rows), result.values[rows]
    ids = {name: k for k, name in enumerate(result.classes)}
    label_ids = [ids.get(str(result.labels.get(path)), -1) for path in subset.paths]
    return ExplorePage(
        title=_title(result, dataset),
        summary=_summary(result, dataset),
        tables=result.tables(),
        images=rendered(subset),
        sizes=file_sizes(subset),
        example=dataset.kind.removesuffix("s"),
        paths=subset.paths,
        colorings=[
            Coloring(name="predicted", values=result.classes, ids=p.argmax(1), role="prediction"),
            Coloring(name="label", values=result.classes, ids=np.array(label_ids), role="task"),
        ],
        sections=non_empty(
            _suggested(result, rows, suggested),
            _doubted(result, rows, row_of),
            _uncertain(result, rows, by_class),
        ),
        notes=[f"Note: {note}." for note in result.notes],
        metadata={
            "encoder": result.encoder,
            "data": dataset.spec,
            "labels": f"{len(labeled):,}",
            "seed of the folds": str(seed),
            "widefield": __version__,
            **machine(choose_device("auto")),
        },
    ).html()


def _title(result: Classification, dataset: Dataset) -> str:
    checked = result.cross_validation
    if checked is None:
        return f"{dataset.spec}: {len(result.paths):,} predictions by {result.encoder}"
    accuracy = f"{100 * checked.value:.0f} % of held-out labels are predicted"
    return f"{dataset.spec} by {result.encoder}: {accuracy}"


def _summary(result: Classification, dataset: Dataset) -> str:
    checked, n = result.cross_validation, f"{len(result.paths):,} {dataset.kind}"
    labels = f"{len(result.labels):,} labels"
    if checked is None:
        return f"{n} classified from {labels}, too few for an estimate of the accuracy."
    value, low, high = (f"{100 * x:.0f}" for x in checked.estimate())
    return (
        f"{n} classified from {labels}: accuracy {value} %, from {low} to {high} %, "
        f"{result.floor_lines()[0]}."
    )


def _least_certain(result: Classification) -> list[NDArray[np.int64]]:
    """Return the unlabeled rows that are predicted as each class, the least probable first."""
    p, most = result.values, max(_LEAST, _MOST // len(result.classes))
    unlabeled = np.array([path not in result.labels for path in result.paths])
    rows = [np.flatnonzero((p.argmax(1) == k) & unlabeled) for k in range(len(result.classes))]
    return [r[np.argsort(p[r].max(1), kind="stable")[:most]] for r in rows]


def _captions(result: Classification, rows: NDArray[np.int64]) -> list[str]:
    best = np.argsort(-result.values[rows], axis=1, kind="stable")[:, :_NAMED]
    return [
        ", ".join(f"{result.classes[k]} {100 * result.values[row, k]:.0f} %" for k in named)
        for row, named in zip(rows, best, strict=True)
    ]


def _suggested(
    result: Classification, rows: NDArray[np.int64], suggested: NDArray[np.int64]
) -> Section:
    return Section(
        name="suggested",
        title="To label next",
        caption="Uncertain ones that represent many others, the most useful first.",
        groups=[
            ImageGroup(
                rows=np.searchsorted(rows, suggested).tolist(),
                captions=_captions(result, suggested),
            )
        ],
    )


def _doubted(result: Classification, rows: NDArray[np.int64], row_of: dict[str, int]) -> Section:
    wrong = [row_of[path] for path, _, _ in result.doubted]
    return Section(
        name="labels",
        title="Labels to check",
        caption="Another class is predicted for these when their own label is held out, the most "
        "probable first.",
        groups=[
            ImageGroup(
                rows=np.searchsorted(rows, wrong).tolist(),
                captions=[
                    f"labeled {result.labels[path]}; predicted {name} {100 * p:.0f} %"
                    for path, name, p in result.doubted
                ],
            )
        ],
    )


def _uncertain(
    result: Classification, rows: NDArray[np.int64], by_class: list[NDArray[np.int64]]
) -> Section:
    counts = np.bincount(result.values.argmax(1), minlength=len(result.classes))
    return Section(
        name="predictions",
        title="Predictions by class",
        caption="The least certain first. Choose one and press A to accept the prediction, or the "
        "number of another class.",
        groups=[
            ImageGroup(
                title=f"{name}: predicted for {counts[k]:,}",
                rows=np.searchsorted(rows, by_class[k]).tolist(),
                captions=_captions(result, by_class[k]),
            )
            for k, name in enumerate(result.classes)
            if len(by_class[k])
        ],
    )
