"""Numbers and several labels an example in an audit: the rules of classes, by other measures."""

import re

import numpy as np
import pytest

from widefield.audits.verdict import audit_task, packed
from widefield.data.table import Target
from widefield.probes.outcome import Outcome, r2_values, target_outcome


def _result(noise: float) -> Outcome:
    rng = np.random.default_rng(0)
    y = rng.normal(size=300)
    values = r2_values(y, y + noise * rng.normal(size=300))
    return Outcome(values=values, measure="R2")


@pytest.mark.parametrize(
    ("noise", "verdict"), [(0.1, "learned"), (0.6, "weakened"), (0.95, "not learned")]
)
def test_a_number_is_judged_between_floor_and_ceiling(noise: float, verdict: str) -> None:
    floors = {"pixels": _result(0.97), "mean": _result(1.0)}
    found = audit_task("age", _result(noise), floors, _result(0.05), classes=0)
    assert found.verdict == verdict
    assert found.accuracy == pytest.approx(_result(noise).value)
    assert found.low < found.accuracy < found.high
    assert found.knn is None
    assert found.line().startswith(f"age (R2): {verdict}")
    assert re.findall(r"-?\d\.\d\d\b", found.line())[0] == f"{found.accuracy:.2f}"
    assert f"full supervision at {_result(0.05).value:.2f}" in found.line()
    assert np.allclose(found.outcome().values, _result(noise).values, rtol=1e-6)
    other = audit_task("age", _result(0.3), floors, _result(0.05), classes=0)
    higher = "higher" if noise < 0.3 else "lower"
    assert found.difference_from(other).verdict == higher


@pytest.mark.parametrize(("count", "verdict"), [(1, "not separable"), (40, "not learned")])
def test_one_example_with_each_label_tells_nothing(count: int, verdict: str) -> None:
    has = np.arange(200)[:, None] // count == np.arange(3)
    target = Target(values=has.astype(float), labels=("a", "b", "c"))
    noise = np.random.default_rng(0).normal(size=(2, *has.shape))
    predicted = (*noise, 1.0 * has, np.zeros(has.shape))
    encoder, pixels, ceiling, mean = (target_outcome(target, p) for p in predicted)
    floors = {"pixels": pixels, "mean": mean}
    found = audit_task("findings", encoder, floors, ceiling, classes=0)
    assert found.verdict == verdict
    best = audit_task("findings", ceiling, floors, ceiling, classes=0)
    assert (best.difference_from(found).verdict == "higher") == (count > 1)


def test_outcomes_are_packed_as_what_they_are() -> None:
    assert packed(np.ones(8, bool)) == "/w=="
    assert len(packed(np.ones(8))) > len(packed(np.ones(8, bool)))
