"""What short runs learn, on few images and on many, with encoders of three families."""

from collections.abc import Iterator
from typing import Any

from studies.defaults import family_rate
from studies.study import Arm, Scale, cpu_study
from studies.trained import validated, with_neighbors

ENCODERS: dict[str, dict[str, Any]] = {
    "resnet-tiny": {},
    "resnet18": {"stem": "native"},
    "vit_tiny_patch16_224": {"stem": "native"},
}
FEW, SOME, ALL = 500, 5000, 50_000
ONE_VIEW = {FEW: (14, 56), SOME: (4, 8, 48), ALL: (2,)}
SECOND_WITHOUT_GRADIENT = {FEW: (10, 40), SOME: (3, 6, 36), ALL: (1, 2)}
TWO_VIEWS = {FEW: (8, 32), SOME: (2, 4, 24), ALL: (1,)}
EPOCHS: dict[str, dict[int, tuple[int, ...]]] = {
    "view-contrast": SECOND_WITHOUT_GRADIENT | {ALL: (1, 2, 3)},
    "row-contrast": {FEW: (15, 55), SOME: (4, 8, 48)},
    "s-diet": ONE_VIEW | {ALL: (2, 4)},
    "diet": ONE_VIEW,
    "byol": SECOND_WITHOUT_GRADIENT,
    "moco": SECOND_WITHOUT_GRADIENT,
    "simclr": TWO_VIEWS | {ALL: (1, 2)},
    "barlow-twins": TWO_VIEWS,
}
"""Method -> images -> epochs of its runs, from the shortest on, in nearly equal times."""
ONE_ENCODER = dict.fromkeys([(FEW, 0), (SOME, 0), (ALL, 1), (ALL, 2)], "resnet-tiny") | {
    (SOME, 2): "vit_tiny_patch16_224"
}
"""Images and place of the epochs -> the encoder that runs them, where only one does."""
RATES = {"s-diet": 1.0, "diet": 3.0, "byol": 1.0, "moco": 1.0, "simclr": 3.0, "barlow-twins": 3.0}
"""Method -> the best of three multiples of its rate; ours have their defaults."""
LENGTHS = ("shortest", "short", "longest")


def _arms() -> Iterator[tuple[str, Arm]]:
    for encoder, stem in ENCODERS.items():
        for images in (FEW, SOME, ALL):
            for method, lengths in EPOCHS.items():
                rate = (
                    {"lr": RATES[method] * family_rate(method, encoder)} if method in RATES else {}
                )
                settings = {"encoder": encoder, "method": method, **stem, **rate}
                for place, epochs in enumerate(lengths.get(images, ())):
                    if ONE_ENCODER.get((images, place), encoder) == encoder:
                        arm = Arm(
                            data="cifar10", settings=settings, images=images, epochs=epochs / 56
                        )
                        yield f"{encoder}, {images:,} images, {LENGTHS[place]} @ {method}", arm


BUDGETS = cpu_study(
    id="budgets",
    question="What do short runs learn, on few images and on many, with three encoders?",
    cpu=Scale(images=ALL, epochs=56, minutes=600),
    arms=dict(_arms()),
    measure=lambda trained: with_neighbors(trained.encoder, trained.sets(5000)),
    conclusion=(
        "Probes are fitted on 5,000 training images. Each baseline has the best of three learning "
        "rates, chosen on further images; ours have their defaults. The default is view-contrast "
        "for fewer than 40 epochs and row-contrast from there. It is not the best method "
        "everywhere, and nowhere more than half a point below a method of equal time. A rule by "
        "the number of images or the encoder would rest on differences of one point."
    ),
)

BUDGET_RATES = cpu_study(
    id="budget-rates",
    question="Which learning rate does each method take in short runs?",
    cpu=Scale(images=SOME, epochs=8, seeds=(0,), minutes=12),
    arms={
        f"{method} @ lr x {factor:.2g}": Arm(
            data="cifar10",
            settings={"method": method, "lr": factor * family_rate(method, "resnet-tiny")},
            epochs=EPOCHS[method][SOME][1] / 8,
        )
        for method in RATES
        for factor in (1 / 3, 1.0, 3.0)
    },
    measure=validated,
)

STUDIES = [BUDGETS, BUDGET_RATES]
