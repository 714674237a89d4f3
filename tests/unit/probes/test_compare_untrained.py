"""Better than untrained or not: encoders that are, that are not, and that collapsed."""

import copy
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from widefield.data import Dataset, open_dataset
from widefield.encoders import build_encoder
from widefield.probes import extract
from widefield.probes.compare import IMAGE_COUNTS, compare, compare_with_baseline
from widefield.probes.comparison import Comparison
from widefield.probes.paired import PairedDifference
from widefield.probes.verdicts import MIN_INCREASE, judge_against_untrained, overruled_by_labels

CPU = torch.device("cpu")
SIDE = 16
LEAST = IMAGE_COUNTS["untrained"][0]


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


def images(count: int = 200) -> Dataset:
    return open_dataset("photos", max_examples=count, image_size=SIDE)


def compared(encoder: nn.Module, data: Dataset, *, use_labels: bool = False) -> Comparison:
    found = compare_with_baseline(encoder, data, seed=0, device=CPU, use_labels=use_labels)
    assert found is not None
    return found


def test_an_encoder_of_what_views_keep_is_better_than_untrained() -> None:
    found = compared(Waves(), images(), use_labels=True)
    assert found.verdict == found.without_labels == "better"
    assert found.lines()[0].startswith("better than untrained: ")
    assert found.lines()[1].startswith("neighbor consistency under augmentation ")
    assert "labels" not in found.lines()[1]


@pytest.mark.parametrize(
    ("is_from_start", "use_labels"), [(False, True), (False, False), (True, True)]
)
def test_progress_counts_the_images_of_all_encoders(is_from_start: bool, use_labels: bool) -> None:
    """As the comparison is made of images, and not only at its end."""
    encoder, data = build_encoder("resnet-tiny", image_size=SIDE, seed=0), images(100)
    calls: list[tuple[int, int]] = []
    initial = build_encoder("resnet-tiny", image_size=SIDE, seed=1) if is_from_start else None
    compare_with_baseline(
        encoder,
        data,
        initial=initial,
        seed=0,
        device=CPU,
        use_labels=use_labels,
        progress=lambda done, total: calls.append((done, total)),
    )
    done, totals = zip(*calls, strict=True)
    assert list(done) == sorted({*done})
    assert done[0] == len(data)
    assert {*totals} == {done[-1]}


def test_labels_that_are_significantly_lower_overrule() -> None:
    better = ("better", "the label-free scores rose")
    lower = PairedDifference(before=0.8, after=0.5, low=-0.4, high=-0.2)
    unsure = PairedDifference(before=0.8, after=0.5, low=-0.4, high=0.1)
    worse = ("worse", "linear-probe accuracy (class) is significantly lower")
    assert overruled_by_labels(better, {"class": lower, "kind": unsure}) == worse
    assert overruled_by_labels(better, {"class": unsure}) == better


def test_untrained_encoders_are_not_better_than_untrained() -> None:
    """The control: the same architecture, drawn five times."""
    for seed in range(5):
        encoder = build_encoder("resnet-tiny", image_size=SIDE, seed=100 + seed)
        found = compared(encoder, images(150), use_labels=True)
        assert found.without_labels in ("no significant difference", "inconclusive")
        assert found.verdict != "better"


def test_features_that_collapsed_are_called_so() -> None:
    encoder = Waves()
    with torch.no_grad():
        encoder.linear.weight[2:] = 0
    found = compared(encoder, images(), use_labels=True)
    assert found.verdict == "worse"
    assert found.health[0] == "healthy"
    assert found.health[1] in ("collapsing", "collapsed")


def test_a_dead_encoder_is_not_better() -> None:
    class Dead(Waves):
        def forward(self, x: Tensor) -> Tensor:
            return 0 * super().forward(x)

    found = compared(Dead(), images(), use_labels=True)
    assert found.verdict == "no significant difference"
    assert found.health == ("collapsed", "collapsed")  # untrained, it is as dead
    assert found.label_free["neighbor_consistency"].after < 0.5


@pytest.fixture(scope="module")
def of_few() -> Comparison:
    return compared(Waves(), images(LEAST))


def test_the_encoder_and_the_global_random_state_stay() -> None:
    encoder = Waves()
    before, state = copy.deepcopy(encoder.state_dict()), torch.get_rng_state()
    compared(encoder, images(LEAST), use_labels=True)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in encoder.state_dict().items():
        assert torch.equal(value, before[name])


def test_nothing_is_said_of_few_images_and_of_signals() -> None:
    few, windows = images(LEAST - 1), open_dataset("motion", max_examples=2 * LEAST)
    for data in (few, windows):
        assert compare_with_baseline(nn.Flatten(), data, seed=0, device=CPU) is None


def made(difference: float, half: float) -> PairedDifference:
    return PairedDifference(
        before=0.4, after=0.4 + difference, low=difference - half, high=difference + half
    )


@pytest.mark.parametrize(
    ("mean", "verdict"),
    [
        (made(MIN_INCREASE + 0.001, MIN_INCREASE), "better"),
        (made(MIN_INCREASE - 0.001, MIN_INCREASE / 2), "no significant difference"),
        (made(MIN_INCREASE + 0.02, MIN_INCREASE + 0.03), "no significant difference"),
        (made(-0.2, 0.01), "inconclusive"),
    ],
)
def test_a_rise_has_to_be_significant_and_large_enough(
    of_few: Comparison, mean: PairedDifference, verdict: str
) -> None:
    better = verdict == "better"
    assert judge_against_untrained(mean, collapsed=False)[0] == verdict
    # Features that collapsed may be better all the same.
    collapsed = judge_against_untrained(mean, collapsed=True)[0]
    assert collapsed == ("better" if better else "worse")
    found = replace(of_few, verdict=verdict)
    assert ("labels" in found.lines()[1]) == (not better)


def test_the_mean_is_that_of_the_three_scores(of_few: Comparison) -> None:
    found = of_few.label_free
    for end in ("before", "after"):
        scores = [getattr(part, end) for name, part in found.items() if name != "mean"]
        assert len(scores) == 3
        assert getattr(found["mean"], end) == pytest.approx(sum(scores) / 3)


def test_an_encoder_is_not_better_than_itself() -> None:
    """The control: the same features on both sides, by the rule against the untrained encoder."""
    data = images(LEAST)
    features = partial(extract, Waves())
    found = compare(features, features, data.images, data.labels, baseline="untrained")
    assert found.verdict == found.without_labels == "no significant difference"
    for score in (*found.label_free.values(), *found.linear.values(), *found.knn.values()):
        assert (score.low, score.high) == (0, 0)
