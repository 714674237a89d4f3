"""S-DIET: memory-efficient self-supervised contrastive learning with a supervised loss (2025)."""

from studies.study import TINY, Arm, Finding, Measured, Scale, Study, above, difference
from studies.trained import Trained, accuracies, probes
from widefield.metrics import large_singular_values
from widefield.probes import extract

PAPER = {"recipe": "s-diet-paper", "precision": "32"}
CPU = {"method": "s-diet", "projector_dim": 512}
CHANCE_100 = 3.0  # percent


def _normalization(trained: Trained) -> Measured:
    """Accuracy before and after the projector, and the large singular values after it."""
    measured = probes(trained)
    if trained.projected is None:
        return measured
    after = accuracies(trained, trained.projected)
    h = extract(trained.projected, trained.test_set().inputs)
    return {
        **measured,
        "class after the projector, %": after["class"],
        "singular values above a tenth": float(large_singular_values(h)),
    }


T3 = Study(
    id="SD-T3",
    question="Does normalizing the features raise the accuracy of S-DIET on CIFAR-100?",
    published="normalized 66.88, not normalized 62.60; ResNet-18",
    scales={
        "tiny": TINY,
        "cpu": Scale(images=5000, epochs=15, minutes=8, settings=CPU),
        "gpu": Scale(images=None, epochs=500, encoder="resnet18", minutes=60, settings=PAPER),
    },
    arms={
        "normalized": Arm(data="cifar100", settings={"normalize": True}),
        "not normalized": Arm(data="cifar100", settings={"normalize": False, "lr": 2e-3}),
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
    ),
)

STUDIES = [T3]
