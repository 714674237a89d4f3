"""What a study is: encoders to train, what is measured of each, and the criteria of findings."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from studies.packs import Packs
    from studies.trained import Trained

ScaleName = Literal["tiny", "cpu", "gpu"]
SCALES: tuple[ScaleName, ...] = ("tiny", "cpu", "gpu")
"""tiny proves that a study runs; cpu is a small encoder on real images; gpu is the paper's own."""

Measured = dict[str, Any]
"""Name of a measure, with its unit -> number."""
SeedRuns = Mapping[str, Measured]
"""What was measured with one seed: arm -> measures. `TOGETHER` are those of all arms at once."""
TOGETHER = "all arms"
RATE = ", lr "
"""Between the name of an arm and the learning rate that one of its runs has in place of its own."""
RATES = (1e-3, 1e-2)


@dataclass(frozen=True, kw_only=True)
class Scale:
    """How large the runs of a study are.

    Args:
        images: training images at most; None takes all.
        epochs: of an arm whose `epochs` is 1.
        encoder: architecture of every arm that names none.
        seeds: one run of every arm for each.
        minutes: the time that it may take, on two cores or one GPU.
        settings: arguments of `widefield.pretrain` of every run.
        probed: training images at most that probes are fitted on; None takes all of the run.
        validation: further training images that choices are made on.
        rate_seeds: the first seeds, in which every learning rate of an arm runs; in the others only
            the one runs that is best on validation images. None runs all in every seed.
        arms: how many of the study's arms run, from the first; None runs all.
        of_method: further ones of the runs of a method, by its name.
    """

    images: int | None
    epochs: int
    encoder: str = "resnet-tiny"
    seeds: tuple[int, ...] = (0, 1, 2)
    minutes: float
    settings: Mapping[str, Any] = field(default_factory=dict)
    probed: int | None = None
    validation: int = 3000
    rate_seeds: int | None = None
    arms: int | None = None
    of_method: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


TINY = Scale(
    images=48,
    epochs=1,
    seeds=(0,),
    minutes=0.2,
    validation=24,
    settings={"batch_size": 24, "image_size": 16, "projector_width": 32},
)
"""Seconds of generated images; its findings are not decided."""


ONE_ARM = replace(TINY, arms=1)
"""For studies whose arms differ in numbers alone."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """One encoder of a study.

    Args:
        data: a data pack by name, and what is planted on it: `cifar10+digits:fresh`.
        settings: arguments of `widefield.pretrain`; None leaves the encoder untrained.
        epochs: in multiples of those of the scale; at least one epoch is trained.
        images: training images at most, where these are fewer than those of the scale.
        pixels: raw pixels in place of an untrained encoder.
        dictionary: a dictionary of patches of the images in place of one.
        statistics: an untrained encoder with the data's statistics in its BatchNorm layers, and
            its dictionary fitted: a run at a learning rate of 0.
        start: an arm whose encoder of seed 0 is trained further.
        weights: returns the file of the weights that it starts from, from packs.
        compared: whether its run compares the result with the start at its end, as a user's does.
        source: returns what is trained on, where `data` is no pack, from packs, scale and seed.
        about: what the `measure` of the study takes from its arms.
    """

    data: str
    settings: Mapping[str, Any] | None = field(default_factory=dict)
    epochs: float = 1.0
    images: int | None = None
    pixels: bool = False
    dictionary: bool = False
    statistics: bool = False
    start: "Arm | None" = None
    weights: Callable[["Packs"], str] | None = None
    compared: bool = False
    source: Callable[["Packs", Scale, int], Any] | None = None
    about: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Gate:
    """When an arm counts as trained: above its untrained network, at the best of its rates.

    The best learning rate is chosen on validation images, alike for every arm.

    Args:
        points: by how much at least, mean over the seeds.
        measures: of which one must be so far above.
        rates: how many learning rates an arm is trained at, at least.
    """

    points: float = 3.0
    measures: tuple[str, ...] = ("class, %",)
    rates: int = 3


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A claim with the criterion that decides it, written before the result.

    `studies.verdict` has the rule. A claim cannot be decided where one of the arms in `trained`
    fails the gate of the study, nor where `valid` is false.

    Args:
        id: of a row in docs/papers.yaml, or a name of ours.
        criterion: in words, with direction and size.
        value: the number of one seed, which the claim expects to be positive.
        at_least: size that the claim asks for, in the unit of `value`.
        trained: arms that must have learned, each measured at its best learning rate.
        valid: whether the runs of one seed can decide the claim; a judge at chance cannot.
    """

    id: str
    criterion: str
    value: Callable[[SeedRuns], float]
    at_least: float = 0.0
    trained: tuple[str, ...] = ()
    valid: Callable[[SeedRuns], bool] = lambda runs: True


@dataclass(frozen=True, kw_only=True)
class Study:
    """Encoders that are trained and measured to decide the findings of one table or figure.

    Args:
        id: the table or figure, `SD-T3`, or a name of ours.
        question: one sentence.
        scales: sizes of its runs; a scale that is missing has a reason in `missing`.
        arms: name -> encoder. `ROW @ COLUMN` puts the arm into a row and a column of the table.
        gate: when an arm counts as trained; None where no claim needs one that is.
        measure: the numbers of one trained encoder.
        validate: its numbers on validation images, for the gate; default: the accuracy of every
            task.
        together: the numbers of all encoders of one seed, where these belong together.
        figure: draws the encoders of the first seed; written to docs/studies/ID.png.
        published: what the paper reports.
        conclusion: what follows, written after the result.
        commit: of a closed question, the one that has its code.
    """

    id: str
    question: str
    scales: Mapping[ScaleName, Scale]
    arms: Mapping[str, Arm]
    findings: tuple[Finding, ...] = ()
    gate: Gate | None = None
    measure: Callable[["Trained"], Measured] | None = None
    validate: Callable[["Trained"], Measured] | None = None
    together: Callable[[Mapping[str, "Trained"]], Measured] | None = None
    figure: Callable[[Mapping[str, "Trained"]], "Figure"] | None = None
    published: str = ""
    conclusion: str = ""
    commit: str = ""
    missing: Mapping[ScaleName, str] = field(default_factory=dict)

    def arms_at(self, scale: ScaleName) -> list[str]:
        """Return the names of the arms that run at a scale; at tiny, each at one learning rate."""
        arms = self.arms
        names = [x for x in arms if scale != "tiny" or x.rpartition(RATE)[0] not in arms]
        return names[: self.scales[scale].arms]

    @property
    def trains(self) -> bool:
        """Whether an arm is trained; images, epochs and encoder of the scale are of such arms."""
        return any(arm.settings is not None for arm in self.arms.values())

    def untrained(self, arm: str) -> str:
        """Return the arm that is the untrained network of another: of its data, or of all."""
        own = f"{arm.partition(', ')[0]}, untrained"
        return own if own in self.arms else "untrained"


def at_rates(arms: Mapping[str, Arm], rates: tuple[float, ...] = RATES) -> dict[str, Arm]:
    """Return arms, and those that are trained at further learning rates too."""
    return dict(arms) | {
        f"{name}{RATE}{rate:g}": replace(arm, settings={**arm.settings, "lr": rate})
        for name, arm in arms.items()
        if arm.settings is not None
        for rate in rates
    }


def cpu_study(*, cpu: Scale, tiny: Scale | str = ONE_ARM, **fields: Any) -> Study:
    """Return a study of short runs on a CPU, which has no scale gpu.

    Args:
        cpu: its size.
        tiny: its smallest size, or the reason why it has none.
        fields: the others of `Study`.
    """
    missing: dict[ScaleName, str] = {"gpu": "it asks about short runs on a CPU"}
    if isinstance(tiny, str):
        return Study(scales={"cpu": cpu}, missing={"tiny": tiny, **missing}, **fields)
    return Study(scales={"tiny": tiny, "cpu": cpu}, missing=missing, **fields)


def percent(share: float) -> float:
    """Return a share in [0, 1] in percent, as results keep it."""
    return round(100 * float(share), 2)


def difference(measure: str, a: str, b: str) -> Callable[[SeedRuns], float]:
    """Return the value of a finding: `measure` of arm `a` minus that of arm `b`."""
    return lambda runs: runs[a][measure] - runs[b][measure]
