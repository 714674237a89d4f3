"""Whether a student of a tenth the size keeps what a linear probe finds in its teacher."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import timm
from torch import nn

from studies.study import TINY, Arm, Measured, Scale, cpu_study
from studies.trained import Trained, accuracies
from widefield.data import open_dataset
from widefield.inference.open_encoder import load

NETWORK = f"{Path(__file__).absolute()}:network"
IMAGES = 6_000


def network() -> nn.Module:
    """Return resnet-tiny with wider late stages: ten times the weights, for images of 32 pixels."""
    model = timm.create_model(
        "resnet18",
        layers=[1, 1, 1, 1],
        channels=[16, 32, 128, 512],
        stem_type="deep",
        stem_width=8,
        num_classes=0,
    )
    model.conv1 = nn.Conv2d(3, 16, 3, padding=1, bias=False)
    model.maxpool = nn.Identity()
    return model


def accuracy(trained: Trained) -> Measured:
    """Return the class accuracy of a probe that is fitted on the images of the students."""
    is_teacher = (trained.arm.settings or {}).get("encoder") == NETWORK
    encoder = load(f"{trained.folder}@{NETWORK}") if is_teacher else trained.encoder
    most = IMAGES if trained.scale.arms is None else trained.images
    packs, drawn = trained.packs, trained.seed
    specs = packs.spec("cifar10", "train", drawn=drawn), packs.spec("cifar10", "test")
    train, test = (open_dataset(spec, max_examples=most) for spec in specs)
    found = accuracies(encoder, (train, test))
    time = ("processor seconds",) if trained.folder else ()
    return {"CIFAR-10, %": found["class"], **{name: trained.cost[name] for name in time}}


TEACHER = Arm(
    data="cifar100",
    settings={"encoder": NETWORK, "method": "supervised"},
    epochs=5 / 12,
    images=2 * IMAGES,
)


def _student(*, epochs: float = 1.0, **settings: Any) -> Arm:
    return Arm(data="cifar10", settings=settings, images=IMAGES, epochs=epochs)


DISTILL = cpu_study(
    id="distill",
    question="Does a student of a tenth the size keep what a probe finds in its teacher?",
    tiny=replace(TINY, arms=2),
    cpu=Scale(images=2 * IMAGES, epochs=12, seeds=(0,), minutes=6),
    arms={
        "teacher": TEACHER,
        "untrained": Arm(data="cifar10", settings=None, images=IMAGES),
        "distilled": replace(_student(method="distill"), teacher=TEACHER),
        "distilled, untrained teacher": _student(method="distill", teacher=NETWORK),
        "view-contrast": _student(method="view-contrast", epochs=0.5),
    },
    measure=accuracy,
    conclusion=(
        "The teacher is trained with the labels of 12,000 images of CIFAR-100, the students on "
        "6,000 of CIFAR-10 without labels. view-contrast takes two views a step and "
        "half the epochs."
    ),
)

STUDIES = [DISTILL]
