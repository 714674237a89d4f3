"""Evaluation of an encoder during a run: health, kNN accuracy, and a comparison at the end."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.core.errors import option
from widefield.core.types import ProgressCallback
from widefield.data import Dataset
from widefield.encoders import Encoder
from widefield.metrics import Health, health
from widefield.probes.checks import all_finite
from widefield.probes.compare import compare_with_baseline
from widefield.probes.comparison import Comparison
from widefield.probes.cross_fit import knn_accuracies
from widefield.probes.features import extract

# `health` was calibrated on 64 to 512 images.
HEALTH_EXAMPLES = 512


@dataclass(eq=False)
class Monitor:
    """Evaluates an encoder while it is trained, and keeps the last results."""

    encoder: Encoder
    """The encoder that is trained in place, and after training the result."""
    dataset: Dataset
    """Its training data, with or without labels."""
    _: KW_ONLY
    seed: int
    device: torch.device
    initial: Encoder | None
    """The encoder before training, if it was initialized from weights."""
    use_labels: bool
    """Whether the comparison may use labels, because training does not."""
    comparison: Comparison | None = field(default=None, init=False)
    """Comparison with the baseline; None before `compare`, and for few examples."""
    share: float | None = field(default=None, init=False)
    """Share of trained weights in their average with the initial ones; None without an average."""
    _health: Health | None = field(default=None, init=False)

    def check_health(self) -> Health:
        """Return the label-free health of the current encoder."""
        return health(self._features()[2])

    def last_health(self) -> Health:
        """Return the health that was logged last, or the current one."""
        self._health = self._health or self.check_health()
        return self._health

    def take(self, encoder: Encoder, share: float) -> None:
        """Evaluate an average with this share of trained weights from here on."""
        self.share = share
        if encoder is not self.encoder:
            self.encoder, self._health = encoder, None

    def log_health(self, epoch: int, log: Callable[[str], None]) -> dict[str, float | str]:
        """Log health and kNN accuracy, and return them as columns of the metrics."""
        rows, images, h = self._features()
        result = health(h)
        if (images == images[:1]).all():
            message = (
                f"all {self.dataset.kind} are equal, and no setting tells them apart: give others"
            )
            result = replace(result, advice=message)
        self._health = result
        groups = None if self.dataset.groups is None else self.dataset.groups[rows]
        knn = knn_accuracies(h, {task: y[rows] for task, y in self.dataset.labels.items()}, groups)
        accuracies = "".join(f"; kNN accuracy ({task}) {100 * s:.0f} %" for task, s in knn.items())
        log(f"epoch {epoch}: {result.line()}{accuracies}")
        if result.advice:
            log(f"  try: {result.advice}")
        return {
            "effective_rank": result.effective_rank,
            "large_singular_values": float(result.large_singular_values),
            "feature_std": result.feature_std,
            "verdict": result.verdict,
            **{f"knn_accuracy_{task}": accuracy for task, accuracy in knn.items()},
        }

    def compare(self, progress: ProgressCallback | None = None) -> None:
        """Compare the encoder with its initial weights, or with itself untrained."""
        self.comparison = compare_with_baseline(
            self.encoder,
            self.dataset,
            initial=self.initial,
            seed=self.seed,
            device=self.device,
            use_labels=self.use_labels,
            progress=progress,
        )

    @property
    def is_worse(self) -> bool:
        """Whether training without labels made initial weights worse.

        With labels it may give up other features on purpose.
        """
        found = self.comparison
        if found is None or found.baseline != "initial" or not self.use_labels:
            return False
        return found.verdict == "worse"

    def answer(self) -> str:
        """Return what training gained, or else the health of the features, in one sentence."""
        if self.comparison is None:
            return f"its features are {self.last_health().verdict}"
        return self.comparison.answer()

    def summary(self) -> str:
        """Return health and the verdict of the comparison in sentences."""
        state = f"Its features are {self.last_health().verdict}."
        result = self.comparison
        return state if result is None else f"{state} Verdict: {result.text}: {result.reason}."

    def details(self) -> list[str]:
        """Return the results behind the summary, in lines."""
        lines = [self.last_health().line()]
        if self.share is not None and not self.is_worse:
            lines.append(share_text(self.share))
        if self.comparison is not None:
            lines += self.comparison.lines()
        return [f"{line[0].upper()}{line[1:]}." for line in lines]

    def _features(self) -> tuple[NDArray[np.int64], NDArray[Any], Tensor]:
        # A folder lists its classes one after the other, so the examples are spread over all.
        rows = self.dataset.spread_rows(HEALTH_EXAMPLES)
        images = self.dataset.images[rows]
        h = extract(self.encoder, images, device=self.device)
        if not all_finite(h):
            raise ValueError(
                f"the features are NaN or infinite after training: lower lr or use "
                f"{option('precision', 32)}, and start again with another {option('out')}"
            )
        return rows, images, h


def share_text(share: float) -> str:
    """Return in words which weights an average has."""
    return f"weights: {100 * share:g} % trained, the rest initial"
