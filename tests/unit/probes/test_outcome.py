"""Outcomes against scikit-learn's measures, and their intervals against brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.metrics import (
    accuracy_score,
    average_precision_score,
    balanced_accuracy_score,
    mean_absolute_error,
    r2_score,
    recall_score,
)

from widefield.data.table import Target
from widefield.probes.outcome import (
    average_precision_values,
    class_outcome,
    r2_values,
    target_outcome,
)
from widefield.probes.paired import RESAMPLES, bootstrap_means, interval

PAIRS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=40)
ERROR = "mean absolute error"


def numbers(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.normal(size=n)
    return y, 0.7 * y + 0.5 * rng.normal(size=n)


def labels(n: int = 200, *, ties: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.random(n) < 0.2
    return y, np.round(rng.normal(size=n) + 1.5 * y, 0 if ties else 9)


@given(PAIRS)
def test_shares_are_scikit_learns(pairs: list[tuple[int, int]]) -> None:
    predicted, truth = (np.array(side) for side in zip(*pairs, strict=True))
    found = class_outcome(predicted, truth, ("0", "1", "2", "3"))
    assert found.value == accuracy_score(truth, predicted)
    there = sorted(set(truth.tolist()))
    recall = recall_score(truth, predicted, labels=there, average=None)
    assert [found.parts[str(k)].value for k in there] == recall.tolist()
    assert [len(part) for part in found.parts.values()] == np.bincount(truth, minlength=4).tolist()
    assert abs(found.balanced - recall.mean()) < 1e-12
    if len(there) == 4:
        assert abs(found.balanced - balanced_accuracy_score(truth, predicted)) < 1e-12


def test_a_small_class_that_is_missed_shows_in_the_mean_of_the_classes() -> None:
    truth = np.array([0] * 98 + [1] * 2)
    found = class_outcome(np.zeros_like(truth), truth, ("many", "few", "none"))
    assert (found.value, found.balanced) == (0.98, 0.5)
    assert found.to_json()["recall"] == {"many": 1.0, "few": 0.0, "none": None}


def test_values_have_the_mean_of_scikit_learn_s_measures() -> None:
    y, p = numbers()
    assert r2_values(y, p).mean() == pytest.approx(r2_score(y, p))
    found = target_outcome(Target(values=y[:, None]), p[:, None])
    assert found.parts[ERROR].value == pytest.approx(mean_absolute_error(y, p))
    for ties in (False, True):
        has, scores = labels(ties=ties)
        mean = average_precision_values(has, scores).mean()
        assert mean == pytest.approx(average_precision_score(has, scores))


@pytest.mark.parametrize("k", [0, 7, 60, 199])
def test_values_are_derivatives_by_the_weight_of_an_example(k: int) -> None:
    weight = np.ones(200)
    weight[k] += 1e-5
    y, p = numbers()
    cases = [(r2_score, y, p, r2_values(y, p))]
    cases += [
        (average_precision_score, *pair, average_precision_values(*pair))
        for pair in (labels(ties=False), labels(ties=True))
    ]
    for measure, truth, predicted, values in cases:
        base = measure(truth, predicted)
        slope = (measure(truth, predicted, sample_weight=weight) - base) / 1e-5
        assert base + 200 * slope == pytest.approx(values[k], rel=1e-3, abs=1e-3)


def test_intervals_are_those_of_resampled_measures() -> None:
    rng, (y, p), (has, scores) = np.random.default_rng(1), numbers(), labels(ties=False)
    drawn = [rng.integers(200, size=200) for _ in range(300)]
    number = target_outcome(Target(values=y[:, None]), p[:, None])
    target = Target(values=has[:, None].astype(float), labels=("edema",))
    label = target_outcome(target, scores[:, None]).parts["edema"]
    for found, measure, pair in (
        (number, r2_score, (y, p)),
        (label, average_precision_score, (has, scores)),
    ):
        low, high = np.quantile([measure(*(x[i] for x in pair)) for i in drawn], (0.025, 0.975))
        assert np.abs(np.array(found.interval) - (low, high)).max() < 0.2 * (high - low)


def test_few_examples_with_a_label_tell_little() -> None:
    """Of ten examples with it, the interval covers; a bootstrap of the same numbers does not."""
    rng = np.random.default_rng(0)

    def draw(n: int) -> tuple[Target, np.ndarray]:
        has = rng.random((n, 2)) < 0.1
        target = Target(values=has.astype(float), labels=("edema", "effusion"))
        return target, rng.normal(size=has.shape) + 3 * has

    truth = target_outcome(*draw(200_000)).value
    covered = np.zeros((200, 3), bool)
    for row in covered:
        found = target_outcome(*draw(100))
        part = found.parts["edema"]
        spans = found.interval, part.interval, interval(*bootstrap_means(part.values, seed=0))
        row[:] = [low <= truth <= high for low, high in spans]
    both, one, bootstrap = covered.mean(0)
    assert (both > 0.9, one > 0.9, bootstrap < 0.8) == (True, True, True)
    right = np.eye(20)[:, :1]
    perfect = target_outcome(Target(values=right, labels=("rare",)), right).parts["rare"]
    assert perfect.interval[0] < 0.3
    assert perfect.interval[1] == perfect.value == 1


@pytest.mark.parametrize(("count", "labels"), [(1, 1), (1, 5), (2, 1), (3, 1), (2, 3), (5, 1)])
def test_equal_scores_seldom_differ_with_few_examples_with_a_label(count: int, labels: int) -> None:
    rng, draws = np.random.default_rng(0), 150
    differ = 0
    for _ in range(draws):
        has = rng.permuted(np.arange(60)[:, None] < np.full(labels, count), axis=0)
        target = Target(values=has.astype(float), labels=tuple(map(str, range(labels))))
        one, other = (target_outcome(target, rng.normal(size=has.shape) + has) for _ in range(2))
        differ += one.minus(other).verdict != "no significant difference"
    assert differ <= 0.06 * draws


def test_an_interval_counts_groups() -> None:
    """Of equal examples in ten groups it is that of ten examples: about 4 times as wide."""
    y, p = numbers()
    repeated = np.repeat(np.arange(10), 20)

    def span(rows: NDArray[np.int64], groups: NDArray[np.int64] | None) -> tuple[float, float]:
        return target_outcome(Target(values=y[rows, None]), p[rows, None], groups=groups).interval

    low, high = span(repeated, repeated)
    plain = span(repeated, None)
    assert high - low > 2 * (plain[1] - plain[0])
    one = np.zeros(200, dtype=np.int64)
    assert span(np.arange(200), one) == (-np.inf, 1)  # one group tells nothing


def test_all_scores_are_resampled_by_the_same_examples() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 60)) < 0.5
    means = bootstrap_means(a, b, seed=3)
    assert [len(mean) for mean in means] == [RESAMPLES, RESAMPLES]
    (difference,) = bootstrap_means(b.astype(float) - a, seed=3)
    np.testing.assert_allclose(means[1] - means[0], difference)
    # By hand: the same draws, one resample after another.
    drawn = np.random.default_rng(3).integers(60, size=(RESAMPLES, 60))
    np.testing.assert_allclose(means[0], [a[rows].mean() for rows in drawn])
    low, high = interval(means[0])
    assert np.mean((means[0] >= low) & (means[0] <= high)) >= 0.95
