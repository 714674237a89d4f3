"""Which images to label next: those that stand for many others whose class is in doubt.

With s_ij the cosine of two examples' centered features, L the labeled examples and u_j the doubt,
one minus the difference of the two largest probabilities of example j, the next example is

    argmax_i  sum_j u_j max(0, s_ij - c_j),        c_j = max(0, max_{l in L} s_lj),

and it joins L before the one after it is chosen. The sum is the growth of a submodular function,
the doubt that is covered, so that choosing greedily reaches 1 - 1/e of the best set (Nemhauser et
al. 1978). Outliers stand for nobody and are not chosen; near-duplicates are not chosen twice.
"""

import numpy as np
from numpy.typing import NDArray

_SAMPLE = 4000
"""Examples at most among which is chosen, and whose doubt counts: n x n cosines are held.

Where more are asked for, all of such a sample are named, and then others of another sample."""


def suggest(
    h: NDArray[np.floating],
    labeled: NDArray[np.int64],
    probabilities: NDArray[np.floating],
    count: int,
    *,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Return up to `count` rows to label next, the most useful first.

    Args:
        h: features of all examples, [n, D].
        labeled: rows that have a label.
        probabilities: of every example's classes, [n, K].
        count: how many.
        seed: seeds the samples of very many examples.

    Example:
        >>> h = np.array([[1.0, 0], [1, 0.1], [-1, 0], [-1, 0.1], [-1, 0.05]])
        >>> doubt = np.full((5, 2), 0.5)
        >>> int(suggest(h, np.array([0]), doubt, 1)[0])
        4
    """
    unit = h - h.mean(0)
    unit = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    rng = np.random.default_rng(seed)
    unlabeled = np.setdiff1d(np.arange(len(h)), labeled)
    named = np.array([], dtype=np.int64)
    while len(named) < min(count, len(unlabeled)):
        rest = np.setdiff1d(unlabeled, named)
        if len(rest) > _SAMPLE:
            rest = np.sort(rng.choice(rest, _SAMPLE, replace=False))
        few = min(count - len(named), len(rest))
        seen = np.concatenate([labeled, named])
        named = np.concatenate([named, _chosen(unit, seen, rest, probabilities[rest], few)])
    return named


def _chosen(
    unit: NDArray[np.floating],
    seen: NDArray[np.int64],
    rest: NDArray[np.int64],
    probabilities: NDArray[np.floating],
    count: int,
) -> NDArray[np.int64]:
    """Return `count` of the rows `rest`, chosen one by one as the equation says; `seen` are L."""
    likeness = unit[rest] @ unit[rest].T
    best = np.sort(probabilities, axis=1)
    doubt = 1 - (best[:, -1] - best[:, -2])
    covered = np.maximum(0, unit[rest] @ unit[seen].T).max(1, initial=0)
    chosen: list[int] = []
    for _ in range(count):
        growth = np.maximum(0, likeness - covered) @ doubt
        growth[chosen] = -np.inf
        chosen.append(int(growth.argmax()))
        covered = np.maximum(covered, likeness[chosen[-1]])
    return rest[chosen]
