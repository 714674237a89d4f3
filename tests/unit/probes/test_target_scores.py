"""R^2 and average precision against scikit-learn's, and their intervals against brute force."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, mean_absolute_error, r2_score

from widefield.data.table import Target
from widefield.probes.target_scores import (
    average_precision_values,
    mean_floor,
    r2_values,
    score_target,
)


def _numbers(n: int = 200) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.normal(size=n)
    return y, 0.7 * y + 0.5 * rng.normal(size=n)


def _labels(n: int = 200, *, ties: bool) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.random(n) < 0.2
    return y, np.round(rng.normal(size=n) + 1.5 * y, 0 if ties else 9)


def test_values_have_the_mean_of_scikit_learn_s_measures() -> None:
    y, p = _numbers()
    assert r2_values(y, p).mean() == pytest.approx(r2_score(y, p))
    found = score_target("age", Target(values=y[:, None]), p[:, None], train_examples=9)
    assert found.error is not None
    assert found.error.value == pytest.approx(mean_absolute_error(y, p))
    for ties in (False, True):
        has, scores = _labels(ties=ties)
        mean = average_precision_values(has, scores).mean()
        assert mean == pytest.approx(average_precision_score(has, scores))


@pytest.mark.parametrize("k", [0, 7, 60, 199])
def test_values_are_derivatives_by_the_weight_of_an_example(k: int) -> None:
    weight = np.ones(200)
    weight[k] += 1e-5
    y, p = _numbers()
    cases = [(r2_score, y, p, r2_values(y, p))]
    cases += [
        (average_precision_score, *pair, average_precision_values(*pair))
        for pair in (_labels(ties=False), _labels(ties=True))
    ]
    for measure, truth, predicted, values in cases:
        base = measure(truth, predicted)
        slope = (measure(truth, predicted, sample_weight=weight) - base) / 1e-5
        assert base + 200 * slope == pytest.approx(values[k], rel=1e-3, abs=1e-3)


def test_intervals_are_those_of_resampled_measures() -> None:
    rng, (y, p), (has, scores) = np.random.default_rng(1), _numbers(), _labels(ties=False)
    drawn = [rng.integers(200, size=200) for _ in range(1000)]
    number = score_target("age", Target(values=y[:, None]), p[:, None], train_examples=9).score
    target = Target(values=has[:, None].astype(float), labels=("edema",))
    label = score_target("x", target, scores[:, None], train_examples=9).labels["edema"]
    for found, measure, pair in (
        (number, r2_score, (y, p)),
        (label, average_precision_score, (has, scores)),
    ):
        low, high = np.quantile([measure(*(x[i] for x in pair)) for i in drawn], (0.025, 0.975))
        width = high - low
        assert abs(found.low - low) < 0.2 * width
        assert abs(found.high - high) < 0.2 * width
    # of equal examples in ten groups the interval is that of ten examples: about 4 times as wide
    repeated = np.repeat(np.arange(10), 20)
    grouped = score_target(
        "x", Target(values=y[repeated][:, None]), p[repeated][:, None], train_examples=9,
        groups=repeated,
    ).score  # fmt: skip
    plain = score_target(
        "x", Target(values=y[repeated][:, None]), p[repeated][:, None], train_examples=9
    ).score
    assert min(grouped.high, 1) - grouped.low > 2 * (plain.high - plain.low)
    one = score_target(
        "x", Target(values=y[:, None]), p[:, None], train_examples=9, groups=np.zeros(200, int)
    ).score
    assert (one.low, one.high) == (-np.inf, 1)  # one group tells nothing


def test_the_floor_of_the_mean_has_no_r2_and_the_share_of_each_label() -> None:
    y, has = _numbers()[0], _labels(ties=False)[0]
    target = {
        "age": Target(values=y[:, None]),
        "x": Target(values=np.stack([has, ~has], axis=1).astype(float), labels=("a", "b")),
    }
    floor = mean_floor(target, target)
    assert floor["age"].score.value == pytest.approx(0)
    assert floor["x"].labels["a"].value == pytest.approx(has.mean())
    assert floor["x"].score.value == pytest.approx(0.5)
    assert floor["x"].to_json()["share"] == {"a": has.mean(), "b": 1 - has.mean()}
