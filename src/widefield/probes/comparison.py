"""The comparison of two encoders by paired differences of their scores on the same images.

The baseline is the untrained encoder, or the one that training was initialized from. The scores and
the rule of the verdict depend on it; see `verdicts.py`.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from widefield.core.files import write_atomically
from widefield.core.names import count_text
from widefield.core.types import Kind
from widefield.metrics.collapse import FeatureState
from widefield.probes.explained import Explained
from widefield.probes.paired import PairedDifference, percent
from widefield.probes.verdicts import ComparisonVerdict

_FORMAT = 4
Baseline = Literal["untrained", "initial", "other"]
NAMES = {
    "neighbor_consistency": "neighbor consistency under augmentation",
    "rotation_accuracy": "rotation prediction",
    "quadrant_retrieval": "opposite-quadrant retrieval",
}
TEMPLATES: dict[ComparisonVerdict, str] = {
    "better": "better than {}",
    "worse": "worse than {}",
    "no significant difference": "no significant difference from {}",
    "inconclusive": "inconclusive against {}",
}


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Comparison of an encoder with a baseline; pairs are (baseline, encoder)."""

    baseline: Baseline
    verdict: ComparisonVerdict
    reason: str
    without_labels: ComparisonVerdict
    examples: int
    health: tuple[FeatureState, FeatureState]
    effective_rank: tuple[float, float]
    cka: float | None
    """Linear CKA of the two encoders' features; None if one is constant."""
    kept: Explained | None
    """How much of the initial features the new ones explain; None for another baseline."""
    label_free: Mapping[str, PairedDifference]
    """`neighbor_consistency`; against the untrained encoder also `rotation_accuracy`,
    `quadrant_retrieval` and the `mean` of the three."""
    planted: Mapping[str, PairedDifference]
    """Planted feature -> linear-probe accuracy; empty against the untrained encoder."""
    linear: Mapping[str, PairedDifference]
    """Task -> linear-probe accuracy; empty without labels. Against the untrained encoder, both
    sides have the better of their pooled and wide features."""
    knn: Mapping[str, PairedDifference]
    """Task -> kNN accuracy."""
    pooled: Mapping[str, float]
    """Task -> linear-probe accuracy of the encoder's pooled features; `linear` has those of its
    best readout against the untrained encoder."""
    pixels: Mapping[str, PairedDifference]
    """Task -> linear-probe accuracy from raw pixels to the encoder; empty against the initial
    encoder."""
    dictionary: Mapping[str, PairedDifference]
    """Task -> linear-probe accuracy from a dictionary of patches to the encoder, likewise."""
    pixels_consistency: float | None
    """Neighbor consistency of raw pixels; None against the initial encoder."""
    linear_interval: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Task -> 95 % interval of the encoder's accuracy in `linear`."""
    groups: int | None = None
    """Number of groups that folds and intervals keep whole; None if examples are not grouped."""
    copies: str | None = None
    """A sentence on near-copies across the folds; None without."""
    kind: Kind = "images"
    """Kind of the examples; sounds are compared by their labels alone."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"format": _FORMAT, **asdict(self)}

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        text = json.dumps(self.to_json(), indent=1) + "\n"
        write_atomically(path, lambda temp_path: temp_path.write_text(text, "utf-8"))

    @property
    def text(self) -> str:
        """The verdict and the baseline."""
        name = self.baseline if self.baseline == "untrained" else f"the {self.baseline} encoder"
        return TEMPLATES[self.verdict].format(name)

    def answer(self) -> str:
        """Return in one sentence what was gained: by the linear probe, or by the verdict."""
        if not self.linear:
            return f"{self.text}: {self.reason}"
        return "; ".join(map(self._answer_on, self.linear))

    def _answer_on(self, task: str) -> str:
        untrained = self.baseline == "untrained"
        name = "the untrained network" if untrained else f"the {self.baseline} encoder"
        score = self.linear[task]
        parts = [_points(score, name)]
        if task in self.pixels:
            parts.append(_points(self.dictionary[task], "a dictionary of patches"))
            parts.append(_points(self.pixels[task], "raw pixels"))
        return f"linear probe on {task} {percent(score.after)}: {', '.join(parts)}"

    def lines(self) -> list[str]:
        """Return the verdict and the scores, one line each."""
        untrained = self.baseline == "untrained"
        scores = (
            [*self._label_free_line(), *map(self._linear_line, self.linear)]
            if untrained
            else self._initial_lines()
        )
        grouped = f"; {self.groups} groups, each scored as a whole" if self.groups else ""
        notes = [] if self.copies is None else [self.copies]
        return [f"{self.text}: {self.reason}{grouped}", *scores, *notes]

    def _label_free_line(self) -> list[str]:
        parts = []
        for name, score in self.label_free.items():
            if name not in NAMES:
                continue
            floors = f"untrained {percent(score.before)}"
            if name == "neighbor_consistency" and self.pixels_consistency is not None:
                floors += f", raw pixels {percent(self.pixels_consistency)}"
            parts.append(f"{NAMES[name]} {percent(score.after)} ({floors})")
        if not parts:
            return []
        if not self.linear and self.verdict != "better":
            parts.append("a few labels would show more")
        return ["; ".join(parts)]

    def _linear_line(self, task: str) -> str:
        raw = "raw pixels" if self.kind == "images" else "raw spectrogram"
        floors = {
            "untrained": self.linear[task],
            "dictionary": self.dictionary[task],
            raw: self.pixels[task],
        }
        values = ", ".join(f"{name} {percent(score.before)}" for name, score in floors.items())
        best, pooled = percent(self.linear[task].after), percent(self.pooled[task])
        after = best if best == pooled else f"{best} (pooled {pooled})"
        line = f"linear-probe accuracy ({task}): {after}{self._interval(task)}, {values}"
        lower = [name for name, score in floors.items() if score.verdict == "lower"]
        equal = [name for name, s in floors.items() if s.verdict == "no significant difference"]
        groups = (("significantly below", lower), ("not significantly above", equal))
        below = ", ".join(f"{words} {' and '.join(names)}" for words, names in groups if names)
        return f"{line}: {below}" if below else line

    def _interval(self, task: str) -> str:
        if not self.groups:
            return ""
        low, high = (100 * end for end in self.linear_interval[task])
        return f" [{low:.0f}, {high:.0f}]"

    def _initial_lines(self) -> list[str]:
        rank = self.effective_rank
        lines = [f"{NAMES[name]}: {score.line()}" for name, score in self.label_free.items()]
        similar = "" if self.cka is None else f"; linear CKA {self.cka:.2f}"
        features = f"features {self.health[1]}{similar}"
        lines.append(f"effective rank: {rank[0]:.0f} to {rank[1]:.0f}; {features}")
        if self.kept is not None:
            share = percent(self.kept.directions)
            lines.append(
                f"initial features explained by a linear map: held-out R^2 {self.kept.r2:.2f}, "
                f"above .5 in {share} of their directions"
            )
        for task, score in self.planted.items():
            lines.append(f"linear-probe accuracy (planted {task}): {score.line()}")
        for task, score in self.linear.items():
            lines.append(f"linear-probe accuracy ({task}): {score.line()}{self._interval(task)}")
            lines.append(f"kNN accuracy ({task}): {self.knn[task].line()}")
        return lines


def _points(score: PairedDifference, name: str) -> str:
    points = round(100 * abs(score.difference))
    return score.compare_text(name, count_text(points, "point"))
