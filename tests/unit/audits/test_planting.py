"""What a plant does to a frozen encoder, on encoders that are blind to it or see nothing else."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widefield.audits import planting, tasks
from widefield.audits.bounds import AuditOptions, Bounds
from widefield.audits.planting import GRADES, MIDDLE, audit_plant
from widefield.data import Dataset, open_dataset
from widefield.data.planted import PLANTS, AudioFeature, Digits, ImageFeature, Shapes, read_plant
from widefield.inference.features import FeatureExtractor
from widefield.inference.splits import TrainTest
from widefield.probes.outcome import Outcome

OPTIONS = AuditOptions(cache=None, seed=0, quiet=True)
DRAWN, HEARD = (
    {name for name, plant in PLANTS.items() if issubclass(plant, kind)}
    for kind in (ImageFeature, AudioFeature)
)


def noise(n: int, seed: int) -> Dataset:
    """Images uint8 [n, 32, 32, 3] of faint noise."""
    images = np.random.default_rng(seed).integers(120, 136, (n, 32, 32, 3)).astype(np.uint8)
    return Dataset(
        spec="noise", images=images, labels={}, classes={}, names=[f"row {i}" for i in range(n)]
    )


class Corner(nn.Module):
    """The top left corner, which no shape reaches."""

    def forward(self, x: Tensor) -> Tensor:
        return x[..., :6, :6].flatten(1)


class Center(nn.Module):
    """The center, where shapes lie."""

    def forward(self, x: Tensor) -> Tensor:
        return x[..., 8:24, 8:24].flatten(1)


@pytest.fixture
def known_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Floors at a third and ceilings at 1, without training."""

    def bounds(
        _: FeatureExtractor, grades: list[TrainTest], *__: object, **___: object
    ) -> list[dict[str, Bounds]]:
        found = []
        for grade in grades:
            floor = Outcome(values=np.arange(len(grade.test)) % 3 == 0, knn=1 / 3)
            top = Outcome(values=np.ones(len(grade.test), bool), knn=1.0)
            bounds = Bounds(floors={"pixels": floor, "random": floor}, ceiling=top)
            found.append(dict.fromkeys(grade.tasks, bounds))
        return found

    monkeypatch.setattr(tasks, "graded_bounds", bounds)


def audited(encoder: nn.Module) -> planting.PlantAudit:
    data = TrainTest(train=noise(600, 0), test=noise(300, 1))
    extractor = FeatureExtractor(name="built", encoder=encoder)
    found, _ = audit_plant(extractor, data, "shapes", OPTIONS)
    return found


@pytest.mark.usefixtures("known_bounds")
def test_a_plant_that_is_not_seen_is_not_learned_and_hides_nothing() -> None:
    found = audited(Corner())
    assert [grade.verdict for grade in found.grades] == ["not learned"] * len(GRADES["shapes"])
    assert found.neighbors_kept == (1.0,) * len(found.grades)
    assert found.verdict is found.grades[MIDDLE]


@pytest.mark.usefixtures("known_bounds")
def test_a_plant_that_is_all_there_is_to_see_hides_the_images() -> None:
    found = audited(Center())
    assert found.grades[-1].verdict == "learned"
    assert found.grades[-1].learned >= found.grades[0].learned
    assert max(found.neighbors_kept[:-1]) < 3 * found.neighbors_by_chance
    # White and at one place, a shape leaves the images of its class, a third of all, as they were
    # to each other.
    assert 0.15 < found.neighbors_kept[-1] < 0.4
    assert found.line().endswith("; by chance 3 %")
    assert found.neighbors_by_chance == pytest.approx(10 / 299)


def test_grades_go_from_hard_to_easy_by_options_that_plants_take() -> None:
    assert GRADES.keys() == DRAWN | HEARD
    for name, grades in GRADES.items():
        for plant in grades:
            texts = {key: str(value) for key, value in vars(plant).items()}
            texts = {key: text for key, text in texts.items() if text not in ("False", "None")}
            assert read_plant(name, texts) == plant


@pytest.mark.parametrize("name", sorted(HEARD))
def test_sounds_grow_louder_beside_the_example(name: str) -> None:
    levels = [getattr(plant, "level", getattr(plant, "low", None)) for plant in GRADES[name]]
    assert levels == sorted(levels, reverse=True)
    assert len(set(levels)) == len(levels)


def test_drawn_plants_grow_larger_and_keep_still() -> None:
    for name in DRAWN:
        grades = GRADES[name]
        sizes = [plant.size for plant in grades]
        assert sizes == sorted(sizes)
        opacity = [plant.alpha for plant in grades]
        assert opacity == sorted(opacity)
        fixed = [plant.color == "fixed" for plant in grades]
        assert fixed == sorted(fixed)
        moves = [
            plant.jitter > 0 if isinstance(plant, Digits) else plant.place == "free"
            for plant in grades
        ]
        assert moves == sorted(moves, reverse=True)


def test_planting_leaves_the_images_alone() -> None:
    data = TrainTest(train=noise(20, 0), test=noise(20, 1))
    before = data.train.images.copy()
    planted = data.planted(Shapes(), seed=0)
    np.testing.assert_array_equal(data.train.images, before)
    changed = (planted.train.images != before).any(axis=3)
    masks = planted.train.masks(np.arange(20))[..., 0]
    assert changed.any(axis=(1, 2)).all()
    assert not (changed & ~masks).any()
    again = data.planted(Shapes(), seed=0).train
    np.testing.assert_array_equal(planted.train.images, again.images)


class Constant(nn.Module):
    """The same features of every image."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.ones(len(x), 4, device=x.device)


@pytest.mark.usefixtures("known_bounds")
def test_neighbors_by_features_that_tell_nothing_are_kept_by_chance() -> None:
    found = audited(Constant())
    assert found.neighbors_kept == pytest.approx((10 / 299,) * len(found.grades))


@pytest.mark.parametrize("name", sorted(DRAWN))
def test_there_is_room_for_a_plant_where_each_class_has_two_examples(name: str) -> None:
    fits = []
    for n in (3, 12, 400):
        data = TrainTest(train=noise(n, 0), test=noise(5, 1))
        y = data.planted(GRADES[name][MIDDLE], seed=0).train.labels[name]
        sizes = np.bincount(y)
        fits.append(planting.has_enough_examples(data, name, seed=0))
        assert fits[-1] == (min(sizes[sizes > 0]) > 1 and (sizes > 0).sum() > 1)
    assert fits[0] < fits[-1]


def planted(feature: Digits, count: int) -> TrainTest:
    """Equal black images in both splits, so that only the pool can tell their plants apart."""
    black = open_dataset({"x": np.zeros((count, 32, 32, 3), np.uint8)})
    return TrainTest(train=black, test=black).planted(feature, seed=0)


def test_test_images_have_digits_that_no_training_image_has() -> None:
    """At a fixed place and in a fixed color, an image is its digit."""
    splits = planted(Digits(), 600)
    train, test = ({image.tobytes() for image in d.images} for d in (splits.train, splits.test))
    assert len(train) > 300
    assert not train & test


@pytest.mark.parametrize("name", ["digits", "shapes", "letters"])
def test_test_labels_are_drawn_anew(name: str) -> None:
    """From the pool of the training images, equal rows would have equal labels."""
    splits = planted(GRADES[name][MIDDLE], 200)  # type: ignore[arg-type]
    train, test = splits.train.labels[name], splits.test.labels[name]
    classes = len(splits.train.classes[name])
    assert (train == test).mean() < 1 / classes + 0.15
