"""What labels tell of an encoder: how often a linear probe reads them, beside the floors.

The floors are raw pixels and the same encoder untrained, of whose usual starts the better one
counts. All are asked about the same images, each judged by a probe that was fitted on others.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from widefield.data import Dataset
from widefield.evaluation.cross_fit import judging_tasks, read_task
from widefield.evaluation.paired import Change, change


@dataclass(frozen=True, kw_only=True)
class Reading:
    """How often a linear probe reads one task: off the encoder untrained and off raw pixels."""

    untrained: Change
    """The change from the encoder untrained to the trained one."""
    pixels: Change
    """The change from raw pixels to the trained encoder."""

    def below(self) -> list[str]:
        """Return below which floors the encoder is, and above which others it is not, surely."""
        floors = {"itself untrained": self.untrained, "raw pixels": self.pixels}
        lost = [name for name, c in floors.items() if c.word == "lost"]
        equal = [name for name, c in floors.items() if c.word not in ("lost", "gained")]
        said = (("surely below", lost), ("not surely above", equal))
        return [f"{words} {' and '.join(names)}" for words, names in said if names]

    def line(self, task: str) -> str:
        """Return it in one plain line.

        Example:
            >>> up = Change(before=0.3, after=0.4, low=0.05, high=0.15)
            >>> same = Change(before=0.39, after=0.4, low=-0.02, high=0.04)
            >>> Reading(untrained=up, pixels=same).line("class")
            'a linear probe reads class: 40 %, untrained 30 %, raw pixels 39 %: not surely above \
raw pixels'
        """
        trained, untrained, raw = (
            f"{100 * x:.0f} %"
            for x in (self.pixels.after, self.untrained.before, self.pixels.before)
        )
        read = f"a linear probe reads {task}: {trained}, untrained {untrained}, raw pixels {raw}"
        below = ", ".join(self.below())
        return f"{read}: {below}" if below else read


def read_labels(
    data: Dataset, trained: Tensor, untrained: Iterable[Tensor], raw: Tensor, *, seed: int
) -> dict[str, Reading]:
    """Return what a linear probe reads of each task with two classes of six examples or more.

    Args:
        data: n images and their labels.
        trained: features [n, D] of the encoder.
        untrained: features [n, D] of the encoder untrained, from one start each; asked for only
            where there is a task.
        raw: pixels [n, P].
        seed: seeds folds, probes and intervals.
    """
    tasks = judging_tasks(data)
    if not tasks:
        return {}

    def hits(h: Tensor) -> dict[str, NDArray[np.bool_]]:
        return {t: read_task(h, data.labels[t], rows, seed=seed) for t, rows in tasks.items()}

    read, of_pixels, starts = hits(trained), hits(raw), [hits(h) for h in untrained]
    return {
        task: Reading(
            untrained=change(max((s[task] for s in starts), key=np.mean), read[task], seed=seed),
            pixels=change(of_pixels[task], read[task], seed=seed),
        )
        for task in tasks
    }
