"""What changed and what it means: intervals against a formula, verdicts by their rule."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from widefield.evaluation.paired import (
    LOST,
    SHAKEN,
    Change,
    change,
    judged_by_labels,
    judged_without_labels,
)


def made(difference: float, half: float = 0.01) -> Change:
    return Change(before=0.5, after=0.5 + difference, low=difference - half, high=difference + half)


def test_the_interval_is_that_of_the_paired_difference() -> None:
    rng = np.random.default_rng(0)
    before = rng.random(800) < 0.5
    after = before ^ (rng.random(800) < 0.1)
    found = change(before, after, seed=1)
    difference = after.astype(float) - before
    half = 1.96 * difference.std() / np.sqrt(800)
    assert found.difference == pytest.approx(difference.mean())
    assert found.low == pytest.approx(difference.mean() - half, abs=0.004)
    assert found.high == pytest.approx(difference.mean() + half, abs=0.004)
    # Unpaired it would be six times as wide: 0.5 (1 - 0.5) twice against 0.1.
    assert half < 1.96 * np.sqrt(2 * 0.25 / 800) / 2


def test_no_difference_is_seen_as_none() -> None:
    """In 200 draws without a difference, about 1 in 40 is called gained, and 1 in 40 lost."""
    words = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        words.append(change(rng.random(200) < 0.5, rng.random(200) < 0.5, seed=seed).word)
    assert words.count("gained") < 15
    assert words.count("lost") < 15


def test_without_a_difference_harm_is_seen_in_one_of_twenty() -> None:
    seen = []
    for seed in range(400):
        rng = np.random.default_rng(seed)
        seen.append(change(rng.random(200) < 0.5, rng.random(200) < 0.5, seed=seed).probably_lost)
    assert 8 < sum(seen) < 35


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=2, max_size=40))
def test_the_interval_holds_the_difference(pairs: list[tuple[float, float]]) -> None:
    before, after = np.array(pairs).T
    found = change(before, after)
    assert found.low <= found.difference + 1e-9
    assert found.high >= found.difference - 1e-9
    assert found.difference == pytest.approx(np.mean(after - before), abs=1e-9)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ([made(0.05), made(0.0)], "better"),
        ([made(0.005), made(0.0)], "no different"),
        ([made(0.005), made(0.0, half=0.013)], "keep the old one"),
        ([made(0.05), made(-LOST - 0.001, half=0.1)], "keep the old one"),
        ([made(-0.005, half=0.001)], "keep the old one"),
        ([made(-0.001)], "no different"),
        ([made(-0.005)], "keep the old one"),
        # Two-sided 95 % intervals that hold 0: harm is asked for on one side.
        ([made(0.05), made(-0.009, half=0.0095)], "keep the old one"),
        ([made(0.05), made(-0.009, half=0.0115)], "better"),
    ],
)
def test_verdicts_with_labels(changes: list[Change], verdict: str) -> None:
    assert judged_by_labels(changes)[0] == verdict


@pytest.mark.parametrize(
    ("agreement", "planted", "rank", "sick", "verdict"),
    [
        (made(0.05), {"a": made(0.1), "b": made(0.0)}, 40, False, "better"),
        (made(0.05), {}, 40, False, "no different"),
        (made(0.0), {"a": made(0.1)}, 40, False, "no different"),
        (made(0.05), {}, 40, True, "keep the old one"),
        (made(0.05), {"a": made(0.1)}, 20, False, "better"),
        (made(0.05), {}, 19, False, "keep the old one"),
        (made(0.0), {}, 40, False, "no different"),
        (made(-SHAKEN), {}, 40, False, "no different"),
        (made(-SHAKEN - 0.02), {}, 40, False, "keep the old one"),
        (made(0.05), {"a": made(-0.1), "b": made(0.1)}, 40, False, "no different"),
        (made(0.05), {"a": made(-0.1), "b": made(-0.1)}, 40, False, "keep the old one"),
    ],
)
def test_verdicts_without_labels(
    agreement: Change, planted: dict[str, Change], rank: float, sick: bool, verdict: str
) -> None:
    assert judged_without_labels(agreement, planted, rank=(40, rank), sick=sick)[0] == verdict


def test_its_line() -> None:
    assert made(0.05).line() == "50.0 to 55.0 %, +5.0 [+4.0, +6.0], gained"
    assert made(0.0).line() == "50.0 to 50.0 %, +0.0 [-1.0, +1.0]"
