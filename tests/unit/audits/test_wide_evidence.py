"""The wide readout decides where stages do not, and is measured only there."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from widefield.audits import tasks
from widefield.audits.bounds import AuditOptions, Bounds
from widefield.audits.tasks import Reference, audit_tasks
from widefield.data import open_dataset
from widefield.encoders import build_encoder
from widefield.inference.features import FeatureExtractor
from widefield.inference.splits import TrainTest
from widefield.probes.outcome import Outcome

TEST = 200
ENCODER = FeatureExtractor(name="e", encoder=build_encoder("resnet-tiny", image_size=16, seed=0))


def squares(n: int, seed: int) -> dict[str, np.ndarray]:
    """A square in one quadrant of noise, which the mean over all positions does not tell."""
    rng = np.random.default_rng(seed)
    images, place = rng.integers(0, 90, (n, 16, 16, 3)), rng.integers(4, size=n)
    for image, (row, column) in zip(images, np.stack(divmod(place, 2), axis=1), strict=True):
        image[8 * row + 2 : 8 * row + 6, 8 * column + 2 : 8 * column + 6] += 120
    return {"x": images.astype(np.uint8), "place": place}


DATA = TrainTest(train=open_dataset(squares(300, 0)), test=open_dataset(squares(TEST, 1)))


def outcome(accuracy: float) -> Outcome:
    return Outcome(values=np.arange(TEST) < round(accuracy * TEST))


def reference(floor: float, stage: str) -> Reference:
    """Bounds with one stage of the untrained network, so that one of the encoder counts."""
    bounds = Bounds(floors={"random": outcome(floor)}, ceiling=outcome(1))
    stages = {stage: {"place": outcome(0.9)}}
    return Reference(data=DATA, bounds={"place": bounds}, stages=stages)


@pytest.fixture
def probed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The widths of the features that are probed, but for stages."""
    widths: list[int] = []
    probe = tasks.probe_tasks

    def record(features, data, **options):
        widths.append(features(data.test.images[:2]).shape[1])
        return probe(features, data, **options)

    monkeypatch.setattr(tasks, "probe_tasks", record)
    return widths


def test_it_finds_what_the_stage_does_not(probed: list[int]) -> None:
    found = audit_tasks(ENCODER, reference(0.5, "s4@1"), seed=0)["place"]
    assert found.accuracy < 0.6
    assert found.stages["s4@1"]["accuracy"] < 0.6
    assert found.verdict == "hidden"
    assert found.wide > 0.9
    assert len(probed) == 2


def test_an_untrained_network_that_predicts_it_too_is_the_control() -> None:
    found = audit_tasks(ENCODER, reference(1.0, "s4@1"), seed=0)["place"]
    assert found.verdict in ("lost", "weakened", "not learned")
    assert found.wide > 0.9


def test_a_stage_that_predicts_it_is_enough(probed: list[int]) -> None:
    found = audit_tasks(ENCODER, reference(0.5, "s2@4"), seed=0)["place"]
    assert (found.verdict, found.wide) == ("hidden", None)
    assert probed == [128]


def test_the_encoder_is_measured_once_where_more_floors_are_drawn(
    probed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    draws: list[int] = []

    def bounds(*_: object, num_seeds: int) -> list[dict[str, Bounds]]:
        draws.append(num_seeds)
        return [dict(reference(0.5, "s4@1").bounds)]

    monkeypatch.setattr(tasks, "graded_bounds", bounds)
    monkeypatch.setattr(tasks, "_untrained_stages", lambda *_, **__: {})
    unclear = SimpleNamespace(verdict="unclear", stages={})
    monkeypatch.setattr(tasks, "audit_task", lambda *_, **__: unclear)
    tasks.audit_grades(ENCODER, [DATA], AuditOptions(cache=None, seed=0, quiet=True))
    assert draws == [1, tasks.NUM_SEEDS]
    assert probed == [128]


def test_data_without_tasks_have_no_verdicts() -> None:
    assert audit_tasks(ENCODER, Reference(data=DATA.only(), bounds={}, stages={}), seed=0) == {}


def test_wide_features_that_are_audited_are_not_measured_twice(probed: list[int]) -> None:
    wide = replace(ENCODER, kind="wide").with_readout(DATA.train)
    found = audit_tasks(wide, reference(1.0, "s4@1"), seed=0)["place"]
    assert found.wide is None
    assert len(probed) == 1
