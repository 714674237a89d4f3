"""Encoders whose truth is known by construction: a dozen of those of `studies/calibration.py`.

A feature is removed from the last layer of an encoder, before its first one, or not at all.
"""

from functools import cache, partial
from typing import Any

import pytest
import torch

from studies import calibration as verdicts
from widefield.audits.verdict import TaskAudit
from widefield.probes import extract, fit_linear

PLAIN = verdicts.World("place", 4, "noise", contrast=90, summed=False)
SUMMED = verdicts.World("place", 4, "noise", contrast=25, summed=True)


@cache
def group_of(world: object) -> Any:
    return verdicts.Group(world, "conv", 0)


@cache
def audited(world: object) -> dict[str, TaskAudit]:
    """The verdicts on a trained and an untrained network in three forms each."""
    group = group_of(world)
    trained, accuracy = group.trained()
    assert accuracy > verdicts.KNOWN, "the network knows the feature"
    return {
        f"{state} {form}": group.audit(encoder)
        for state, network in (("trained", trained), ("untrained", group.network(4)))
        for form, encoder in verdicts.erased(network, world.kind, group.data.train).items()
    }


@pytest.mark.parametrize(
    ("world", "encoder", "truth"),
    [
        (PLAIN, "trained intact", "easy"),
        (PLAIN, "trained output", "hidden"),
        (PLAIN, "trained everywhere", "lost"),
        (PLAIN, "untrained intact", "easy"),
        (PLAIN, "untrained output", "hidden"),
        (PLAIN, "untrained everywhere", "lost"),
        (SUMMED, "trained intact", "learned"),
        (SUMMED, "trained output", "hidden"),
        (SUMMED, "trained everywhere", "not learned"),
        (SUMMED, "untrained intact", "not learned"),
        (SUMMED, "untrained output", "not learned"),
        (SUMMED, "untrained everywhere", "not learned"),
    ],
)
def test_the_verdict_is_the_truth(world: object, encoder: str, truth: str) -> None:
    """Each form fails the verdicts of the other two, on the same network and images."""
    found = audited(world)[encoder]
    assert found.verdict == truth, found.line()


def test_pixels_predict_one_pattern_and_no_sum_of_two() -> None:
    for world, low, high in ((PLAIN, 0.98, 1), (SUMMED, 0, 0.35)):
        pixels = group_of(world).floors["pixels"]
        assert low <= pixels.value <= high


@pytest.mark.parametrize("kind", ["place", "digit", "letter", "color", "bits"])
def test_images_without_the_feature_do_not_predict_it(kind: str) -> None:
    """The control: the images as they are do."""
    world = verdicts.World(kind, 2, "stripes", contrast=40, summed=False)
    images, y = world.sample(200, seed=0)
    x, _ = verdicts.tensors(images, y)
    without = verdicts.without_feature(x, kind)
    for images, lowest, highest in ((x, 0.95, 1.0), (without, 0.0, 0.65)):
        form = images.flatten(1)
        probe = fit_linear(
            form[:100],
            {"y": torch.tensor(y[:100])},
            form[100:],
            {"y": torch.tensor(y[100:])},
            classes={"y": 2},
        )["y"]
        assert lowest <= probe.outcome.value <= highest


def test_linear_erasure_leaves_no_covariance_and_changes_nothing_else() -> None:
    generator = torch.Generator().manual_seed(0)
    y = torch.randint(3, (400,), generator=generator)
    h = torch.randn(400, 8, generator=generator) @ torch.randn(8, 8, generator=generator)
    h[:, 0] += y
    h[:, 3] = 2.0  # a unit that never changes
    erased = verdicts.LinearErasure(h, y)(h)
    one_hot = torch.eye(3)[y]
    covariance = (erased - erased.mean(0)).T @ (one_hot - one_hot.mean(0)) / 400
    assert covariance.abs().max() < 1e-5
    assert torch.equal(erased[:, 3], h[:, 3])
    assert torch.linalg.matrix_rank(h - erased, rtol=1e-4) == 2  # classes - 1


def test_the_encoder_of_each_architecture_has_stages_and_keeps_the_erasure() -> None:
    for architecture in verdicts.NETWORKS:
        network = verdicts.NETWORKS[architecture].build(3).eval()
        images, _ = PLAIN.sample(4, seed=0)
        hidden = verdicts.Known(network, last=torch.zeros_like)
        assert not extract(hidden, images).any()
        assert extract(verdicts.Known(network), images).any()
        masked = verdicts.Known(network, first=partial(verdicts.without_feature, kind="place"))
        other = images.copy()
        other[:, :, verdicts.RIGHT] = 0
        assert torch.equal(extract(masked, images), extract(masked, other))


def run(encoder: str, verdict: str) -> dict[str, object]:
    """A group of one encoder, which an untrained network predicts perfectly."""
    return {
        "architecture": "conv",
        "world": {"kind": "place", "classes": 4},
        "classifier": 1.0,
        "untrained": {"pooled": 1.0, "stages": 1.0},
        "encoders": {encoder: {"verdict": verdict}},
    }


@pytest.mark.parametrize(
    ("encoder", "verdict", "wrong"),
    [
        ("trained intact", "easy", 0),
        ("trained output", "hidden", 0),
        ("trained output", "lost", 1),
        ("trained everywhere", "lost", 0),
        ("trained everywhere", "hidden", 1),
        ("trained everywhere", "unclear", 0),
        ("trained intact", "hidden", 1),
    ],
)
def test_wrong_verdicts_are_counted(encoder: str, verdict: str, wrong: int) -> None:
    summary = verdicts.summary({"a": run(encoder, verdict)})
    assert (summary["known"], len(summary["wrong"])) == (1, wrong)
    assert summary["unclear"] == (verdict == "unclear")
