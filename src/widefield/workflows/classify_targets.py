"""Prediction of a number, or of several labels, of every image from those of a few."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray

from widefield.data import Dataset
from widefield.data.table import Target
from widefield.inference.features import FeatureExtractor
from widefield.probes.few_labels import fit_few_labels
from widefield.probes.folds import GroupIds
from widefield.probes.paired import PairedDifference, paired_difference
from widefield.probes.ridge import fit_ridge
from widefield.probes.target_scores import MEASURES, TargetScore, score_target
from widefield.report.notebook import notebook_html
from widefield.workflows.classify_floors import floor_features
from widefield.workflows.predictions_file import write_predictions

_FEWEST = 3
"""Smallest number of examples with a number."""
_RARE = 3
"""Labels named in a note."""


@dataclass(frozen=True, kw_only=True)
class TargetPrediction:
    """Predicted number, or probability of each label, of every image."""

    encoder: str
    paths: list[str]
    given: Target
    """What was given, with NaN for images without it."""
    predicted: NDArray[np.float64]
    """Numbers [n, 1], or calibrated probabilities of the L labels, [n, L]."""
    cross_validation: TargetScore | None
    """Scores of images that were not used to fit the probe; None if too few were given."""
    floors: Mapping[str, PairedDifference]
    """Raw pixels, the untrained network and the mean, each compared with the features by R^2 or
    mean average precision."""
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield classify --json` prints them."""
        return {
            "encoder": self.encoder,
            "examples": len(self.paths),
            "kind": self.given.kind,
            "given": int(self.given.known.sum()),
            "labels": list(self.given.labels),
            "cross_validation": self.cross_validation and self.cross_validation.to_json(),
            "floors": {name: vars(floor) for name, floor in self.floors.items()},
            "notes": list(self.notes),
        }

    def lines(self) -> list[str]:
        """Return the cross-validated scores, and how they compare with the floors."""
        checked = self.cross_validation
        if checked is None:
            return ["no cross-validation: too few examples or groups, give more"]
        lines = [f"{MEASURES[checked.kind]} {_span(checked.score)}"]
        if checked.error is not None:
            lines[0] += f", mean absolute error {_span(checked.error)}"
        for name, floor in self.floors.items():
            points = f"{abs(floor.difference):.3f}"
            lines.append(floor.beside(f"{name} ({floor.before:.3f})", points))
        return lines

    def save(self, path: str | Path) -> None:
        """Write a row for each image: path, what was given, and what is predicted."""
        write_predictions(pa.table({"path": self.paths, **self._columns()}), path)

    def _columns(self) -> dict[str, Any]:
        given, p = self.given, self.predicted
        if given.kind == "number":
            known = [x if k else None for x, k in zip(given.values[:, 0], given.known, strict=True)]
            return {"label": pa.array(known, pa.float64()), "predicted": p[:, 0]}
        texts = [
            _joined(row, given.labels) if known else None
            for row, known in zip(given.values, given.known, strict=True)
        ]
        return {
            "label": pa.array(texts, pa.string()),
            "predicted": [_joined(row, given.labels) for row in p],
            **{f"p {name}": p[:, k] for k, name in enumerate(given.labels)},
        }

    def _repr_html_(self) -> str:
        """Return the scores as a table, for Jupyter."""
        checked = self.cross_validation
        found = {} if checked is None else {MEASURES[checked.kind]: checked.score, **checked.labels}
        rows = [
            [name, f"{x.value:.3g}", f"{x.low:.3g}", f"{x.high:.3g}"] for name, x in found.items()
        ]
        title = f"{self.encoder}: {len(self.paths)} predictions from {self.given.known.sum()}"
        return notebook_html(
            title, ["", "value", "low", "high"], rows, (*self.lines(), *self.notes)
        )


def _span(found: Sequence[float]) -> str:
    value, low, high = found
    return f"{value:.4g} [{low:.4g}, {high:.4g}]"


def _joined(row: NDArray[np.float64], labels: Sequence[str]) -> str:
    """Return the labels whose value is above one half, as a cell of a table has them."""
    return "|".join(name for name, p in zip(labels, row, strict=True) if p > 0.5) or "|"


def varying(target: Target) -> tuple[Target, tuple[str, ...]]:
    """Return a target without labels that all or none of the examples have, and a note on these.

    Raises:
        ValueError: nothing is left, or there are too few numbers.
    """
    y = target.values[target.known]
    if len(y) < _FEWEST or (np.ptp(y, axis=0) == 0).all():
        raise ValueError(
            f"{len(y)} examples have a label, too few or all the same: give {_FEWEST} or more that "
            "differ"
        )
    if target.kind == "number":
        return target, ()
    varies = np.ptp(y, axis=0) > 0
    left = [repr(name) for name, kept in zip(target.labels, varies, strict=True) if not kept]
    note = f"all or none of the examples have {', '.join(left[:_RARE])}: left out"
    return target.only(np.flatnonzero(varies)), (note,) if left else ()


def predict_target(
    candidates: Sequence[FeatureExtractor],
    dataset: Dataset,
    target: Target,
    *,
    seed: int,
    quiet: bool,
) -> TargetPrediction:
    """Predict every example by the candidate features with the best cross-validated score.

    Args:
        candidates: encoders with different features, the preferred ones first.
        dataset: examples, some of them with a target.
        target: their target, each label of which some have and some lack.
        seed: seed of the folds.
        quiet: show no progress.
    """
    rows = np.flatnonzero(target.known)
    groups = None if dataset.groups is None else dataset.groups[rows]
    known = target.subset(rows)

    def fit(h: torch.Tensor, own: NDArray[np.int64], pooled: int | None = None) -> _Fit:
        return _fit(known, h, own, pooled, groups, seed)

    def score(found: "_Fit") -> TargetScore | None:
        return _scored(known, found, groups, seed)

    fits = [
        fit(candidate.features(dataset.inputs, quiet=quiet).cpu(), rows, candidate.pooled)
        for candidate in candidates
    ]
    scores = [score(found) for found in fits]
    values = [-np.inf if found is None else found.accuracy for found in scores]
    best = int(np.argmax(values))  # the first of equals
    checked, floors = scores[best], {}
    if checked is not None:
        own = np.arange(len(rows))
        others = {
            name: [fit(h, own, pooled) for h, pooled in choices]
            for name, choices in floor_features(candidates[0], dataset.subset(rows)).items()
        }
        mean = np.broadcast_to(known.values.mean(0), known.values.shape)
        others["the mean"] = [replace(fits[best], held_out=mean)]
        for name, found in others.items():
            floor = max(filter(None, map(score, found)), key=lambda x: x.accuracy)
            floors[name] = paired_difference(floor.values, checked.values, groups=groups, seed=seed)
    return TargetPrediction(
        encoder=candidates[best].name,
        paths=list(dataset.paths),
        given=target,
        predicted=fits[best].predicted,
        cross_validation=checked,
        floors=floors,
        notes=_choice(scores),
    )


@dataclass(frozen=True, kw_only=True)
class _Fit:
    """Predictions of all examples, and cross-validated ones of those with a target."""

    predicted: NDArray[np.float64]
    """[n, L]."""
    held_out: NDArray[np.float64]
    """[m, L]; a column of NaN where cross-validation is not possible."""


def _fit(
    known: Target,
    h: torch.Tensor,
    rows: NDArray[np.int64],
    pooled: int | None,
    groups: GroupIds | None,
    seed: int,
) -> _Fit:
    """Fit a ridge regression to a number, or to each label a probe with calibrated probabilities.

    Args:
        known: target of the examples `rows`.
        h: features of all examples, [n, D].
        rows: examples with a target, [m].
        pooled: number of pooled features among wide ones.
        groups: group of each of the m examples; no fold divides one.
        seed: seed of the folds.
    """
    y = known.values
    if known.kind == "number":
        found = fit_ridge(
            h[rows], y, h, pooled=pooled, groups=groups, held_out_folds=len(y), seed=seed
        )
        return _Fit(predicted=found.predicted, held_out=found.held_out)
    fits = [
        fit_few_labels(h.numpy(), rows, has.astype(np.int64), classes=2, groups=groups, seed=seed)
        for has in y.T
    ]
    missing = np.full((len(y), 2), np.nan)
    held_out = [fit.held_out_probabilities for fit in fits]
    return _Fit(
        predicted=np.stack([fit.probabilities[:, 1] for fit in fits], axis=1),
        held_out=np.stack([(missing if p is None else p)[:, 1] for p in held_out], axis=1),
    )


def _scored(known: Target, found: _Fit, groups: GroupIds | None, seed: int) -> TargetScore | None:
    """Return the cross-validated score, of the labels that could be held out."""
    columns = np.flatnonzero(~np.isnan(found.held_out).any(0))
    if not len(columns):
        return None
    target = known if known.kind == "number" else known.only(columns)
    predicted = found.held_out[:, columns]
    return score_target(
        "label", target, predicted, train_examples=len(predicted), groups=groups, seed=seed
    )


def _choice(scores: Sequence[TargetScore | None]) -> tuple[str, ...]:
    """Return a note if there was a choice between pooled and wide features."""
    found = [score for score in scores if score is not None]
    if len(found) < 2:
        return ()
    pooled, wide = (f"{score.accuracy:.3g}" for score in found)
    measure = MEASURES[found[0].kind]
    return (f"features by cross-validated {measure}: {pooled} by pooled, {wide} by wide ones",)
