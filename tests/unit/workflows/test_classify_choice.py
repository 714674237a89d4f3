"""`classify` chooses features by held-out cross-entropy: few hits of few labels say less."""

import numpy as np
import pytest

from widefield import classify
from widefield.data.table import Target
from widefield.probes.outcome import Predictions
from widefield.workflows.classify_labels import ClassTask, TargetTask


class Columns(dict[str, list[str]]):
    """A table in memory."""

    @property
    def columns(self) -> list[str]:
        return list(self)


TASK = ClassTask(rows=np.arange(4), names=("a", "b"), y=np.array([0, 0, 1, 1]), groups=None, seed=0)


def held_out(p: list[float]) -> Predictions:
    """Predictions with these probabilities of the right class."""
    right = np.array(p)
    both = np.stack([right, 1 - right], axis=1)
    both[2:] = both[2:, ::-1]
    return Predictions(predicted=both, held_out=both, l2=(1.0,))


def test_of_equal_hits_the_surer_ones_have_the_smaller_error() -> None:
    sure, unsure = held_out([0.9, 0.9, 0.9, 0.4]), held_out([0.6, 0.6, 0.6, 0.4])
    assert TASK.error(sure) < TASK.error(unsure)
    assert TASK.error(unsure) == pytest.approx(-np.log([0.6, 0.6, 0.6, 0.4]).mean())


def test_without_held_out_labels_the_first_features_count() -> None:
    nothing = held_out([np.nan] * 4)
    assert TASK.error(nothing) == np.inf
    assert int(np.argmin([TASK.error(nothing)] * 2)) == 0
    assert np.isfinite(TASK.error(held_out([1.0, 0.0, 1.0, 1.0])))


def test_the_mean_is_scored_on_the_labels_that_were_held_out() -> None:
    """A label of one example is in no fold: it counts neither for the probe nor for the mean."""
    has = np.array([[1, 0], [1, 0], [0, 0], [0, 1]], dtype=np.float64)
    target = Target(values=has, labels=("spot", "rare"))
    task = TargetTask(rows=np.arange(4), names=target.labels, target=target, groups=None, seed=0)
    p = np.stack([has[:, 0], np.full(4, np.nan)], axis=1)
    found = Predictions(predicted=p, held_out=p, l2=(1.0, 1.0))
    outcome, mean = task.outcome(found), task.constant(found)
    assert outcome is not None
    assert list(outcome.parts) == list(mean.parts) == ["spot"]
    assert (outcome.value, mean.value) == (1.0, 0.5)


def test_labels_that_cannot_be_held_out_are_told() -> None:
    """A label of one example, or of one group: its precision is not among the others."""
    images = np.random.default_rng(0).integers(0, 256, (12, 8, 8, 3), dtype=np.uint8)
    cells = ["spot|rare", "spot|one", "spot|one", "bar", "bar", "|"] + 3 * ["spot", "|"]
    table = {
        "path": [f"row {i}" for i in range(12)],
        "label": cells,
        "visit": ["a", "b", "b"] + [f"{i}" for i in range(9)],
    }
    for group, left, unit in ((None, "'rare'", "example"), ("visit", "'one', 'rare'", "group")):
        columns = table if group else {name: table[name] for name in ("path", "label")}
        found = classify("pixels", {"x": images}, labels=Columns(columns), group=group, quiet=True)
        assert found.cross_validation is not None
        tested = {*found.classes} - {*found.cross_validation.parts}
        assert ", ".join(sorted(map(repr, tested))) == left
        assert f"one {unit} has or lacks, and not cross-validated: {left}" in found.notes
