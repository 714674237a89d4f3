"""What a run made of the encoder that it started from: before and after, and a verdict.

Both encoders see the same images, so what changed is judged example by example.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from widefield.core.files import write_atomically
from widefield.data import Dataset
from widefield.evaluation.cross_fit import Examination
from widefield.evaluation.paired import (
    Change,
    Verdict,
    change,
    judged_by_labels,
    judged_without_labels,
)
from widefield.metrics import linear_cka
from widefield.probes import extract

FORMAT = 1
EXAMPLES = 2000
"""Images that are compared, at most."""
LEAST = 30
"""Images without which nothing is compared."""


@dataclass(frozen=True, kw_only=True)
class Adaptation:
    """A start and what a run made of it, compared on the run's own images."""

    verdict: Verdict
    why: str
    without_labels: Verdict
    """What the verdict would be without labels."""
    examples: int
    agreement: Change
    """Share of its neighbors that an image keeps when it is seen through a view."""
    rank: tuple[float, float]
    """Effective rank before and after."""
    health: tuple[str, str]
    """`healthy`, `collapsing` or `collapsed`, before and after."""
    alignment: float | None
    """Linear CKA of the features before and after; None where one side does not vary."""
    planted: Mapping[str, Change]
    """Planted feature -> how often a linear probe reads it."""
    linear: Mapping[str, Change]
    """Task of the data -> how often a linear probe reads it; empty without labels."""
    knn: Mapping[str, Change]
    """Task of the data -> how often the nearest neighbors' vote is right."""

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"format": FORMAT, **asdict(self)}

    def write(self, path: Path) -> None:
        """Write it as JSON."""
        text = json.dumps(self.to_json(), indent=1) + "\n"
        write_atomically(path, lambda draft: draft.write_text(text, "utf-8"))

    def lines(self) -> list[str]:
        """Return what changed in plain lines, the verdict last."""
        tasks = [
            f"{task}, {how}: {changes[task].line()}"
            for task in self.linear
            for how, changes in (("linear probe", self.linear), ("neighbors' vote", self.knn))
        ]
        alike = "" if self.alignment is None else f", {100 * self.alignment:.0f} % like the start's"
        return [
            f"neighbors kept through views: {self.agreement.line()}",
            f"effective rank: {self.rank[0]:.0f} to {self.rank[1]:.0f}; features {self.health[1]}"
            f"{alike} (linear CKA)",
            *(f"planted {name}: {c.line()}" for name, c in self.planted.items()),
            *tasks,
            f"verdict: {self.verdict}: {self.why}",
        ]


def compare_with_start(
    start: nn.Module,
    encoder: nn.Module,
    dataset: Dataset,
    *,
    seed: int,
    device: torch.device,
    labels_unseen: bool = True,
) -> Adaptation | None:
    """Compare an encoder with its start on up to 2,000 images; None below 30, and for signals.

    Args:
        start: x[B, C, H, W] in [0, 1] -> h[B, D].
        encoder: what became of it.
        dataset: images, with labels or without.
        seed: seeds views, plants, folds and intervals.
        device: where the encoders run.
        labels_unseen: whether the encoder was trained without the labels, so that they can judge.
    """
    if len(dataset) < LEAST or dataset.kind != "images":  # views of signals are others
        return None
    data = dataset.subset(dataset.spread_rows(EXAMPLES)).first_read()
    questions = Examination(data, seed=seed, labels=labels_unseen)
    old, new = (
        questions.of(partial(extract, e.to(device), device=device)) for e in (start, encoder)
    )
    agreement = change(old.agreement, new.agreement, seed=seed)
    linear = {name: change(old.linear[name], new.linear[name], seed=seed) for name in old.linear}
    knn = {name: change(old.knn[name], new.knn[name], seed=seed) for name in old.knn}
    planted = {name: linear.pop(name) for name in questions.plants if name in linear}
    sick = old.health.verdict == "healthy" != new.health.verdict
    rank = old.health.effective_rank, new.health.effective_rank
    without_labels, why = judged_without_labels(agreement, planted, rank=rank, sick=sick)
    verdict = without_labels
    if linear and not sick:
        verdict, why = judged_by_labels([*linear.values(), *knn.values()])
    return Adaptation(
        verdict=verdict,
        why=why,
        without_labels=without_labels,
        examples=len(data),
        agreement=agreement,
        rank=rank,
        health=(old.health.verdict, new.health.verdict),
        alignment=_alignment(old.features, new.features),
        planted=planted,
        linear=linear,
        knn=knn,
    )


def _alignment(old: Tensor, new: Tensor) -> float | None:
    try:
        return linear_cka(old, new)
    except ValueError:  # one of them does not vary
        return None
