"""Floors: one result for each task from each of the three sources."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from widefield.probes.floors import FLOORS, floors
from widefield.probes.paired import RESAMPLES, bootstrap_means, interval


@dataclass(frozen=True)
class Result:
    accuracy: float
    of: str


def score(encoder: str) -> Mapping[str, Result]:
    """Two tasks, each better read from another of the untrained encoders."""
    shares = {"pixels": (0.2, 0.3), "first": (0.5, 0.1), "second": (0.4, 0.6), "equal": (0.5, 0.6)}
    return {t: Result(s, encoder) for t, s in zip(("a", "b"), shares[encoder], strict=True)}


def test_the_best_untrained_encoder_counts_task_by_task_and_the_first_of_equals() -> None:
    majority = {"a": Result(0.1, "majority"), "b": Result(0.2, "majority")}
    untrained = (name for name in ("first", "second", "equal"))
    found = floors(score, pixels="pixels", untrained=untrained, majority=majority)
    assert [*found, "mean"] == list(FLOORS)  # that of numbers and of several labels
    assert {t: result.of for t, result in found["random"].items()} == {"a": "first", "b": "second"}
    assert {result.of for result in found["pixels"].values()} == {"pixels"}
    assert found["majority"] == majority


def test_without_a_majority_that_floor_is_left_out() -> None:
    assert list(floors(score, pixels="pixels", untrained=["first"])) == ["pixels", "random"]


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
