"""Decisions on examples, as the pages of `explore` and `classify` save them.

The file `decisions.csv` has the columns path, decision (keep, exclude or empty) and one for each
task, with the labels after all changes. `read_labels` takes the labels of the examples that are not
excluded, and `read_excluded` the others.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from widefield.data.examples import Examples
from widefield.data.labels.read import (
    DECISION,
    EXCLUDE,
    Frame,
    Labels,
    Series,
    is_decision,
    read_labels,
)
from widefield.data.table import EXCLUDED, Skipped


def read_excluded(decisions: Labels | None) -> tuple[str, ...]:
    """Return the paths that a table of decisions excludes; none without a table."""
    if decisions is None:
        return ()
    is_series = isinstance(decisions, Mapping | Series) and not isinstance(decisions, Frame)
    table = read_labels(decisions, only=None if is_series else DECISION)
    ((task, ids),) = table.labels.items()
    decided = table.classes[task]
    other = sorted(value for value in decided if not is_decision(value))
    if other:
        raise ValueError(
            f"{table.source}: {other[0]!r} is no decision: write keep or exclude, or leave it empty"
        )
    pairs = zip(table.names, ids.tolist(), strict=True)
    return tuple(path for path, k in pairs if k >= 0 and decided[k] == EXCLUDE)


def without(examples: Examples, names: frozenset[str], listed: int) -> Examples:
    """Return the examples without those of these names, noted; `listed` were to be excluded."""
    if not listed:
        return examples
    rows = np.flatnonzero([name not in names for name in examples.names])
    if not len(rows):
        raise ValueError(f"all {len(names)} examples are excluded: keep some")
    gone = f"; {listed - len(names)} others are not in the data" if listed > len(names) else ""
    excluded = tuple(Skipped(name, EXCLUDED) for name in sorted(names))
    kept = replace(examples.take(rows), excluded=excluded)
    return kept.with_notes(f"{len(names)} examples are excluded{gone}")
