"""Softmax regression on frozen features and a handful of labels, with calibrated probabilities.

With z the features standardized over all examples, labeled or not,

    p(y | z) = softmax((W z + b) / T),

where W and b minimize the mean cross-entropy plus l2 / 2 |W|^2 over the labeled examples at T = 1.
By cross-validation over the labeled examples, `l2` and the temperature T minimize the
cross-entropy with the target

    q(y) = (m + 1) / (m + 2) if y is its class, and 1 / ((K - 1) (m + 2)) otherwise,

m the number of labels and K that of classes, so that probabilities stay below 1 with few labels.

Guo et al. (2017), "On calibration of modern neural networks", section 4.2, is the source of T, and
Platt (1999), "Probabilistic outputs for support vector machines", section 2.2, that of q.
"""

import warnings
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from threadpoolctl import threadpool_limits

from widefield.probes.folds import group_folds, groups_of_class, smallest_class
from widefield.probes.linear import L2_GRID

_FOLDS = 5
_DEFAULT_L2 = 1e-2
"""L2 strength where cross-validation is not possible."""
_LARGEST_TEMPERATURE = 100.0

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class FewLabels:
    """Predictions of a probe that was fitted to a few labels."""

    probabilities: Floats
    """[n, K], of every example."""
    held_out: Ints | None
    """Cross-validated class id of each labeled example, [m]; None if a class has one label, or one
    group, only."""
    held_out_probabilities: Floats | None
    """Their cross-validated probabilities, [m, K]; NaN where an example is in no fold."""
    l2: float
    temperature: float


def fit_few_labels(
    h: Floats,
    labeled: Ints,
    y: Ints,
    *,
    classes: int,
    groups: Ints | None = None,
    seed: int = 0,
) -> FewLabels:
    """Fit probes on the labeled rows of h [n, D], and predict all rows.

    Args:
        h: features of all examples.
        labeled: rows that have a label, [m].
        y: their class ids, 0..K-1; every class occurs.
        classes: K, at least 2.
        groups: groups of the labeled examples, [m], which no fold divides.
        seed: seed of the folds.

    Raises:
        ValueError: features are NaN or infinite.

    Example:
        >>> h = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2], [0.05], [1.15]])
        >>> known, y = np.arange(6), np.array([0, 0, 0, 1, 1, 1])
        >>> fit_few_labels(h, known, y, classes=2).probabilities[6:].argmax(1).tolist()
        [0, 1]
    """
    assert np.array_equal(np.unique(y), np.arange(classes)), "every class has a label"
    if not np.isfinite(h).all():
        raise ValueError("the features contain NaN or infinity: look at the encoder first")
    z = _standardized(h)
    known = z[labeled]
    splits = _splits(y, groups, seed)
    l2, temperature, held_out, held_out_p = _DEFAULT_L2, 1.0, None, None
    with threadpool_limits(1):  # 36 small fits: starting threads costs more than they save
        if splits:
            logits_of = {
                value: _validation_logits(known, y, splits, classes, value) for value in L2_GRID
            }
            tested = np.sort(np.concatenate([rows for _, rows in splits]))
            logits_of = {value: logits[tested] for value, logits in logits_of.items()}
            target = _target(y, classes)[tested]
            best = {value: _temperature(logits, target) for value, logits in logits_of.items()}
            l2 = min(
                logits_of, key=lambda value: _cross_entropy(logits_of[value], target, best[value])
            )
            temperature, held_out = best[l2], np.full(len(y), -1)
            held_out[tested] = logits_of[l2].argmax(1)
            held_out_p = np.full((len(y), classes), np.nan)
            held_out_p[tested] = softmax(logits_of[l2] / temperature, axis=1)
        logits = _logits(_fit(known, y, l2), z, classes)
    return FewLabels(
        probabilities=softmax(logits / temperature, axis=1),
        held_out=held_out,
        held_out_probabilities=held_out_p,
        l2=l2,
        temperature=temperature,
    )


def _splits(y: Ints, groups: Ints | None, seed: int) -> list[tuple[Ints, Ints]]:
    """Return the rows to fit on and to validate on of each fold; no folds if a class would lack."""
    if groups is None:
        counts = np.bincount(y)
        single, several = (np.flatnonzero(chosen) for chosen in (counts[y] == 1, counts[y] > 1))
        if len(np.unique(y[several])) < 2:
            return []
        folds = min(_FOLDS, int(counts[counts > 1].min()))
        splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
        parts = splitter.split(np.zeros((len(several), 1)), y[several])
        return [(np.concatenate([several[fit], single]), several[rest]) for fit, rest in parts]
    folds = min(_FOLDS, int(groups_of_class(y, groups).min()))
    fold = group_folds(y, groups, max(folds, 1), seed=seed)
    if smallest_class(y, fold) < 1:
        return []
    return [(np.flatnonzero(fold != k), np.flatnonzero(fold == k)) for k in np.unique(fold)]


def _standardized(h: Floats) -> Floats:
    """Return h with mean 0 and deviation 1 in each column; constant columns become 0."""
    h = h.astype(np.float64)
    deviation = h.std(0)
    constant = deviation <= 1e-6 * np.abs(h).max(0, initial=0)
    z: Floats = (h - h.mean(0)) / np.where(constant, np.inf, deviation)
    return z


def _fit(z: Floats, y: Ints, l2: float) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a weak penalty has no finite optimum
        return LogisticRegression(C=1 / (l2 * len(y)), max_iter=300).fit(z, y)


def _logits(probe: LogisticRegression, z: Floats, classes: int) -> Floats:
    logits: Floats = probe.decision_function(z)
    if classes == 2:  # scikit-learn returns one column, the difference of the two
        logits = np.stack([-logits / 2, logits / 2], axis=1)
    return logits


def _validation_logits(
    z: Floats, y: Ints, splits: list[tuple[Ints, Ints]], classes: int, l2: float
) -> Floats:
    """Return the cross-validated logits of the labeled examples, [m, K]."""
    logits = np.empty((len(y), classes))
    for train, validation in splits:
        logits[validation] = _logits(_fit(z[train], y[train], l2), z[validation], classes)
    return logits


def _target(y: Ints, classes: int) -> Floats:
    """Return the smoothed one-hot target of each labeled example, [m, K]."""
    other = 1 / ((classes - 1) * (len(y) + 2))
    target: Floats = np.where(np.eye(classes)[y] == 1, 1 - (classes - 1) * other, other)
    return target


def _temperature(logits: Floats, target: Floats) -> float:
    """Return the T > 0 at which softmax(logits / T) has the least cross-entropy."""
    limit = np.log(_LARGEST_TEMPERATURE)
    found = minimize_scalar(
        lambda log_t: _cross_entropy(logits, target, np.exp(log_t)), bounds=(-limit, limit)
    )
    return float(np.exp(found.x))


def _cross_entropy(logits: Floats, target: Floats, temperature: float) -> float:
    return -float((target * log_softmax(logits / temperature, axis=1)).sum(1).mean())
