"""What a run finds out about its encoder: its health, and at the end what training gained."""

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from widefield.data import Dataset
from widefield.encoders import Encoder
from widefield.evaluation.adaptation import Adaptation, compare_with_start
from widefield.evaluation.gain import Gain, compare_with_untrained
from widefield.evaluation.neighbors import named_by_neighbors
from widefield.metrics import Health, health
from widefield.probes import extract

HEALTH_EXAMPLES = 512


class Findings:
    """Looks at an encoder while it is trained on a data set, and keeps what it saw last.

    Args:
        encoder: the one that is trained, in place.
        dataset: what it is trained on; labels are looked at where there are some.
        seed: the run's.
        device: where the encoder runs.
        start: the encoder as it began, if the run goes on from one.
        labels_unseen: whether training reads no labels, so that a probe of them tells something.
    """

    def __init__(
        self,
        encoder: Encoder,
        dataset: Dataset,
        *,
        seed: int,
        device: torch.device,
        start: Encoder | None,
        labels_unseen: bool,
    ) -> None:
        self.encoder, self.dataset, self.start = encoder, dataset, start
        self.seed, self.device, self.labels_unseen = seed, device, labels_unseen
        self.adaptation: Adaptation | None = None
        """What became of the start; None without one, and before `compare`."""
        self.gain: Gain | None = None
        """The encoder beside itself untrained; None with a start, and before `compare`."""
        self._health: Health | None = None

    def check_health(self) -> Health:
        """Return the label-free health of the encoder as it is now."""
        return health(self._some_features()[1])

    def last_health(self) -> Health:
        """Return the health that was logged last, or that of now."""
        return self._health or self.check_health()

    def log_health(self, epoch: int, say: Callable[[str], None]) -> dict[str, float | str]:
        """Check the encoder's health, say it, and return what the log keeps of it."""
        rows, h = self._some_features()
        found = self._health = health(h)
        named = named_by_neighbors(h, {task: y[rows] for task, y in self.dataset.labels.items()})
        said = "".join(f"; neighbors name {task}: {100 * s:.0f} %" for task, s in named.items())
        say(f"epoch {epoch}: {found.line()}{said}")
        if found.advice:
            say(f"  try: {found.advice}")
        return {
            "effective_rank": found.effective_rank,
            "large_singular_values": float(found.large_singular_values),
            "feature_std": found.feature_std,
            "verdict": found.verdict,
            **{f"neighbors_name_{task}": share for task, share in named.items()},
        }

    def compare(self) -> None:
        """Compare the encoder with its start, or with itself untrained."""
        if self.start is None:
            self.gain = compare_with_untrained(
                self.encoder,
                self.dataset,
                seed=self.seed,
                device=self.device,
                labels_unseen=self.labels_unseen,
            )
            return
        self.adaptation = compare_with_start(
            self.start,
            self.encoder,
            self.dataset,
            seed=self.seed,
            device=self.device,
            labels_unseen=self.labels_unseen,
        )

    def summary(self) -> str:
        """Return health, and the verdict against the start or the untrained, in sentences."""
        said = f"Its features are {self.last_health().verdict}."
        if self.gain is not None:
            return f"{said} It is {self.gain.words}."
        found = self.adaptation
        return said if found is None else f"{said} Against its start: {found.verdict}."

    def details(self) -> list[str]:
        """Return what the summary rests on, in lines."""
        lines = [self.last_health().line()]
        if self.gain is not None:
            lines += self.gain.evidence()
        elif self.adaptation is not None:
            lines += self.adaptation.lines()
        return [f"{line[0].upper()}{line[1:]}." for line in lines]

    def _some_features(self) -> tuple[NDArray[np.int64], Tensor]:
        """Return examples from all over the data, as folders are in the order of classes, and h."""
        rows = self.dataset.spread_rows(HEALTH_EXAMPLES)
        return rows, extract(self.encoder, self.dataset.images[rows], device=self.device)
