"""Active learning: selection of images to label that represent many uncertain ones.

With s_ij the cosine of two examples' centered features, L the labeled examples and u_j the
uncertainty, one minus the difference of the two largest probabilities of example j, the next
example is

    argmax_i  sum_j u_j max(0, s_ij - c_j),        c_j = max(0, max_{l in L} s_lj),

over the examples i that are predicted as the class of which L has the fewest, and it is added to L
before the next selection. Without this limit, a class that is most of the data gets most of the
suggestions. The sum is the increment of a submodular function,
so that greedy selection reaches 1 - 1/e of the optimum (Nemhauser et al. 1978). Outliers represent
no others and are not selected; near-duplicates are not selected twice.
"""

import numpy as np
from numpy.typing import NDArray

# 64 MB of cosines in float32.
_SAMPLE = 4000
"""Maximum number n of candidates, for which n x n cosines are in memory.

If more are requested, all of one sample are returned, followed by some of another."""


def suggest(
    h: NDArray[np.floating],
    labeled: NDArray[np.int64],
    probabilities: NDArray[np.floating],
    count: int,
    *,
    groups: NDArray[np.int64] | None = None,
    seed: int = 0,
) -> NDArray[np.int64]:
    """Return up to `count` rows of h [n, D] to label next, the most useful first.

    `probabilities` of the classes are [n, K]. Groups without a labeled or selected example come
    first. `seed` draws the candidates among very many examples.
    """
    unit = h - h.mean(0)
    unit = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    rng = np.random.default_rng(seed)
    groups = np.arange(len(h)) if groups is None else groups
    unlabeled = np.setdiff1d(np.arange(len(h)), labeled)
    result = np.array([], dtype=np.int64)
    while len(result) < min(count, len(unlabeled)):
        candidates = np.setdiff1d(unlabeled, result)
        known_groups = groups[np.concatenate([labeled, result])]
        new = candidates[~np.isin(groups[candidates], known_groups)]
        candidates = new if len(new) else candidates
        if len(candidates) > _SAMPLE:
            candidates = np.sort(rng.choice(candidates, _SAMPLE, replace=False))
        needed = min(count - len(result), len(np.unique(groups[candidates])))
        known = np.concatenate([labeled, result])
        selected = _greedy(unit, known, candidates, probabilities, groups, needed)
        result = np.concatenate([result, selected])
    return result


def _greedy(
    unit: NDArray[np.floating],
    labeled: NDArray[np.int64],
    candidates: NDArray[np.int64],
    probabilities: NDArray[np.floating],
    groups: NDArray[np.int64],
    count: int,
) -> NDArray[np.int64]:
    """Return `count` of the rows `candidates`, one a group, by the equation; `labeled` are L."""
    similarity = unit[candidates] @ unit[candidates].T
    best = np.sort(probabilities[candidates], axis=1)
    uncertainty = 1 - (best[:, -1] - best[:, -2])
    predicted = probabilities.argmax(1)
    known = np.bincount(predicted[labeled], minlength=probabilities.shape[1])
    predicted = predicted[candidates]
    covered = np.maximum(0, unit[candidates] @ unit[labeled].T).max(1, initial=0)
    selected: list[int] = []
    for _ in range(count):
        growth = np.maximum(0, similarity - covered) @ uncertainty
        left = ~np.isin(groups[candidates], groups[candidates[selected]])
        min_known = known[predicted[left]].min()
        growth[~left | (known[predicted] > min_known)] = -np.inf
        selected.append(int(growth.argmax()))
        known[predicted[selected[-1]]] += 1
        covered = np.maximum(covered, similarity[selected[-1]])
    return candidates[selected]
