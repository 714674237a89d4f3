"""Examples that are scored and were seen before: by the encoder, or by the probe with labels."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from widefield.data import Dataset, same_images


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
    """Say that a probe is scored on examples that it was fitted on, if it is."""
    count = seen_before(test, train.spec, train.digests(), train.paths)
    if not count:
        return []
    return [
        f"{count} of the {len(test)} scored {test.kind} are among those that the probe is fitted "
        "on, so the score says little: score on others, as DATA:test with --fit-on DATA:train does"
    ]
