"""Wen and Li: toward understanding the feature learning process of contrastive learning (2021)."""

from collections.abc import Callable
from dataclasses import replace

from studies.seen import (
    CLEAR,
    COLORFUL,
    GRAY,
    IN_MAP,
    LAYERS,
    R2,
    RATE,
    STRENGTH,
    UNIFORM,
    WIDE_R2,
    color_and_class,
    draw_firing,
    draw_maps,
    draw_neurons,
    firing,
    map_accuracy,
    neurons,
)
from studies.study import (
    TINY,
    Arm,
    Finding,
    Gate,
    Scale,
    SeedRuns,
    Study,
    at_rates,
    difference,
)

CPU = Scale(images=2000, epochs=12, seeds=tuple(range(8)), minutes=70, settings={"batch_size": 64})
GPU = Scale(images=47_000, epochs=100, encoder="wide-resnet-34-5", minutes=600)
SCALES = {"tiny": TINY, "cpu": CPU, "gpu": GPU}


def contrastive(views: str, **settings: object) -> Arm:
    """Return SimCLR on one policy of views."""
    return Arm(data="cifar10", settings={"method": "simclr", "views": views, **settings})


def supervised(views: str) -> Arm:
    """Return supervised training on one policy of views."""
    return Arm(data="cifar10", settings={"method": "supervised", "views": views})


NO_VIEWS, CROP, COLOR = contrastive("none"), contrastive("crop"), contrastive("crop+color")
UNTRAINED = Arm(data="cifar10", settings=None)


def clear(*arms: str) -> Callable[[SeedRuns], bool]:
    """Return whether images activate the neurons of every arm clearly."""
    return lambda runs: all(runs[arm][STRENGTH] > CLEAR for arm in arms)


def more(measure: str, a: str, b: str) -> Callable[[SeedRuns], float]:
    """Return by how many percent `measure` of arm `a` exceeds that of arm `b`."""
    return lambda runs: 100 * (runs[a][measure] / runs[b][measure] - 1)


VIEWS = at_rates({"none": NO_VIEWS, "crop": CROP, "crop+color": COLOR, "untrained": UNTRAINED})
NEURONS = Study(
    id="FL-F1-F2",
    question="What do neurons show by views, with labels, and with an adversary?",
    published="pictures: nothing without augmentation, mixtures of colors with crops, shapes with "
    "crops and color distortion; shapes and colors supervised",
    scales=SCALES,
    arms=VIEWS
    | at_rates(
        {
            "supervised": supervised("crop"),
            "adversarial": contrastive("crop+color+adversarial", attack_steps=2),
        }
    ),
    gate=Gate(),
    measure=neurons,
    figure=draw_neurons,
    findings=(
        Finding(
            id="FL-F1 supervised",
            criterion="the share of chroma is at least a fourth higher supervised than contrastive",
            value=more(COLORFUL, "supervised", "crop+color"),
            at_least=25.0,
            trained=("supervised", "crop+color"),
            valid=clear("supervised"),
        ),
        Finding(
            id="FL-F1 contrastive",
            criterion="at least 25 points more of the activation remain in gray than of the mean "
            "color",
            value=lambda runs: runs["crop+color"][GRAY] - runs["crop+color"][UNIFORM],
            at_least=25.0,
            trained=("crop+color",),
            valid=clear("crop+color"),
        ),
        Finding(
            id="FL-F1 adversarial",
            criterion="the share of chroma is at least a fourth higher supervised than adversarial",
            value=more(COLORFUL, "supervised", "adversarial"),
            at_least=25.0,
            trained=("supervised", "adversarial"),
            valid=clear("adversarial"),
        ),
        Finding(
            id="FL-F2 none",
            criterion="at least 10 points less of the activation remain in gray than with crops "
            "and color distortion",
            value=difference(GRAY, "crop+color", "none"),
            at_least=10.0,
            trained=("crop+color",),
            valid=clear("none"),
        ),
        Finding(
            id="FL-F2 crop",
            criterion="the share of chroma is at least a fourth higher than with color distortion",
            value=more(COLORFUL, "crop", "crop+color"),
            at_least=25.0,
            trained=("crop", "crop+color"),
            valid=clear("crop"),
        ),
        Finding(
            id="FL-F2 crop, color",
            criterion="at least 10 points more of the activation remain in gray than with crops",
            value=difference(GRAY, "crop+color", "crop"),
            at_least=10.0,
            trained=("crop", "crop+color"),
            valid=clear("crop+color"),
        ),
    ),
    conclusion=(
        "Crops alone make neurons colorful; with color distortion more of their activation remains "
        "in gray images. Supervised training does not give neurons a fourth more color than "
        "contrastive training with color distortion; of adversarial training the intervals are too "
        "wide to tell. The means of untrained neurons, and of those without augmentation, are "
        "lower than all of these."
    ),
)


F3 = Study(
    id="FL-F3",
    question="Do color distortions separate the classes in a map of the features?",
    published="t-SNE of test images: dense without augmentation and with crops, clusters with "
    "crops and color distortion",
    scales=SCALES,
    arms=VIEWS,
    gate=Gate(),
    measure=map_accuracy,
    figure=draw_maps,
    findings=(
        Finding(
            id="FL-F3",
            criterion="the class of neighbors in the map is at least 3 points more accurate with "
            "crops and color distortion than without augmentation",
            value=difference(IN_MAP, "crop+color", "none"),
            at_least=3.0,
            trained=("crop+color",),
        ),
        Finding(
            id="FL-F3 color",
            criterion="it is at least 2 points more accurate with color distortion than with crops",
            value=difference(IN_MAP, "crop+color", "crop"),
            at_least=2.0,
            trained=("crop", "crop+color"),
        ),
    ),
)


MESSAGES = Study(
    id="FL-M",
    question="Which views leave the mean color of an image in the features?",
    published="crops alone leave dense mixtures of colors, color distortion removes some of them",
    scales=SCALES,
    arms=VIEWS | at_rates({"supervised": supervised("crop")}),
    gate=Gate(),
    measure=color_and_class,
    findings=(
        Finding(
            id="FL-M2",
            criterion="R^2 of a linear readout of the mean color from pooled features is at least "
            "0.05 higher with crops than untrained",
            value=difference(R2, "crop", "untrained"),
            at_least=0.05,
            trained=("crop",),
        ),
        Finding(
            id="FL-M3",
            criterion="R^2 from pooled features is at least 0.1 lower with color distortion than "
            "with crops",
            value=difference(R2, "crop", "crop+color"),
            at_least=0.1,
            trained=("crop", "crop+color"),
        ),
        Finding(
            id="FL-M3 wide",
            criterion="the wide readout keeps what the pooled features lose: with color distortion "
            "its R^2 is at least 0.1 higher",
            value=lambda runs: runs["crop+color"][WIDE_R2] - runs["crop+color"][R2],
            at_least=0.1,
            trained=("crop+color",),
        ),
    ),
)


def _less_in_each_layer(runs: SeedRuns) -> float:
    """Return how much less the layer fires that color distortion makes sparser least."""
    by_layer = (difference(f"layer {k}, %", "crop", "crop+color") for k in LAYERS)
    return min(less(runs) for less in by_layer)


def _less_supervised(runs: SeedRuns) -> float:
    """Return how much less the denser one of both supervised encoders fires than crops."""
    return runs["crop"][RATE] - max(
        runs[f"supervised, {views}"][RATE] for views in ("crop", "crop+color")
    )


F4 = Study(
    id="FL-F4",
    question="Which layers of AlexNet fire sparsely?",
    published="layers 2 to 5 fire more sparsely with color distortion; supervised ones always do",
    scales={
        "tiny": replace(TINY, encoder="alexnet"),
        "cpu": Scale(
            images=5000,
            epochs=40,
            encoder="alexnet",
            seeds=(0, 1, 2, 3, 4),
            rate_seeds=1,
            minutes=60,
            settings={"batch_size": 32, "image_size": 16, "lr": 1e-3},
        ),
        "gpu": Scale(
            images=47_000, epochs=200, encoder="alexnet", minutes=180, settings={"lr": 1e-3}
        ),
    },
    arms=at_rates(
        {
            "crop": CROP,
            "crop+color": COLOR,
            "supervised, crop": supervised("crop"),
            "supervised, crop+color": supervised("crop+color"),
            "untrained": UNTRAINED,
        }
    ),
    gate=Gate(points=5.0),
    measure=firing,
    figure=draw_firing,
    findings=(
        Finding(
            id="FL-F4 color",
            criterion="with color distortion the rate of each of layers 2 to 5 is at least 2 "
            "points lower than with crops alone",
            value=_less_in_each_layer,
            at_least=2.0,
            trained=("crop", "crop+color"),
        ),
        Finding(
            id="FL-F4 crop",
            criterion="with crops alone the mean rate of layers 2 to 5 is at least 2 points higher "
            "than with color distortion",
            value=difference(RATE, "crop", "crop+color"),
            at_least=2.0,
            trained=("crop", "crop+color"),
        ),
        Finding(
            id="FL-F4 supervised",
            criterion="supervised, with and without color distortion, it is at least 2 points "
            "lower than contrastive with crops",
            value=_less_supervised,
            at_least=2.0,
            trained=("crop", "supervised, crop", "supervised, crop+color"),
        ),
    ),
)

STUDIES = [NEURONS, F3, MESSAGES, F4]
