"""Paired differences and verdicts: intervals against a formula, verdicts by their rule."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student

from widefield.probes.paired import (
    RESAMPLES,
    PairedDifference,
    bootstrap_means,
    interval,
    paired_difference,
    wilson,
)
from widefield.probes.verdicts import (
    CONSISTENCY_DECREASE,
    MAX_DECREASE,
    judge_with_labels,
    judge_without_labels,
    probably_lower,
)


def made(difference: float, half: float = 0.01) -> PairedDifference:
    return PairedDifference(
        before=0.5, after=0.5 + difference, low=difference - half, high=difference + half
    )


def test_the_interval_is_that_of_the_paired_difference() -> None:
    rng = np.random.default_rng(0)
    before = rng.random(800) < 0.5
    after = before ^ (rng.random(800) < 0.1)
    found = paired_difference(before, after, seed=1)
    difference = after.astype(float) - before
    half = 1.96 * difference.std() / np.sqrt(800)
    assert found.difference == pytest.approx(difference.mean())
    assert found.low == pytest.approx(difference.mean() - half, abs=0.004)
    assert found.high == pytest.approx(difference.mean() + half, abs=0.004)
    # Unpaired it would be six times as wide: 0.5 (1 - 0.5) twice against 0.1.
    assert half < 1.96 * np.sqrt(2 * 0.25 / 800) / 2


@pytest.mark.parametrize("count", [3, 5, 6, 8, 12])
def test_equal_scores_of_few_examples_seldom_differ(count: int) -> None:
    """Hits, groups of hits and numbers; the plain bootstrap of the control calls more different."""
    rng, differ, plain = np.random.default_rng(count), np.zeros(3), np.zeros(3)
    groups = np.repeat(np.arange(count), 4)
    for seed in range(200):
        hits = rng.random((2, count)) < 0.5
        pairs = [(hits, None), (hits[:, groups], groups), (rng.normal(size=(2, count)), None)]
        for i, ((before, after), ids) in enumerate(pairs):
            found = paired_difference(before, after, groups=ids, seed=seed)
            differ[i] += found.verdict != "no significant difference"
            (means,) = bootstrap_means(after.astype(float) - before, seed=seed)
            low, high = interval(means)
            plain[i] += low > 0 or high < 0
    assert differ.max() <= 0.09 * 200
    assert plain.max() > 0.12 * 200


def test_the_interval_of_few_hits_is_that_of_the_permutation_test() -> None:
    """By loops over all changes of sign; where many examples differ it is Zou and Donner's."""
    after = np.array([1, 1, 1, 1, 1, 0, 0, 1, 1, 0], dtype=bool)
    before = np.array([0, 0, 0, 0, 0, 1, 0, 1, 1, 0], dtype=bool)
    signs = np.array(list(itertools.product((-1, 1), repeat=6))).sum(1)
    p = (np.abs(signs) > 4).mean() + (np.abs(signs) == 4).mean() / 2
    found = paired_difference(before, after)
    assert found.low == pytest.approx(0.4 - 0.4 * 1.959964 / norm.isf(p / 2))
    assert found.verdict == "no significant difference"
    once, back = paired_difference(~before, ~after), paired_difference(after, before)
    assert (once.low, once.high) == pytest.approx((-found.high, -found.low))
    assert (back.low, back.high) == (once.low, once.high)
    # Of 30 differences among 50, by hand: 20 gained, 10 lost.
    order = np.arange(50)
    many = paired_difference((order >= 20) & (order < 30), order < 20)
    (a, b), (c, d) = wilson(20, 50), wilson(10, 50)
    r = -np.sqrt(0.4 * 0.2 / 0.6 / 0.8)
    below, above = (0.4 - a, d - 0.2), (b - 0.4, 0.2 - c)
    low, high = (np.sqrt(x**2 + y**2 - 2 * r * x * y) for x, y in (below, above))
    assert (many.low, many.high) == pytest.approx((0.2 - low, 0.2 + high))


def test_no_difference_is_seen_as_none() -> None:
    """About 1 draw in 40 is called higher, 1 in 40 lower, and 1 in 20 probably lower."""
    found = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        found.append(paired_difference(rng.random(200) < 0.5, rng.random(200) < 0.5, seed=seed))
    words = [difference.verdict for difference in found[:200]]
    assert words.count("higher") < 15
    assert words.count("lower") < 15
    assert 8 < sum(map(probably_lower, found)) < 35


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=40))
def test_the_interval_holds_the_difference(pairs: list[tuple[float, float]]) -> None:
    before, after = np.array(pairs).T
    found = paired_difference(before, after)
    assert found.low <= found.difference + 1e-9
    assert found.high >= found.difference - 1e-9
    assert found.difference == pytest.approx(np.mean(after - before), abs=1e-9)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ([made(0.05), made(0.0)], "better"),
        ([made(0.005), made(0.0)], "no significant difference"),
        ([made(0.005), made(0.0, half=0.013)], "inconclusive"),
        ([made(0.05), made(-MAX_DECREASE - 0.001, half=0.1)], "worse"),
        ([made(-0.005, half=0.001)], "worse"),
        ([made(-0.001)], "no significant difference"),
        ([made(-0.005)], "inconclusive"),
        # Two-sided 95 % intervals that hold 0: harm is asked for on one side.
        ([made(0.05), made(-0.009, half=0.0095)], "worse"),
        ([made(0.05), made(-0.009, half=0.0115)], "better"),
    ],
)
def test_verdicts_with_labels(changes: list[PairedDifference], verdict: str) -> None:
    linear = {f"task {i}": change for i, change in enumerate(changes)}
    assert judge_with_labels(linear, {})[0] == verdict
    assert judge_with_labels({}, linear)[0] == verdict


def test_the_reason_names_the_accuracy_that_decided() -> None:
    up, same, down = made(0.05), made(0.0), made(-0.04)
    found = judge_with_labels({"class": up, "color": same}, {"class": same, "color": down})
    assert found == ("worse", "kNN accuracy (color) decreased by 4.0 points")
    unsure = judge_with_labels({"class": up, "color": made(-0.04, half=0.1)}, {})
    assert unsure == (
        "worse",
        "linear-probe accuracy (color) decreased by 4.0 points, which may be chance",
    )
    assert "kNN accuracy (color) is" in judge_with_labels({"class": same}, {"color": up})[1]


@pytest.mark.parametrize(
    ("consistency", "planted", "rank", "collapsed", "verdict"),
    [
        (made(0.05), {"a": made(0.1), "b": made(0.0)}, 40, False, "better"),
        (made(0.05), {}, 40, False, "no significant difference"),
        (made(0.0), {"a": made(0.1)}, 40, False, "no significant difference"),
        (made(0.05), {}, 40, True, "worse"),
        (made(0.05), {"a": made(0.1)}, 20, False, "better"),
        (made(0.05), {}, 19, False, "worse"),
        (made(0.0), {}, 40, False, "no significant difference"),
        (made(-CONSISTENCY_DECREASE), {}, 40, False, "no significant difference"),
        (made(-CONSISTENCY_DECREASE - 0.02), {}, 40, False, "worse"),
        (made(0.05), {"a": made(-0.1), "b": made(0.1)}, 40, False, "no significant difference"),
        (made(0.05), {"a": made(-0.1), "b": made(-0.1)}, 40, False, "worse"),
    ],
)
def test_verdicts_without_labels(
    consistency: PairedDifference,
    planted: dict[str, PairedDifference],
    rank: float,
    collapsed: bool,
    verdict: str,
) -> None:
    assert (
        judge_without_labels(consistency, planted, rank=(40, rank), collapsed=collapsed)[0]
        == verdict
    )


def test_its_line() -> None:
    assert made(0.05).line() == "50.0 to 55.0 %, +5.0 [+4.0, +6.0], higher"
    assert made(0.0).line() == "50.0 to 50.0 %, +0.0 [-1.0, +1.0], no significant difference"


def test_groups_are_resampled_whole() -> None:
    """Against loops over the same draws; the plain bootstrap of the control is too narrow."""
    rng = np.random.default_rng(0)
    groups = np.sort(rng.integers(0, 12, 150))
    difference = rng.normal(0.1, 1, 12)[groups] + 0.1 * rng.normal(size=150)
    (means,) = bootstrap_means(difference, groups=groups * 3 - 7, seed=5)
    draws = np.random.default_rng(5).integers(12, size=(RESAMPLES, 12))
    wide = np.sqrt(12 / 11) * student.ppf(0.975, 11) / 1.959964
    for draw, mean in zip(draws[:50], means[:50], strict=True):
        taken = np.concatenate([difference[groups == group] for group in draw])
        expected = difference.mean() + wide * (taken.mean() - difference.mean())
        assert mean == pytest.approx(expected)
    (plain,) = bootstrap_means(difference, seed=5)
    assert plain.std() < means.std() / 2
    with pytest.raises(ValueError, match="of one group: an interval needs two"):
        bootstrap_means(difference, groups=np.zeros(150, np.int64), seed=0)


@pytest.mark.parametrize("count", [6, 30])
def test_groups_by_lot_are_rarely_called_different(count: int) -> None:
    rng, groups = np.random.default_rng(1), np.repeat(np.arange(count), 8)
    words = []
    for seed in range(150):
        before, after = ((rng.random(count) < 0.5)[groups] for _ in range(2))
        words.append(paired_difference(before, after, groups=groups, seed=seed).verdict)
    assert words.count("no significant difference") > 127
    before, after = ((rng.random((150, count)) < 0.5)[:, groups] for _ in range(2))
    control = [paired_difference(a, b).verdict for a, b in zip(before, after, strict=True)]
    assert control.count("no significant difference") < 90
