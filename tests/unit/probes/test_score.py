"""Outcomes of every task at once, and their floors."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from widefield.data.table import Table, Target
from widefield.probes import Outcome, fit_linear, knn, score
from widefield.probes.floors import FLOORS, constant_outcomes, floors

CLASSES = {"sign": ("-", "+"), "third": ("a", "b", "c")}
LABELS = st.lists(st.integers(0, 3), min_size=1, max_size=30)


def table(targets: dict[str, Target] | None = None, **labels: Tensor) -> Table:
    """Examples with class ids."""
    names = [str(i) for i in range(len(next(iter(labels.values()))))]
    ids = {task: y.numpy() for task, y in labels.items()}
    return Table(names=names, labels=ids, classes=CLASSES, targets=targets or {})


def test_an_outcome_joins_the_linear_probe_and_the_vote() -> None:
    h = torch.randn(150, 6, generator=torch.Generator().manual_seed(0))
    labels = {"sign": (h[:, 0] > 0).long(), "third": (h[:, 1] > -1).long() + (h[:, 1] > 1).long()}
    train, test = (
        {t: y[part] for t, y in labels.items()} for part in (slice(100), slice(100, 150))
    )
    classes = {"sign": 2, "third": 3}
    found = score(h[:100], table(**train), h[100:], table(**test), seed=4)
    linear = fit_linear(h[:100], train, h[100:], test, classes=classes, seed=4)
    near = knn(h[:100], train, h[100:], test, classes=classes)
    assert list(found) == ["sign", "third"]
    for task, probe in linear.items():
        outcome = found[task]
        assert (outcome.values == probe.outcome.values).all()
        assert outcome.interval == probe.outcome.interval
        assert (outcome.knn, outcome.l2, outcome.train_examples, len(outcome)) == (
            near[task],
            (probe.l2,),
            100,
            50,
        )
    assert found["sign"].value > 0.85
    again = score(h[:100], table(**train), h[100:], table(**test), seed=4)
    assert {t: x.to_json() for t, x in again.items()} == {t: x.to_json() for t, x in found.items()}


def test_bad_input_is_refused_before_anything_is_computed() -> None:
    y = table(third=torch.arange(9) % 3)
    with pytest.raises(ValueError, match="NaN"):
        score(torch.full((9, 2), torch.inf), y, torch.ones(9, 2), y)


@given(train=LABELS, test=LABELS)
def test_the_share_of_test_labels_that_are_the_commonest_of_training(
    train: list[int], test: list[int]
) -> None:
    classes = {"y": ("0", "1", "2", "3")}
    halves = [
        Table(names=[*map(str, range(len(y)))], labels={"y": np.array(y)}, classes=classes)
        for y in (train, test)
    ]
    found = constant_outcomes(*halves)["y"]
    commonest = max(range(4), key=train.count)  # of equals the first, as of bincount
    assert found.value == found.knn == test.count(commonest) / len(test)
    low, high = found.interval
    assert low <= found.value <= high
    assert (found.train_examples, len(found)) == (len(train), len(test))


def test_the_mean_has_no_r2_and_the_share_of_each_label() -> None:
    rng = np.random.default_rng(0)
    y, has = rng.normal(size=200), rng.random(200) < 0.2
    both = Table(
        names=[*map(str, range(200))],
        targets={
            "age": Target(values=y[:, None]),
            "x": Target(values=np.stack([has, ~has], axis=1).astype(float), labels=("a", "b")),
        },
    )
    floor = constant_outcomes(both, both)
    assert floor["age"].value == pytest.approx(0)
    assert floor["x"].parts["a"].value == pytest.approx(has.mean())
    assert floor["x"].value == pytest.approx(0.5)
    assert floor["x"].to_json()["share"] == {"a": has.mean(), "b": 1 - has.mean()}


SHARES = {
    "pixels": (2, 3),
    "first": (5, 1),
    "second": (4, 6),
    "equal": (5, 6),
    "none": (1, 2),
    "dictionary": (6, 7),
}
OUTCOMES = {
    name: {task: Outcome(values=np.arange(10) < n) for task, n in zip("ab", counts, strict=True)}
    for name, counts in SHARES.items()
}


def test_the_best_untrained_encoder_counts_task_by_task_and_the_first_of_equals() -> None:
    """Each of the two tasks is better predicted from another of the untrained encoders."""

    def outcomes(encoder: str) -> Mapping[str, Outcome]:
        return OUTCOMES[encoder]

    untrained = (name for name in ("first", "second", "equal"))
    found = floors(
        outcomes,
        pixels="pixels",
        untrained=untrained,
        dictionary="dictionary",
        constant=OUTCOMES["none"],
    )
    assert [*found["a"], "mean"] == list(FLOORS)  # that of numbers and of several labels
    for task, source in (("a", "first"), ("b", "second")):
        assert found[task]["random"] is OUTCOMES[source][task]
        assert found[task]["pixels"] is OUTCOMES["pixels"][task]
        assert found[task]["dictionary"] is OUTCOMES["dictionary"][task]
        assert found[task]["majority"] is OUTCOMES["none"][task]
