"""P(correct class) over views: by hand, for every policy, and for views out of a run."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Generator, Tensor

import widefield
from dropout_histogram import feature_dropout
from elsewhere import Elsewhere
from widefield.data import open_dataset
from widefield.encoders import build_encoder
from widefield.inference.open_encoder import open_encoder
from widefield.inference.run_views import run_views
from widefield.inference.splits import TrainTest, open_train_test
from widefield.probes import extract, fit_linear
from widefield.views import VIEWS, Augmentation, AugmentContext, build_views


@pytest.fixture(scope="module")
def data() -> TrainTest:
    return TrainTest(
        train=open_dataset("photos+shapes", max_examples=128, image_size=16),
        test=open_dataset("photos:test+shapes", max_examples=64, image_size=16),
    )


class HalfGone(Augmentation):
    """Every other image is emptied."""

    def augment(
        self, views: list[Tensor], generator: Generator | None, context: AugmentContext
    ) -> list[Tensor]:
        keep = (torch.arange(len(views[0])) % 2).view(-1, 1, 1, 1)
        return [view * keep for view in views]


@pytest.mark.parametrize("policy", [*VIEWS, "crop+color"])
def test_every_policy_is_drawn_and_judged(data: TrainTest, policy: str) -> None:
    found = feature_dropout("pixels", data, policy, "shapes", draws=96)
    assert found.policy == policy
    assert sum(found.counts()) == 96
    assert float(found.probabilities.min()) >= 0
    assert float(found.probabilities.max()) <= 1
    assert found.bimodality.low <= found.bimodality.coefficient <= found.bimodality.high
    again = feature_dropout("pixels", data, policy, "shapes", draws=96)
    assert torch.equal(again.probabilities, found.probabilities)


@pytest.mark.parametrize("task", ["class", "shapes"])
def test_without_views_it_is_the_probe_s_own_probability(data: TrainTest, task: str) -> None:
    encoder = build_encoder("resnet-tiny", image_size=16, seed=0)
    found = feature_dropout(encoder, data, "none", task, draws=64)
    h, unseen = extract(encoder, data.train.images), extract(encoder, data.test.images)
    y = {task: torch.from_numpy(data.train.labels[task])}
    classes = len(data.train.classes[task])
    probe = fit_linear(h, y, h, y, classes={task: classes})[task]
    logits = (unseen @ probe.weight.T + probe.bias).double().numpy()
    odds = np.exp(logits - logits.max(1, keepdims=True))
    truth = data.test.labels[task]
    expected = odds[np.arange(64), truth] / odds.sum(1)
    np.testing.assert_allclose(found.probabilities.numpy(), expected, atol=1e-5)


def test_the_judge_goes_back_to_its_device(data: TrainTest) -> None:
    encoder = Elsewhere()
    feature_dropout(encoder, data, "none", "shapes", draws=16)
    assert encoder.came_back()


def test_a_policy_that_drops_the_feature_every_other_time_has_two_heaps() -> None:
    rng = np.random.default_rng(0)
    bright = rng.integers(2, size=200)
    images = 60 + 120 * bright[:, None, None, None] + rng.integers(40, size=(200, 8, 8, 3))
    data = open_train_test(
        open_encoder("pixels"),
        {"x": images.astype(np.uint8), "light": bright},
        max_examples=None,
        seed=0,
    )
    kept = feature_dropout("pixels", data, "none", "light", draws=200)
    gone = feature_dropout("pixels", data, HalfGone(), "light", draws=200)
    assert kept.probabilities.min() > 0.9
    assert gone.policy == "HalfGone"
    # An emptied image is dark: every other light one is now taken for the wrong class.
    rows = np.arange(200)
    wrong = (rows % 2 == 0) & (data.test.labels["light"][rows % len(data.test)] == 1)
    assert ((gone.probabilities < 0.5).numpy() == wrong).all()
    assert gone.bimodality.low > 5 / 9


def test_views_come_out_of_a_run_as_training_left_them(in_tmp: Path) -> None:
    widefield.pretrain(
        "photos+shapes",
        out=in_tmp / "run",
        method="simclr",
        views="viewmaker",
        encoder="resnet-tiny",
        max_examples=32,
        image_size=16,
        batch_size=16,
        epochs=1,
        projector_width=16,
        projector_dim=8,
        quiet=True,
    )
    views = run_views(in_tmp / "run")
    trained = views.state_dict()
    assert trained
    start = build_views("viewmaker", seed=0).state_dict()
    assert any(not torch.equal(trained[key], start[key]) for key in trained)


def test_what_cannot_be_drawn_is_refused_in_one_line(data: TrainTest) -> None:
    plain = TrainTest(
        train=open_dataset("photos", max_examples=64, image_size=16),
        test=open_dataset("photos:test", max_examples=64, image_size=16),
    )
    with pytest.raises(ValueError, match="did you mean 'expert'"):
        feature_dropout("pixels", data, "expart", "shapes")
    with pytest.raises(ValueError, match="no task 'digits': the data have class, shapes"):
        feature_dropout("pixels", data, "expert", "digits")
    with pytest.raises(ValueError, match="plant one"):
        feature_dropout("pixels", plain, "noise:object", "class")
