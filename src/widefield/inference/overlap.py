"""Examples that are scored and were seen before: by the encoder, or by the probe with labels."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from widefield.data import Dataset, same_images

_FEW = 0.05
"""Share of the scored examples below which those that were fitted on hardly change the score."""


def seen_before(
    test: Dataset, spec: str, digests: NDArray[np.uint64], paths: Collection[str]
) -> int:
    """Count the examples of `test` that are among those of `spec`, whatever is planted on them.

    Args:
        test: examples to score on.
        spec: where the others come from.
        digests: theirs.
        paths: theirs.
    """
    same = np.isin(test.digests(), digests)
    if same_images(spec, test.spec):
        # A planted feature that is drawn anew changes the pixels, not the image below it.
        same |= np.isin(test.paths, list(paths))
    return int(same.sum())


def fitted_note(test: Dataset, train: Dataset) -> list[str]:
    """Say of a probe that is scored on examples that it was fitted on what that does."""
    count = seen_before(test, train.spec, train.digests(), train.paths)
    if not count:
        return []
    some, one = f"{count} of the {len(test)} scored {test.kind}", count == 1
    if count < _FEW * len(test):
        copies = "is a copy of one" if one else "are copies of some"
        raises = "it raises" if one else "they raise"
        return [
            f"{some} {copies} that the probe is fitted on: {raises} the score by "
            f"{100 * count / len(test):.1f} points at most"
        ]
    remedy = "score on others, as DATA:test with --train-data DATA:train does"
    if set(test.paths).isdisjoint(train.paths):  # they are others already, with copies among them
        remedy = "leave out the copies, which widefield explore lists"
    are = "is" if one else "are"
    return [
        f"{some} {are} among those that the probe is fitted on, so the score says little: {remedy}"
    ]
