"""What the studies of Feature Dropout measure of views, by hand and on a control arm."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Generator, Tensor, nn

from studies import feature_dropout, feature_dropout_views
from studies.feature_dropout_views import draw, judge, of_probabilities, probabilities
from studies.packs import generated
from studies.study import TINY, Arm, Finding, SeedRuns
from studies.trained import Trained
from studies.verdict import Entry, decide, estimate
from widefield.encoders import FeatureMap
from widefield.probes import extract, fit_linear
from widefield.probes.outcome import Outcome
from widefield.views import Augmentation, AugmentContext, build_views
from widefield.views.simple import Identity

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """An untrained encoder of images with shapes."""
    packs = generated(tmp_path_factory.mktemp("packs"))
    arm = Arm(data=feature_dropout.DATA["shapes"], settings=None)
    return Trained(arm, TINY, packs, 0, None)


class HalfGone(Augmentation):
    """Every other image is emptied."""

    def augment(
        self, views: list[Tensor], generator: Generator | None, context: AugmentContext
    ) -> list[Tensor]:
        keep = (torch.arange(len(views[0])) % 2).view(-1, 1, 1, 1)
        return [view * keep for view in views]


class Brightness(nn.Module):
    """An encoder whose only feature is the sum of the pixels."""

    def forward(self, x: Tensor) -> Tensor:
        """Return logits: class 1 is bright."""
        bright = x.flatten(1).mean(1)
        return torch.stack([1 - 20 * bright, 20 * bright - 1], dim=1)


def test_without_views_it_is_the_probability_of_the_probe(trained: Trained) -> None:
    found = probabilities(judge(trained, "shapes"), Identity(), trained, "shapes")
    train, test = trained.train_set().first_read(), trained.test_set().first_read()
    before_pooling = FeatureMap(trained.encoder)
    h, unseen = (extract(before_pooling, x.images) for x in (train, test))
    y = {"shapes": torch.from_numpy(train.labels["shapes"])}
    probe = fit_linear(h, y, h, y, classes={"shapes": 3}, seed=0)["shapes"]
    odds = (unseen @ probe.weight.T + probe.bias).double().exp().numpy()
    expected = odds[np.arange(len(odds)), test.labels["shapes"]] / odds.sum(1)
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


def test_views_that_drop_the_feature_every_other_time_have_two_modes(trained: Trained) -> None:
    truth = trained.test_set()
    truth.labels["shapes"][:] = 1

    class Bright(Trained):
        def test_set(self, ending: str = "") -> object:
            return truth

    bright = Bright(trained.arm, TINY, trained.packs, 0, None)
    kept = of_probabilities(probabilities(Brightness(), Identity(), bright, "shapes"))
    gone = of_probabilities(probabilities(Brightness(), HalfGone(), bright, "shapes"))
    mode = feature_dropout_views.MODES
    assert kept["mean P(correct)"] > 0.9
    assert kept[mode] < 0.1
    assert gone[mode] == pytest.approx(0.5, abs=0.05)
    assert gone["bimodality"] > 5 / 9


def test_the_masked_viewmaker_changes_all_but_the_object(trained: Trained) -> None:
    images = trained.test_set().first_read()
    views = build_views("mask-viewmaker", seed=0, viewmaker_budget=0.05)
    x, (view,), mask = draw(views, images, np.arange(8), 1, CPU)
    change = (view - x).abs()
    assert mask.any()
    assert float((change * mask).max()) == 0
    assert float((change * ~mask).mean()) > 0.01


def runs(**arms: dict[str, float]) -> SeedRuns:
    return arms


def verdict(finding: Finding, seeds: list[SeedRuns]) -> str:
    """Return the verdict where every arm has learned."""
    gate = {name: Entry(name, 3, 20.0, "validation", "") for name in finding.trained}
    asked = {"x": finding.at_least}
    return decide(asked, {"x": estimate(finding, seeds, gate)})["x"].verdict


CLASS, SHAPES = (f"{task} {feature_dropout.PROBE}" for task in ("class", "shapes"))


def test_findings_have_a_direction() -> None:
    digits = {f.id: f for f in feature_dropout.T1.findings}["FD-T1 digits"]
    better, worse = ({CLASS: points} for points in (50.0, 40.0))
    arms = "digits, viewmaker", f"digits, {feature_dropout.EXPERT}"
    for first, second, expected in ((better, worse, "holds"), (worse, better, "does not hold")):
        assert verdict(digits, [runs(**{arms[0]: first, arms[1]: second})] * 3) == expected


def test_a_margin_lets_an_object_be_a_little_worse() -> None:
    shapes = {f.id: f for f in feature_dropout.T1.findings}["FD-T1 shapes, object"]
    arms = "shapes, viewmaker", f"shapes, {feature_dropout.EXPERT}"
    for points, expected in ((4.0, "holds"), (7.0, "does not hold")):
        learned, expert = {SHAPES: 90 - points}, {SHAPES: 90.0}
        assert verdict(shapes, [runs(**{arms[0]: learned, arms[1]: expert})] * 3) == expected


def test_the_papers_probe_reads_features_before_pooling(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    short, calls = partial(feature_dropout.score_sgd, epochs=2), []

    def score_sgd(encoder: nn.Module, *sets: Any, **options: Any) -> dict[str, Outcome]:
        calls.append((encoder, sets, options))
        return short(encoder, *sets, **options)

    monkeypatch.setattr(feature_dropout, "score_sgd", score_sgd)
    found, chosen = feature_dropout.scored(trained), feature_dropout.chosen(trained)
    ((encoder, (train, (images, labels)), options),) = calls  # one probe for both sets
    assert isinstance(encoder, FeatureMap)
    assert found.keys() == chosen.keys() == {CLASS, SHAPES}
    count = len(trained.test_set())
    for rows, accuracies in ((slice(count), found), (slice(count, None), chosen)):
        part = images[rows], {task: y[rows] for task, y in labels.items()}
        alone = short(encoder, train, part, **options)
        assert {f"{k} {feature_dropout.PROBE}": 100 * s.value for k, s in alone.items()} == (
            pytest.approx(accuracies, abs=0.006)  # rounded
        )


@pytest.mark.parametrize(
    ("study", "id", "arm", "measure", "value"),
    [
        (feature_dropout_views.F1, "FD-F1", "viewmaker", ("change of the object, %", 6.0), 0.2),
        (
            feature_dropout_views.F1,
            "FD-3 minimax",
            "viewmaker",
            ("loss under trained views", 2.5),
            0.5,
        ),
    ],
)
def test_values_of_pictures_by_hand(
    study: object, id: str, arm: str, measure: tuple[str, float], value: float
) -> None:
    base = {
        "change elsewhere, %": 5.0,
        "loss under untrained views": 2.0,
        "loss at chance": 5.5,
        measure[0]: measure[1],
    }
    finding = {f.id: f for f in study.findings}[id]  # type: ignore[attr-defined]
    seed = runs(**{f"{plant}, {arm}": base for plant in feature_dropout.PLANTS})
    assert finding.value(seed) == pytest.approx(value)
    assert finding.valid(seed)
