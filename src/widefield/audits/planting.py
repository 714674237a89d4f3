"""Planted features of graded difficulty: the part of an audit that needs no labels.

An encoder that predicts only the easiest plants, which are large, opaque, white and always at one
position, has learned little of the feature. An encoder may also be so sensitive to a plant that
images with the same plant become neighbors: the plant then hides the content of the images.
"""

from dataclasses import dataclass

from widefield.audits.bounds import AuditOptions
from widefield.audits.tasks import Reference, audit_grades
from widefield.audits.verdict import TaskAudit
from widefield.data.planted import PLANTS, AudioFeature, ImageFeature
from widefield.inference.features import FeatureExtractor
from widefield.inference.splits import TrainTest
from widefield.metrics import neighbor_agreement
from widefield.probes.checks import has_two_of_each

GRADES: dict[str, tuple[ImageFeature | AudioFeature, ...]] = {
    plant.name: plant.levels()
    for plant in PLANTS.values()
    if issubclass(plant, ImageFeature | AudioFeature)
}
"""Options of each plant from hard to easy: size and opacity grow, then the color is the same in
every image, then the position too. At a fixed position raw pixels suffice for a linear probe."""
MIDDLE = 2
"""Index of the grade whose verdict is the plant's."""
# Chosen by hand: each plant is probed at five grades, with floors and a ceiling at each.
_MAX_TRAIN, _MAX_TEST = 2000, 1000
# Chosen by hand.
GRAPH_NEIGHBORS = 10
"""Nearest neighbors of an image that are compared."""


@dataclass(frozen=True, kw_only=True)
class PlantAudit:
    """One planted feature at every grade, from hard to easy."""

    name: str
    grades: tuple[TaskAudit, ...]
    neighbors_kept: tuple[float, ...]
    """Share of its nearest neighbors that an image keeps when all images are planted, by grade."""
    neighbors_by_chance: float
    """`neighbors_kept` of unrelated features."""

    @property
    def verdict(self) -> TaskAudit:
        """The verdict at the middle grade."""
        return self.grades[MIDDLE]

    def line(self) -> str:
        """Return in one sentence how planting changes the neighbors of the images."""
        middle, last = (100 * self.neighbors_kept[i] for i in (MIDDLE, -1))
        return (
            f"{self.name}: with the middle plant an image keeps {middle:.0f} % of "
            f"its {GRAPH_NEIGHBORS} nearest neighbors, with the easiest {last:.0f} %; by chance "
            f"{100 * self.neighbors_by_chance:.0f} %"
        )


def has_enough_examples(data: TrainTest, name: str, *, seed: int) -> bool:
    """Return whether a probe can be fitted to the plant `name`, whose classes are random."""
    y = data.planted_labels(GRADES[name][MIDDLE], seed=seed)
    # The class depends on the position in the data, so the first are those of the subset.
    return has_two_of_each(y[:_MAX_TRAIN])


def audit_plant(
    extractor: FeatureExtractor, data: TrainTest, name: str, options: AuditOptions
) -> tuple[PlantAudit, Reference]:
    """Audit the plant `name` at every grade; the second result is that of the middle one."""
    data = spread_subset(data)
    splits = [data.planted(feature, seed=options.seed) for feature in GRADES[name]]
    found = audit_grades(extractor, splits, options, middle=MIDDLE)
    k = min(GRAPH_NEIGHBORS, len(data.test) - 1)
    plain = extractor.features(data.test.inputs)
    result = PlantAudit(
        name=name,
        grades=tuple(tasks[name] for _, tasks in found),
        neighbors_kept=tuple(
            float(neighbor_agreement(plain, extractor.features(grade.test.inputs), k).mean())
            for grade in splits
        ),
        neighbors_by_chance=k / (len(data.test) - 1),
    )
    return result, found[MIDDLE][0]


def spread_subset(data: TrainTest) -> TrainTest:
    """Return a subset spread over all examples of both splits."""
    train, test = (
        half.subset(half.spread_rows(count)).first_read()
        for half, count in ((data.train, _MAX_TRAIN), (data.test, _MAX_TEST))
    )
    return TrainTest(train=train, test=test)
