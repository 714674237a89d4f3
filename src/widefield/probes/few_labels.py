"""Softmax regression on frozen features and a handful of labels, with calibrated probabilities.

With z the features standardized over all examples, labeled or not,

    p(y | z) = softmax((W z + b) / T),

where W and b minimize the mean cross-entropy plus l2 / 2 |W|^2 over the labeled examples at T = 1.
By cross-validation over the labeled examples, `l2`, the temperature T, and which of several
features are taken, minimize the cross-entropy with the target

    q(y) = (m + 1) / (m + 2) if y is its class, and 1 / ((K - 1) (m + 2)) otherwise,

m the number of labels and K that of classes, so that probabilities stay below 1 with few labels.
What is predicted for a label that is held out goes by what is best for the other folds alone:
chosen by the same labels as it is scored on, the accuracy of 10 labels is several points too high.

Guo et al. (2017), "On calibration of modern neural networks", section 4.2, is the source of T, and
Platt (1999), "Probabilistic outputs for support vector machines", section 2.2, that of q.
"""

import warnings
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from widefield.probes.folds import class_splits
from widefield.probes.linear import L2_GRID
from widefield.probes.outcome import Predictions
from widefield.probes.standardize import Standardization

# Chosen by hand: the middle of the grid, on a logarithmic scale.
_DEFAULT_L2 = 1e-2
"""L2 strength where cross-validation is not possible."""
# Chosen by hand: at a temperature of 100 all classes are about equally probable, and below 1/100
# the largest logit alone counts.
_LARGEST_TEMPERATURE = 100.0

Floats = NDArray[np.floating]
Ints = NDArray[np.int64]


def fit_few_labels(
    h: Floats,
    labeled: Ints,
    y: Ints,
    *others: Floats,
    classes: int,
    groups: Ints | None = None,
    seed: int = 0,
) -> Predictions:
    """Fit probes on the rows `labeled` [m] of h [n, D], and predict all rows.

    Class ids y [m] are 0..K-1, each of which occurs. `others` [n, E] are taken in place of h if
    they predict held-out labels better. No fold divides one of the `groups` [m].
    """
    assert np.array_equal(np.unique(y), np.arange(classes)), "every class has a label"
    if not all(np.isfinite(x).all() for x in (h, *others)):
        raise ValueError("the features contain NaN or infinity: look at the encoder first")
    readouts = [_standardized(x, labeled) for x in (h, *others)]
    splits = class_splits(y, groups, seed=seed)
    grid = [(readout, l2) for readout in range(len(readouts)) for l2 in L2_GRID]
    readout, l2, temperature, errors = 0, _DEFAULT_L2, 1.0, np.array([])
    held_out = np.full((len(y), classes), np.nan)
    with threadpool_limits(1):  # 36 small fits: starting threads costs more than they save
        if splits:
            target = _target(y, classes)
            logits_of = [
                _validation_logits(readouts[readout][labeled], y, splits, classes, l2)
                for readout, l2 in grid
            ]
            parts = [rows for _, rows in splits]
            for k, rows in enumerate(parts):
                rest = np.sort(np.concatenate(parts[:k] + parts[k + 1 :]))
                best, of_rest, _ = _select(logits_of, target, rest)
                held_out[rows] = softmax(logits_of[best][rows] / of_rest, axis=1)
            best, temperature, errors = _select(logits_of, target, np.sort(np.concatenate(parts)))
            readout, l2 = grid[best]
        z = readouts[readout]
        logits = _logits(_fit(z[labeled], y, l2), z, classes)
    return Predictions(
        predicted=softmax(logits / temperature, axis=1),
        held_out=held_out,
        l2=(l2,),
        temperature=temperature,
        readout=readout,
        errors=tuple(errors.reshape(-1, len(L2_GRID)).min(1).tolist()),
    )


def _standardized(h: Floats, labeled: Ints) -> Floats:
    """Return z [n, D], in at most as many axes as there are labeled rows."""
    x = torch.from_numpy(h)
    z: Floats = Standardization.of(x, torch.float64)(x).numpy()
    if z.shape[1] > len(labeled):
        # The penalty leaves W in the span of the labeled rows, in whose axes every fit is the same.
        z = z @ np.linalg.qr(z[labeled].T).Q
    return z


def _select(logits_of: Sequence[Floats], target: Floats, rows: Ints) -> tuple[int, float, Floats]:
    """Return which of the logits [m, K] predict these rows best, at which T, and all errors."""
    best = [_temperature(logits[rows], target[rows]) for logits in logits_of]
    errors = np.array(
        [
            _cross_entropy(logits[rows], target[rows], temperature)
            for logits, temperature in zip(logits_of, best, strict=True)
        ]
    )
    index = int(errors.argmin())
    return index, best[index], errors


def _fit(z: Floats, y: Ints, l2: float) -> LogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # a weak penalty has no finite optimum
        # Weak penalties converge slowly. Where scikit-learn stops by default, 100 iterations or a
        # gradient of 1e-4, probabilities of three labels are off by 0.02.
        return LogisticRegression(C=1 / (l2 * len(y)), max_iter=300, tol=1e-6).fit(z, y)


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
