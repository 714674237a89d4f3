"""S-DIET: memory-efficient self-supervised contrastive learning with a supervised loss (2025)."""

from collections.abc import Callable

from studies.study import (
    CHANCE_10,
    CHANCE_100,
    TINY,
    Arm,
    Finding,
    Measured,
    Scale,
    SeedRuns,
    Study,
    above,
    difference,
)
from studies.trained import Trained, accuracies, probes
from widefield.metrics import large_singular_values
from widefield.probes import extract

PAPER = {"recipe": "s-diet-paper", "precision": "32"}
S_DIET = {"method": "s-diet", "projector_dim": 512}
NO_PROJECTOR = {"method": "s-diet", "projector_layers": 0}


def _normalization(trained: Trained) -> Measured:
    """Accuracy before and after the projector, and the large singular values after it."""
    measured = probes(trained)
    if trained.projected is None:
        return measured
    after = accuracies(trained.projected, trained.test_sets())
    h = extract(trained.projected, trained.test_set().inputs)
    return {
        **measured,
        "class after the projector, %": after["class"],
        "before minus after, %": round(measured["class, %"] - after["class"], 2),
        "singular values above a tenth": float(large_singular_values(h)),
    }


def above_best(measure: str, arm: str, *others: str) -> Callable[[SeedRuns], float]:
    """Return the value of a finding: `measure` of an arm minus the best of the others."""
    return lambda runs: runs[arm][measure] - max(runs[other][measure] for other in others)


T3 = Study(
    id="SD-T3",
    question="Do normalization and the projector raise the accuracy of S-DIET on CIFAR-100?",
    published=(
        "normalized 66.88, not normalized 62.60; after the projector 63.46; singular values above "
        "a tenth of the largest: more than 200, not normalized fewer than 100; ResNet-18"
    ),
    scales={
        "tiny": TINY,
        "cpu": Scale(images=5000, epochs=10, minutes=20),
        "gpu": Scale(images=None, epochs=500, encoder="resnet18", minutes=60, settings=PAPER),
    },
    arms={
        "normalized": Arm(data="cifar100", settings=S_DIET | {"normalize": True}),
        "not normalized": Arm(data="cifar100", settings=S_DIET | {"normalize": False, "lr": 2e-3}),
        "no projector": Arm(data="cifar100", settings=NO_PROJECTOR),
        "no projector, lr 0.006": Arm(data="cifar100", settings=NO_PROJECTOR | {"lr": 6e-3}),
        "untrained": Arm(data="cifar100", settings=None),
    },
    measure=_normalization,
    findings=(
        Finding(
            id="SD-T3",
            criterion="the class is at least 2 points higher normalized than not",
            value=difference("class, %", "normalized", "not normalized"),
            at_least=2.0,
            valid=above("class, %", "normalized", CHANCE_100),
        ),
        Finding(
            id="SD-T4 R18",
            criterion="the class is at least 0.5 points higher before the projector than after it",
            value=lambda runs: runs["normalized"]["before minus after, %"],
            at_least=0.5,
            valid=above("class, %", "normalized", CHANCE_100),
        ),
        Finding(
            id="SD-F1c",
            criterion="at least 10 more singular values are above a tenth of the largest",
            value=difference("singular values above a tenth", "normalized", "not normalized"),
            at_least=10.0,
        ),
        Finding(
            id="SD-5.1.2",
            criterion="the class is at least 1 point higher than with the better rate without one",
            value=above_best("class, %", "normalized", "no projector", "no projector, lr 0.006"),
            at_least=1.0,
            valid=above("class, %", "normalized", CHANCE_100),
        ),
    ),
)


def _digit_kept_and_masked(trained: Trained) -> Measured:
    """Accuracy of the class, which image and digit share, with the digit and without it."""
    read: Measured = {}
    for name, ending in (("kept", ""), ("masked", ":masked")):
        found = probes(trained, trained.test_sets(ending))
        read[f"digit {name}, %"] = found["class, %"]
        read[f"digit {name}, wide, %"] = found["class, wide, %"]
    return read


STACKED = "cifar10+stacked-digits"
T1 = Study(
    id="SD-T1",
    question="Does S-DIET learn the image beside a digit of the same class in a fourth channel?",
    published="normalized: kept 83.9, masked 84.06; not: 13.76 and 43.56; ResNet-18, 500 epochs",
    scales={
        "tiny": TINY,
        "cpu": Scale(images=5000, epochs=6, minutes=10, settings={"views": "expert:stacked"}),
        "gpu": Scale(
            images=None,
            epochs=500,
            encoder="resnet18",
            minutes=60,
            settings=PAPER | {"views": "expert:stacked"},
        ),
    },
    arms={
        "normalized": Arm(data=STACKED, settings=S_DIET | {"normalize": True}),
        "not normalized": Arm(data=STACKED, settings=S_DIET | {"normalize": False, "lr": 2e-3}),
        "untrained": Arm(data=STACKED, settings=None),
    },
    measure=_digit_kept_and_masked,
    findings=(
        Finding(
            id="SD-T1 normalized",
            criterion="the digit masked, the class is at least 5 points higher normalized than not",
            value=difference("digit masked, %", "normalized", "not normalized"),
            at_least=5.0,
            valid=above("digit masked, %", "normalized", CHANCE_10),
        ),
        Finding(
            id="SD-T1 not normalized",
            criterion="the digit kept, the class is at least 5 points higher normalized than not",
            value=difference("digit kept, %", "normalized", "not normalized"),
            at_least=5.0,
            valid=above("digit kept, %", "normalized", CHANCE_10),
        ),
    ),
)


STUDIES = [T1, T3]
