"""Better than untrained or not: encoders that are, that are not, and that collapsed."""

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from widefield.data import Dataset, open_dataset
from widefield.encoders import build_encoder
from widefield.evaluation.gain import (
    LEAST,
    RISEN,
    Gain,
    compare_with_untrained,
    judged,
)
from widefield.evaluation.paired import Change
from widefield.evaluation.reading import Reading

CPU = torch.device("cpu")
SIDE = 16


class Waves(nn.Module):
    """A linear map of gray pixels to slow waves over the image; untrained, to noise."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(SIDE * SIDE, 8, bias=False)
        place = torch.pi * (torch.arange(SIDE) + 0.5) / SIDE
        down = torch.stack([max(k, 1) ** 0.5 * torch.cos(k * place) for k in range(4)])
        across = torch.stack([max(2 * k, 1) ** 0.5 * torch.cos(2 * k * place) for k in range(2)])
        with torch.no_grad():  # across, they are the same in the mirror
            self.linear.weight.copy_(torch.einsum("ai,bj->abij", down, across).reshape(8, -1))

    def forward(self, x: Tensor) -> Tensor:
        gray = x.mean(1).flatten(1)
        h: Tensor = self.linear(gray - gray.mean(1, keepdim=True))
        return h


def images(count: int = 400) -> Dataset:
    return open_dataset("photos", max_examples=count, image_size=SIDE)


def gain(encoder: nn.Module, data: Dataset) -> Gain:
    found = compare_with_untrained(encoder, data, seed=0, device=CPU)
    assert found is not None
    return found


def test_an_encoder_of_what_views_keep_is_better_than_untrained() -> None:
    found = gain(Waves(), images())
    assert found.verdict == "better than untrained"
    assert found.lines()[0].startswith("better than untrained: images keep ")
    assert "labels" not in found.lines()[0]


def test_labels_that_are_read_worse_are_said_first() -> None:
    found = gain(Waves(), images())
    lost = Change(before=0.8, after=0.5, low=-0.4, high=-0.2)
    kept = Change(before=0.8, after=0.5, low=-0.4, high=0.1)
    worse = replace(found, labels={"class": Reading(untrained=lost, pixels=lost)})
    assert worse.lines()[0].startswith(
        "worse than untrained by the labels of class, without them better than untrained: images"
    )
    unsure = replace(found, labels={"class": Reading(untrained=kept, pixels=lost)})
    assert unsure.lines()[0] == found.lines()[0]


def test_untrained_encoders_are_not_better_than_untrained() -> None:
    """The control: the same architecture, drawn five times."""
    for seed in range(5):
        encoder = build_encoder("resnet-tiny", image_size=SIDE, seed=100 + seed)
        assert gain(encoder, images()).verdict == "not shown to be better than untrained"


def test_features_that_collapsed_are_called_so() -> None:
    encoder = Waves()
    with torch.no_grad():
        encoder.linear.weight[2:] = 0
    assert gain(encoder, images()).verdict in ("collapsing", "collapsed")


def test_a_dead_encoder_is_not_better() -> None:
    class Dead(Waves):
        def forward(self, x: Tensor) -> Tensor:
            return 0 * super().forward(x)

    found = gain(Dead(), images())
    assert found.verdict == "collapsed"
    assert found.agreement.after < 0.5


def test_the_encoder_and_the_global_random_state_stay() -> None:
    encoder = Waves()
    before, state = copy.deepcopy(encoder.state_dict()), torch.get_rng_state()
    gain(encoder, images(LEAST))
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in encoder.state_dict().items():
        assert torch.equal(value, before[name])


def test_nothing_is_said_of_few_images_and_of_signals() -> None:
    few, windows = images(LEAST - 1), open_dataset("motion", max_examples=2 * LEAST)
    for data in (few, windows):
        assert compare_with_untrained(nn.Flatten(), data, seed=0, device=CPU) is None


def made(difference: float, half: float) -> Change:
    return Change(before=0.4, after=0.4 + difference, low=difference - half, high=difference + half)


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [
        (made(RISEN + 0.001, RISEN), "better than untrained"),
        (made(RISEN - 0.001, RISEN / 2), "not shown to be better than untrained"),
        (made(RISEN + 0.02, RISEN + 0.03), "not shown to be better than untrained"),
        (made(-0.2, 0.01), "not shown to be better than untrained"),
    ],
)
def test_a_rise_has_to_be_sure_and_large_enough(mean: Change, verdict: str) -> None:
    better = verdict == "better than untrained"
    assert judged(mean, "healthy") == verdict
    for state in ("collapsing", "collapsed"):  # such features may be better all the same
        assert judged(mean, state) == (verdict if better else state)
    found = replace(gain(Waves(), images(LEAST)), verdict=judged(mean, "healthy"), labels={})
    assert ("labels" in found.lines()[0]) == (not better)


def test_the_mean_is_that_of_the_three_shares() -> None:
    found = gain(Waves(), images(LEAST))
    for end in ("before", "after"):
        kept, named, opposite = (
            getattr(part, end) for part in (found.agreement, found.turns, found.quarters)
        )
        assert getattr(found.mean, end) == pytest.approx((kept + named + opposite) / 3)
