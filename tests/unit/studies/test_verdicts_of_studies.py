"""When a finding of a study holds, does not hold, and cannot be decided."""

import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from studies import registry, runner
from studies.study import Finding, above, difference
from studies.verdict import by_seed, decide, interval

CLAIM = Finding(
    id="x", criterion="a is at least 2 above b", value=difference("m", "a", "b"), at_least=2.0
)


def seeds(*gaps: float) -> list[dict[str, Any]]:
    return [{"a": {"m": 50 + gap}, "b": {"m": 50.0}} for gap in gaps]


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ((4.0, 4.5, 5.0), "holds"),
        ((2.0, 2.0, 2.0), "holds"),
        ((-1.0, 9.0, 4.0), "cannot tell"),  # the interval holds 0
        ((0.5, 0.6, 0.7), "does not hold"),  # positive, but smaller than claimed
        ((-4.0, -4.5, -5.0), "does not hold"),
        ((1.0, 2.0, 2.5), "cannot tell"),  # a smaller mean, and the interval holds 2
        ((5.0,), "cannot tell"),
    ],
)
def test_a_verdict_follows_from_mean_and_interval(gaps: tuple[float, ...], verdict: str) -> None:
    assert decide(CLAIM, seeds(*gaps)).verdict == verdict


def test_an_encoder_at_chance_decides_nothing() -> None:
    """The control is the same runs without the gate."""
    gated = Finding(
        id="x",
        criterion="y",
        value=CLAIM.value,
        at_least=2.0,
        valid=above("m", "a", 60.0),
    )
    runs = seeds(4.0, 4.5, 5.0)
    assert decide(gated, runs).verdict == "cannot tell"
    assert "chance" in decide(gated, runs).why
    assert decide(CLAIM, runs).verdict == "holds"


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=6))
def test_the_interval_is_that_of_student(values: list[float]) -> None:
    mean, half = interval(values)
    assert mean == pytest.approx(statistics.mean(values))
    low, high = (
        t.interval(
            0.95, len(values) - 1, loc=mean, scale=statistics.stdev(values) / len(values) ** 0.5
        )
        if statistics.stdev(values)
        else (mean, mean)
    )
    assert half == pytest.approx((high - low) / 2, abs=1e-9)


def test_runs_are_sorted_by_seed_and_arm() -> None:
    runs = {"a | seed 0": {"measured": {"m": 1}}, "b, c | seed 1": {"measured": {"m": 2}}}
    assert by_seed(runs) == {0: {"a": {"m": 1}}, 1: {"b, c": {"m": 2}}}


@pytest.mark.parametrize("path", sorted(runner.RESULTS.glob("*.json")), ids=lambda p: p.stem)
def test_results_have_the_criteria_of_their_study_and_its_verdicts(path: Any) -> None:
    """A criterion is written before the result and stays; verdicts follow from the runs."""
    name, scale = path.stem.rsplit(".", 1)
    study, kept = registry.study(name), runner.read(path)
    assert study.id == name
    assert kept["criteria"] == {f.id: [f.criterion, f.at_least] for f in study.findings}
    assert kept["command"] == f"python -m studies run {name} --scale {scale}"
    if study.commit:
        return  # its arms and values are in the code of that commit
    missing = [t.key for t in runner.tasks(study, scale) if t.key not in kept["runs"]]
    expected = {} if missing else runner.verdicts(study, scale, kept["runs"])
    assert kept["findings"] == expected
    arms = {key.rpartition(" | seed ")[0] for key in kept["runs"]}
    assert arms <= {task.arm for task in runner.tasks(study, scale)}
