"""Built-in data sets, which need no download."""

from collections.abc import Mapping

import numpy as np

from widefield.core import rng
from widefield.data.table import Table


def shuffled_rows(stream: str, count: int, tasks: Mapping[str, tuple[str, ...]]) -> Table:
    """Return `count` rows with equally many of each class, in a random order.

    So each part of them has all classes. `tasks` are task -> class names.
    """
    left = rng.shuffled(0, stream, np.arange(count))
    labels = {}
    for task, classes in tasks.items():
        labels[task] = (left % len(classes)).astype(np.int64)
        left = left // len(classes)
    first = next(iter(tasks))
    names = [f"{tasks[first][k]}/{i:04d}" for i, k in enumerate(labels[first].tolist())]
    return Table(names=names, labels=labels, classes=dict(tasks))
