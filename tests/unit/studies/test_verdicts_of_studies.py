"""When a finding of a study holds, does not hold, and cannot be decided."""

import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t

from studies import page, registry, runner
from studies.study import RATE, TINY, Arm, Finding, Gate, Measured, Study, at_rates, difference
from studies.verdict import Verdict, by_seed, decide, estimate, interval, judge, levels

CLAIM = Finding(
    id="x", criterion="a is at least 2 above b", value=difference("m", "a", "b"), at_least=2.0
)


def verdict_on(finding: Finding, seeds: list[dict[str, Any]]) -> Verdict:
    return decide({"x": finding.at_least}, {"x": estimate(finding, seeds)})["x"]


def seeds(*gaps: float) -> list[dict[str, Any]]:
    return [{"a": {"m": 50 + gap}, "b": {"m": 50.0}} for gap in gaps]


@pytest.mark.parametrize(
    ("gaps", "verdict"),
    [
        ((4.0, 4.1, 4.2), "holds"),
        ((2.0, 2.0, 2.0), "holds"),
        ((2.0, 3.0, 4.0), "direction only"),  # the interval has less than 2, and not 0
        ((-1.0, 9.0, 4.0), "cannot tell"),  # the interval has 0
        ((0.5, 0.6, 0.7), "does not hold"),  # positive, but smaller than claimed
        ((-4.0, -4.5, -5.0), "does not hold"),
        ((0.0, 2.0, 2.5), "cannot tell"),
        ((5.0,), "cannot tell"),
    ],
)
def test_a_verdict_follows_from_the_interval(gaps: tuple[float, ...], verdict: str) -> None:
    assert verdict_on(CLAIM, seeds(*gaps)).verdict == verdict


def test_a_judge_at_chance_decides_nothing() -> None:
    """The control is the same runs without the condition."""
    gated = replace(CLAIM, valid=lambda runs: runs["a"]["m"] > 60)
    runs = seeds(4.0, 4.1, 4.2)
    assert verdict_on(gated, runs).verdict == "cannot tell"
    assert "chance" in verdict_on(gated, runs).why
    assert verdict_on(CLAIM, runs).verdict == "holds"


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_rejects_what_its_definition_does(p_values: list[float]) -> None:
    found = levels({str(k): p for k, p in enumerate(p_values)})
    ordered = sorted(p_values)
    passed = [p <= 0.05 / (len(ordered) - k) for k, p in enumerate(ordered)]
    rejected = next((k for k, each in enumerate(passed) if not each), len(ordered))
    assert sum(p <= found[str(k)] for k, p in enumerate(p_values)) == rejected


def test_more_findings_widen_the_interval_of_each() -> None:
    alone = decide({"a": 2.0}, {"a": estimate(CLAIM, seeds(4.0, 5.0, 6.0))})
    many = {str(k): estimate(CLAIM, seeds(4.0, 5.0, 6.0)) for k in range(8)}
    together = decide(dict.fromkeys(many, 2.0), many)
    assert together["0"].half_width == alone["a"].half_width
    assert together["0"].low is not None
    assert alone["a"].low is not None
    assert together["0"].low < alone["a"].low


def gated(claim: Finding) -> Study:
    arms = at_rates({name: Arm(data="cifar10") for name in ("a", "b")}, (0.1, 0.2))
    return Study(
        id="gated",
        question="?",
        scales={"cpu": TINY},
        arms=arms | {"untrained": Arm(data="cifar10", settings=None)},
        gate=Gate(points=3.0, measures=("m",)),
        findings=(claim,),
    )


def runs_of(study: Study, learned: dict[str, float], **untrained: float) -> dict[str, Measured]:
    """Return runs of three seeds, of which the second rate of every arm is the best."""
    runs: dict[str, Measured] = {}
    for arm in study.arms:
        name, _, rate = arm.partition(RATE)
        for seed in range(3):
            level = 50.0 + 0.01 * seed
            above = learned.get(name, 0.0) - {"": 2.0, "0.1": 0.0, "0.2": 1.0}[rate] * (
                name in learned
            )
            runs[f"{arm} | seed {seed}"] = {
                "measured": {"m": level + above},
                "validation": {"m": level + above},
            }
    return runs


TRAINED = replace(CLAIM, trained=("a", "b"))


@pytest.mark.parametrize(
    ("learned", "verdict", "why"),
    [
        ({"a": 10.0, "b": 5.0}, "holds", ""),
        ({"a": 10.0, "b": 2.9}, "cannot tell", "b (+2.9): less than 3 points above"),
        ({"a": 2.0, "b": -1.0}, "cannot tell", "a (+2.0) and b (-1.0): less than 3 points above"),
    ],
)
def test_a_control_that_did_not_learn_decides_nothing(
    learned: dict[str, float], verdict: str, why: str
) -> None:
    study = gated(TRAINED)
    found = judge(study, runs_of(study, learned))
    assert found["findings"]["x"]["verdict"] == verdict
    assert found["findings"]["x"]["why"].startswith(why)
    assert found["gate"]["arms"]["b"]["arm"] == f"b{RATE}0.1"
    assert found["findings"]["x"]["mean"] == learned["a"] - learned["b"]  # each at its best rate


@pytest.mark.parametrize("lacking", ["rates", "validation", "untrained"])
def test_without_a_gate_there_is_no_verdict(lacking: str) -> None:
    study = gated(TRAINED)
    runs = runs_of(study, {"a": 10.0, "b": 5.0})
    if lacking == "rates":
        runs = {key: run for key, run in runs.items() if f"b{RATE}" not in key}
        why = "b (+3.0): trained at 1 learning rate, not 3"
    else:
        for key in [key for key in runs if key.startswith("untrained") or lacking == "validation"]:
            if lacking == "untrained":
                del runs[key]
            else:
                del runs[key]["validation"]
        why = "a and b: " if lacking == "untrained" else "a (+10.0) and b (+5.0): "
        why += "not scored on validation images"
    assert judge(study, runs)["findings"]["x"]["verdict"] == "cannot tell"
    assert judge(study, runs)["findings"]["x"]["why"] == why


def test_the_rate_is_chosen_on_validation_images_and_judged_on_others() -> None:
    study = gated(TRAINED)
    runs = runs_of(study, {"a": 10.0, "b": 5.0})
    for key, run in runs.items():
        if key.startswith(f"a{RATE}0.2"):
            run["measured"]["m"] = 99.0  # the best by chance
    assert judge(study, runs)["findings"]["x"]["mean"] == 5.0


def test_later_seeds_run_the_rate_that_the_first_one_chose(tmp_path: Path) -> None:
    study = gated(TRAINED)
    scale = replace(TINY, seeds=(0, 1, 2), rate_seeds=1)
    study = replace(study, scales={"cpu": scale}, measure=lambda trained: {})
    every = runs_of(study, {"a": 10.0, "b": 5.0})
    kept = runner.Results(study, "cpu", folder=tmp_path)
    first = kept.next_tasks
    assert {task.seed for task in first} == {0}
    assert [task.arm for task in first] == list(study.arms)
    for task in first:
        kept.add(task.key, every[task.key] | {"seconds": 1.0})
    later = [f"a{RATE}0.1", f"b{RATE}0.1", "untrained"]
    assert [(t.seed, t.arm) for t in kept.next_tasks] == [(s, a) for s in (1, 2) for a in later]
    for task in kept.next_tasks:
        kept.add(task.key, every[task.key] | {"seconds": 1.0})
    assert not kept.missing
    of_all = judge(study, every)
    assert kept.content["findings"] == of_all["findings"]
    assert kept.content["gate"] == of_all["gate"]


class Asked(dict[str, Any]):
    """Runs that know which arms a finding asks for."""

    def __init__(self) -> None:
        super().__init__()
        self.arms: set[str] = set()

    def __missing__(self, arm: str) -> Any:
        self.arms.add(arm)
        return Measures()


class Measures(dict[str, float]):
    """Any measure, 1."""

    def __missing__(self, name: str) -> float:
        return 1.0


@pytest.mark.parametrize(
    "study", [s for s in registry.studies().values() if s.gate], ids=lambda s: s.id
)
def test_findings_ask_for_arms_of_their_study(study: Study) -> None:
    """An arm that is misspelled would be one that was not measured."""
    for finding in study.findings:
        runs = Asked()
        finding.value(runs)
        finding.valid(runs)
        assert runs.arms - {"all arms"} <= study.arms.keys()
        assert set(finding.trained) <= study.arms.keys()
        for name in finding.trained:
            assert study.untrained(name) in study.arms
            rates = [arm for arm in study.arms if arm.partition(RATE)[0] == name]
            assert len(rates) >= 3


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
    assert kept["command"] == f"python -m studies run {name} --scale {scale}"
    assert {"gate", "sizes"} <= kept.keys()
    assert kept == runner.judged(study, kept)
    if study.commit:
        return  # its arms are in the code of that commit
    arms = {key.rpartition(" | seed ")[0] for key in kept["runs"]}
    assert arms <= {task.arm for task in runner.tasks(study, scale, {})}


def test_every_row_of_the_papers_says_what_its_runs_say() -> None:
    """The table on the page against the runs in the results, without what they say of them."""
    shown = {}
    for line in (page.PAGE.parent / "papers.md").read_text().splitlines():
        cells = line.strip("| ").split(" | ")
        if line.startswith("| ") and len(cells) == 4:
            shown[cells[0]] = cells[3]
    decided = [row for row in registry.rows() if "study" in row]
    assert len(decided) > 40
    for row in decided:
        study = registry.study(row["study"])
        scale, kept = page.results(study) or ("", {})
        found = judge(study, kept["runs"])["findings"][row["id"]]
        name = re.match(r"\[([^\]]*)\]", shown[row["id"]])
        assert name
        assert name[1] == found["verdict"] + (" at small scale" if scale == "cpu" else "")
        assert f"asked: {found['asked']:g}" in shown[row["id"]]
