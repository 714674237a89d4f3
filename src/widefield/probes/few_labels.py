"""Softmax regression on frozen features and a handful of labels, with calibrated probabilities.

With z the features standardized over all examples, labeled or not,

    p(y | z) = softmax((W z + b) / T),

where W and b minimize the mean cross-entropy plus l2 / 2 |W|^2 over the labeled examples at T = 1.
Each labeled example is held out once; `l2` and the temperature T minimize the cross-entropy of
what the other folds' probes say of it with the target

    q(y) = ([y is its class] + 1 / n) / (1 + K / n),

n the labels of its class and K the classes: a few labels that are all read well do not make the
probe sure.

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

from widefield.probes.linear import L2_GRID

_FOLDS = 5
_ALONE = 1e-2
"""The L2 strength where no example can be held out."""
_LARGEST_TEMPERATURE = 100.0

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class FewLabels:
    """What a few labels say of every example."""

    probabilities: Floats
    """[n, K], of every example."""
    held_out: Ints | None
    """Class id [m] that each labeled example gets from probes that were fitted without it; None
    if a class has one label alone, so that it cannot be held out."""
    l2: float
    temperature: float


def fit_few_labels(h: Floats, labeled: Ints, y: Ints, *, classes: int, seed: int = 0) -> FewLabels:
    """Fit probes on the labeled rows of h [n, D], and predict all rows.

    Args:
        h: features of all examples.
        labeled: rows that have a label, [m].
        y: their class ids, 0..K-1, each of which stands there.
        classes: K, at least 2.
        seed: seeds the folds.

    Example:
        >>> h = np.array([[0.0], [0.1], [0.2], [1.0], [1.1], [1.2], [0.05], [1.15]])
        >>> known, y = np.arange(6), np.array([0, 0, 0, 1, 1, 1])
        >>> fit_few_labels(h, known, y, classes=2).probabilities[6:].argmax(1).tolist()
        [0, 1]
    """
    assert np.array_equal(np.unique(y), np.arange(classes)), "every class has a label"
    z = _standardized(h)
    known = z[labeled]
    folds = min(_FOLDS, int(np.bincount(y).min()))
    l2, temperature, held_out = _ALONE, 1.0, None
    if folds > 1:
        splits = list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(known, y))
        tried = {value: _held_out_logits(known, y, splits, classes, value) for value in L2_GRID}
        target = _target(y, classes)
        best = {value: _temperature(logits, target) for value, logits in tried.items()}
        l2 = min(tried, key=lambda value: _cross_entropy(tried[value], target, best[value]))
        temperature, held_out = best[l2], tried[l2].argmax(1)
    logits = _logits(_fit(known, y, l2), z, classes)
    return FewLabels(
        probabilities=softmax(logits / temperature, axis=1),
        held_out=held_out,
        l2=l2,
        temperature=temperature,
    )


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
    if classes == 2:  # scikit-learn then gives one column, the difference of the two
        logits = np.stack([-logits / 2, logits / 2], axis=1)
    return logits


def _held_out_logits(
    z: Floats, y: Ints, splits: list[tuple[Ints, Ints]], classes: int, l2: float
) -> Floats:
    """Return what probes say of the examples that they were fitted without, [m, K]."""
    logits = np.empty((len(y), classes))
    for fitted_on, rest in splits:
        logits[rest] = _logits(_fit(z[fitted_on], y[fitted_on], l2), z[rest], classes)
    return logits


def _target(y: Ints, classes: int) -> Floats:
    """Return the target of each labeled example, [m, K]: its class, softened by how few it has."""
    share = 1 / np.bincount(y)[y][:, None]
    target: Floats = (np.eye(classes)[y] + share) / (1 + classes * share)
    return target


def _temperature(logits: Floats, target: Floats) -> float:
    """Return the T > 0 at which softmax(logits / T) has the least cross-entropy."""
    reach = np.log(_LARGEST_TEMPERATURE)
    found = minimize_scalar(
        lambda log_t: _cross_entropy(logits, target, np.exp(log_t)), bounds=(-reach, reach)
    )
    return float(np.exp(found.x))


def _cross_entropy(logits: Floats, target: Floats, temperature: float) -> float:
    return -float((target * log_softmax(logits / temperature, axis=1)).sum(1).mean())
