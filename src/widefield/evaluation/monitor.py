"""What a run logs of its encoder: health and kNN accuracy, and a comparison at the end."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.data import Dataset
from widefield.encoders import Encoder
from widefield.evaluation.comparison import Comparison, compare_with_baseline
from widefield.evaluation.cross_fit import knn_accuracies
from widefield.metrics import Health, health
from widefield.probes import extract

HEALTH_EXAMPLES = 512


class Monitor:
    """Evaluates an encoder while it is trained, and keeps the last results.

    Args:
        encoder: the one that is trained, in place.
        dataset: what it is trained on; labels are used where there are some.
        seed: the run's.
        device: where the encoder runs.
        initial: the encoder before training, if it was initialized from weights.
        use_labels: whether training reads no labels, so that they can judge the encoder.
    """

    def __init__(
        self,
        encoder: Encoder,
        dataset: Dataset,
        *,
        seed: int,
        device: torch.device,
        initial: Encoder | None,
        use_labels: bool,
    ) -> None:
        self.encoder, self.dataset, self.initial = encoder, dataset, initial
        self.seed, self.device, self.use_labels = seed, device, use_labels
        self.comparison: Comparison | None = None
        """The encoder beside its baseline; None before `compare`, and for few examples."""
        self._health: Health | None = None

    def check_health(self) -> Health:
        """Return the label-free health of the encoder as it is now."""
        return health(self._some_features()[1])

    def last_health(self) -> Health:
        """Return the health that was logged last, or that of now."""
        return self._health or self.check_health()

    def log_health(self, epoch: int, say: Callable[[str], None]) -> dict[str, float | str]:
        """Check health and kNN accuracy, say them, and return them as columns of the log."""
        rows, h = self._some_features()
        found = self._health = health(h)
        knn = knn_accuracies(h, {task: y[rows] for task, y in self.dataset.labels.items()})
        accuracies = "".join(f"; kNN accuracy ({task}) {100 * s:.0f} %" for task, s in knn.items())
        say(f"epoch {epoch}: {found.line()}{accuracies}")
        if found.advice:
            say(f"  try: {found.advice}")
        return {
            "effective_rank": found.effective_rank,
            "large_singular_values": float(found.large_singular_values),
            "feature_std": found.feature_std,
            "verdict": found.verdict,
            **{f"knn_accuracy_{task}": accuracy for task, accuracy in knn.items()},
        }

    def compare(self) -> None:
        """Compare the encoder with its initial weights, or with itself untrained."""
        self.comparison = compare_with_baseline(
            self.encoder,
            self.dataset,
            initial=self.initial,
            seed=self.seed,
            device=self.device,
            use_labels=self.use_labels,
        )

    def summary(self) -> str:
        """Return health and the verdict of the comparison in sentences."""
        state = f"Its features are {self.last_health().verdict}."
        found = self.comparison
        return state if found is None else f"{state} Verdict: {found.phrase}."

    def details(self) -> list[str]:
        """Return what the summary rests on, in lines."""
        lines = [self.last_health().line()]
        if self.comparison is not None:
            lines += self.comparison.lines()
        return [f"{line[0].upper()}{line[1:]}." for line in lines]

    def _some_features(self) -> tuple[NDArray[np.int64], Tensor]:
        """Return examples from all over the data, as folders are in the order of classes, and h."""
        rows = self.dataset.spread_rows(HEALTH_EXAMPLES)
        return rows, extract(self.encoder, self.dataset.images[rows], device=self.device)
