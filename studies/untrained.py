"""Whether an encoder's gain over itself untrained shows without labels."""

from dataclasses import asdict, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from studies.defaults import family_rate
from studies.study import TINY, Arm, Measured, Scale, cpu_study
from studies.trained import Trained, features
from widefield.data import open_dataset
from widefield.encoders import Encoder, untrained_like
from widefield.evaluation.comparison import compare_with_baseline
from widefield.evaluation.cross_fit import cross_fit
from widefield.evaluation.paired import paired_difference

ENCODERS = ("resnet-tiny", "mobilenetv3_small_050", "test_convnext", "test_vit")
DATA = ("cifar10", "cifar100", "mnist", "photos")
RUNS: dict[str, dict[str, Any]] = {
    "default": {"epochs": 12, "head_lr_scale": 1.0},
    "one epoch": {"epochs": 1, "head_lr_scale": 1.0},
    "rate x 30": {"epochs": 4, "lr": 30.0},
    "rate / 300": {"epochs": 4, "lr": 1 / 300},
    "simsiam, rate x 10": {"epochs": 4, "lr": 10.0, "method": "simsiam"},
}
"""Name -> settings, with `lr` as a multiple of the method's with the encoder."""
TESTED = {"photos": 1000}
"""Test images where they are not 2,000."""


def _arm(encoder: str, data: str, name: str) -> Arm:
    settings = {"encoder": encoder, "method": "view-contrast", **RUNS[name]}
    if "lr" in settings:
        settings["lr"] *= family_rate(settings["method"], encoder)
    return Arm(data=data, settings=settings)


def judged(trained: Trained) -> Measured:
    """Return the verdict without labels, and what labels say of the encoder and of it untrained."""
    encoder, seed = trained.encoder, trained.seed
    assert isinstance(encoder, Encoder)
    found = compare_with_baseline(
        encoder, trained.train_set(), seed=seed, device=trained.device, use_labels=False
    )
    assert found is not None
    hits = (_hits(trained, each) for each in (untrained_like(encoder, seed=seed), encoder))
    return {**asdict(paired_difference(*hits, seed=seed)), "comparison": found.to_json()}


def _hits(trained: Trained, encoder: nn.Module) -> NDArray[np.bool_]:
    """Return which test images a linear probe predicts, each one fitted on others."""
    data, seed = trained.arm.data, trained.seed
    most = TESTED.get(data, 2000) if trained.scale.arms is None else None
    spec = trained.packs.spec(data, "test")
    test = open_dataset(spec, max_examples=most, seed=seed, held_out=True)
    return cross_fit(features(encoder, test), test.labels, seed=seed)["class"].linear


UNTRAINED = cpu_study(
    id="untrained",
    question="Does an encoder's gain over itself untrained show without labels?",
    tiny=replace(TINY, arms=1, images=120),
    cpu=Scale(images=1000, epochs=1, seeds=(6,), minutes=60),
    arms={
        f"{encoder}, {data}, {name}": _arm(encoder, data, name)
        for data in DATA
        for encoder in ENCODERS
        if (encoder, data) != ("test_vit", "mnist")  # it cannot take images of 28 x 28
        for name in RUNS
    },
    measure=judged,
    conclusion=(
        "Accuracies of a linear probe before and after training, with the 95 % interval of the "
        "difference. The rule of the verdict was made on runs of other seeds."
    ),
)

STUDIES = [UNTRAINED]
