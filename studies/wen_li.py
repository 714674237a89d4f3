"""Wen and Li: toward understanding the feature learning process of contrastive learning (2021)."""

from collections.abc import Callable
from dataclasses import replace

from studies.seen import (
    CLASS,
    CLEAR,
    COLORFUL,
    GRAY,
    IN_MAP,
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
from studies.study import CHANCE_10, TINY, Arm, Finding, Scale, SeedRuns, Study, above, difference

CPU = Scale(images=2000, epochs=6, minutes=10, settings={"batch_size": 64})
GPU = Scale(images=None, epochs=100, encoder="wide-resnet-34-5", minutes=600)
SCALES = {"tiny": TINY, "cpu": CPU, "gpu": GPU}


def contrastive(views: str, **settings: object) -> Arm:
    """Return SimCLR on one policy of views."""
    return Arm(data="cifar10", settings={"method": "simclr", "views": views, **settings})


def supervised(views: str) -> Arm:
    """Return supervised training on one policy of views."""
    return Arm(data="cifar10", settings={"method": "supervised", "views": views})


NO_VIEWS, CROP, COLOR = contrastive("none"), contrastive("crop"), contrastive("crop+color")
UNTRAINED = Arm(data="cifar10", settings=None)


def more(measure: str, a: str, b: str) -> Callable[[SeedRuns], float]:
    """Return by how many percent `measure` of arm `a` exceeds that of arm `b`."""
    return lambda runs: 100 * (runs[a][measure] / runs[b][measure] - 1)


F1 = Study(
    id="FL-F1",
    question="Are neurons of supervised training more colorful than those of contrastive training?",
    published="pictures: supervised neurons show shapes and colors, contrastive ones shapes",
    scales=SCALES,
    arms={
        "supervised": supervised("crop"),
        "contrastive": COLOR,
        "adversarial": contrastive("crop+color+adversarial", attack_steps=2),
        "untrained": UNTRAINED,
    },
    measure=neurons,
    figure=draw_neurons,
    findings=(
        Finding(
            id="FL-F1 supervised",
            criterion="the share of chroma is at least a fourth higher supervised than contrastive",
            value=more(COLORFUL, "supervised", "contrastive"),
            at_least=25.0,
            valid=above(STRENGTH, "supervised", CLEAR),
        ),
        Finding(
            id="FL-F1 contrastive",
            criterion="at least 25 points more of the activation remain in gray than of the mean "
            "color",
            value=lambda runs: runs["contrastive"][GRAY] - runs["contrastive"][UNIFORM],
            at_least=25.0,
            valid=above(STRENGTH, "contrastive", CLEAR),
        ),
        Finding(
            id="FL-F1 adversarial",
            criterion="the share of chroma is at least a fourth higher supervised than adversarial",
            value=more(COLORFUL, "supervised", "adversarial"),
            at_least=25.0,
            valid=above(STRENGTH, "adversarial", CLEAR),
        ),
    ),
)

F2 = Study(
    id="FL-F2",
    question="What do neurons show without augmentation, with crops, and with crops and color?",
    published="pictures: nothing without augmentation, mixtures of colors with crops, shapes with "
    "crops and color distortion",
    scales=SCALES,
    arms={"none": NO_VIEWS, "crop": CROP, "crop+color": COLOR, "untrained": UNTRAINED},
    measure=neurons,
    figure=draw_neurons,
    findings=(
        Finding(
            id="FL-F2 none",
            criterion="at least 10 points less of the activation remain in gray than with crops "
            "and color distortion",
            value=difference(GRAY, "crop+color", "none"),
            at_least=10.0,
            valid=above(STRENGTH, "none", CLEAR),
        ),
        Finding(
            id="FL-F2 crop",
            criterion="the share of chroma is at least a fourth higher than with color distortion",
            value=more(COLORFUL, "crop", "crop+color"),
            at_least=25.0,
            valid=above(STRENGTH, "crop", CLEAR),
        ),
        Finding(
            id="FL-F2 crop, color",
            criterion="at least 10 points more of the activation remain in gray than with crops",
            value=difference(GRAY, "crop+color", "crop"),
            at_least=10.0,
            valid=above(STRENGTH, "crop+color", CLEAR),
        ),
    ),
)


F3 = Study(
    id="FL-F3",
    question="Do color distortions separate the classes in a map of the features?",
    published="t-SNE of test images: dense without augmentation and with crops, clusters with "
    "crops and color distortion",
    scales=SCALES,
    arms=F2.arms,
    measure=map_accuracy,
    figure=draw_maps,
    findings=(
        Finding(
            id="FL-F3",
            criterion="the class of neighbors in the map is at least 3 points more accurate with "
            "crops and color distortion than without augmentation",
            value=difference(IN_MAP, "crop+color", "none"),
            at_least=3.0,
            valid=above(IN_MAP, "crop+color", CHANCE_10),
        ),
        Finding(
            id="FL-F3 color",
            criterion="it is at least 2 points more accurate with color distortion than with crops",
            value=difference(IN_MAP, "crop+color", "crop"),
            at_least=2.0,
            valid=above(IN_MAP, "crop+color", CHANCE_10),
        ),
    ),
)


MESSAGES = Study(
    id="FL-M",
    question="Which views leave the mean color of an image in the features?",
    published="crops alone leave dense mixtures of colors, color distortion removes some of them",
    scales=SCALES,
    arms={**F2.arms, "supervised": supervised("crop")},
    measure=color_and_class,
    findings=(
        Finding(
            id="FL-M2",
            criterion="R^2 of a linear readout of the mean color from pooled features is at least "
            "0.5 with crops",
            value=lambda runs: runs["crop"][R2],
            at_least=0.5,
            valid=above(CLASS, "crop", CHANCE_10),
        ),
        Finding(
            id="FL-M3",
            criterion="R^2 from pooled features is at least 0.1 lower with color distortion than "
            "with crops",
            value=difference(R2, "crop", "crop+color"),
            at_least=0.1,
            valid=above(CLASS, "crop+color", CHANCE_10),
        ),
        Finding(
            id="FL-M3 wide",
            criterion="the wide readout keeps what the pooled features lose: with color distortion "
            "its R^2 is at least 0.1 higher",
            value=lambda runs: runs["crop+color"][WIDE_R2] - runs["crop+color"][R2],
            at_least=0.1,
            valid=above(CLASS, "crop+color", CHANCE_10),
        ),
    ),
)


def _less_supervised(runs: SeedRuns) -> float:
    """Return how much less the denser one of both supervised encoders fires than crops."""
    return runs["crop"][RATE] - max(v[RATE] for k, v in runs.items() if k.startswith("supervised"))


F4 = Study(
    id="FL-F4",
    question="Which layers of AlexNet fire sparsely?",
    published="layers 2 to 5 fire more sparsely with color distortion; supervised ones always do",
    scales={
        "tiny": replace(TINY, encoder="alexnet"),
        "cpu": Scale(
            images=500,
            epochs=6,
            encoder="alexnet",
            minutes=5,
            settings={"batch_size": 32, "image_size": 16, "lr": 1e-3},
        ),
        "gpu": Scale(
            images=None, epochs=200, encoder="alexnet", minutes=180, settings={"lr": 1e-3}
        ),
    },
    arms={
        "crop": CROP,
        "crop+color": COLOR,
        "supervised, crop": supervised("crop"),
        "supervised, crop+color": supervised("crop+color"),
        "untrained": UNTRAINED,
    },
    measure=firing,
    figure=draw_firing,
    findings=(
        Finding(
            id="FL-F4 color",
            criterion="with color distortion the mean rate of layers 2 to 5 is at least 5 points "
            "lower than that of an untrained encoder",
            value=difference(RATE, "untrained", "crop+color"),
            at_least=5.0,
            valid=above(CLASS, "crop+color", CHANCE_10),
        ),
        Finding(
            id="FL-F4 crop",
            criterion="with crops alone it is at least 2 points higher than with color distortion",
            value=difference(RATE, "crop", "crop+color"),
            at_least=2.0,
            valid=above(CLASS, "crop", CHANCE_10),
        ),
        Finding(
            id="FL-F4 supervised",
            criterion="supervised, with and without color distortion, it is at least 2 points "
            "lower than contrastive with crops",
            value=_less_supervised,
            at_least=2.0,
            valid=above(CLASS, "supervised, crop", CHANCE_10),
        ),
    ),
)

STUDIES = [F1, F2, F3, MESSAGES, F4]
