"""S-DIET: memory-efficient self-supervised contrastive learning with a supervised loss (2025)."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from studies.seen import draw_maps
from studies.study import (
    TINY,
    TOGETHER,
    Arm,
    Finding,
    Gate,
    Measured,
    Scale,
    SeedRuns,
    Study,
    at_rates,
    difference,
    percent,
)
from studies.trained import Sets, Trained, accuracies, at_best_rate, probes, validated
from widefield.metrics import large_singular_values, tsne_map
from widefield.probes import extract

PAPER = {"recipe": "s-diet-paper", "precision": "32"}
S_DIET = {"method": "s-diet", "projector_dim": 512}
NO_PROJECTOR = {"method": "s-diet", "projector_layers": 0}
RATES = (5e-4, 2e-3, 6e-3)


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
        "cpu": Scale(images=5000, epochs=20, seeds=(0, 1, 2, 3, 4), rate_seeds=1, minutes=40),
        "gpu": Scale(images=47_000, epochs=500, encoder="resnet18", minutes=60, settings=PAPER),
    },
    arms=at_rates(
        {
            "normalized": Arm(data="cifar100", settings=S_DIET | {"normalize": True}),
            "not normalized": Arm(
                data="cifar100", settings=S_DIET | {"normalize": False, "lr": 2e-3}
            ),
            "no projector": Arm(data="cifar100", settings=NO_PROJECTOR),
            "untrained": Arm(data="cifar100", settings=None),
        },
        RATES,
    ),
    gate=Gate(),
    measure=_normalization,
    findings=(
        Finding(
            id="SD-T3",
            criterion="the class is at least 2 points higher normalized than not",
            value=difference("class, %", "normalized", "not normalized"),
            at_least=2.0,
            trained=("normalized", "not normalized"),
        ),
        Finding(
            id="SD-T4 R18",
            criterion="the class is at least 0.5 points higher before the projector than after it",
            value=lambda runs: runs["normalized"]["before minus after, %"],
            at_least=0.5,
            trained=("normalized",),
        ),
        Finding(
            id="SD-F1c",
            criterion="at least 10 more singular values are above a tenth of the largest",
            value=difference("singular values above a tenth", "normalized", "not normalized"),
            at_least=10.0,
            trained=("normalized", "not normalized"),
        ),
        Finding(
            id="SD-5.1.2",
            criterion="the class is at least 1 point higher than without a projector",
            value=difference("class, %", "normalized", "no projector"),
            at_least=1.0,
            trained=("normalized", "no projector"),
        ),
    ),
    conclusion=(
        "Singular values are those of test images; the paper has training representations. At its "
        "best learning rate the encoder that is not normalized is less than a point above the "
        "untrained network, so that nothing follows from what it lacks. The class is predicted "
        "more accurately before the projector than after it, and than without a projector; how "
        "much of the published size that is was not shown. Learning rates were chosen by the first "
        "seed."
    ),
)


def _digit_kept_and_masked(trained: Trained, sets: Callable[[str], Sets]) -> Measured:
    """Accuracy of the class, which image and digit share, with the digit and without it."""
    read: Measured = {}
    for name, ending in (("kept", ""), ("masked", ":masked")):
        found = probes(trained, sets(ending))
        read[f"digit {name}, %"] = found["class, %"]
        read[f"digit {name}, wide, %"] = found["class, wide, %"]
    return read


def _normalized_or_not(method: str) -> dict[str, Arm]:
    """Return both arms of a method; those of S-DIET are named by what differs alone."""
    name = "" if method == "s-diet" else f"{method}, "
    settings = S_DIET if method == "s-diet" else {"method": method}
    return {
        f"{name}normalized": Arm(data=STACKED, settings=settings | {"normalize": True}),
        f"{name}not normalized": Arm(
            data=STACKED, settings=settings | {"normalize": False, "lr": 2e-3}
        ),
    }


def _learns_both(id: str, digit: str, name: str = "") -> Finding:
    """Return the finding that normalization raises the class with the digit kept or masked."""
    a, b = f"{name}normalized", f"{name}not normalized"
    return Finding(
        id=id,
        criterion=f"the digit {digit}, the class is at least 5 points higher normalized than not"
        + (", by DIET" if name else ""),
        value=difference(f"digit {digit}, %", a, b),
        at_least=5.0,
        trained=(a, b),
    )


STACKED = "cifar10+stacked-digits"
T1 = Study(
    id="SD-T1",
    question="Does S-DIET learn the image beside a digit of the same class in a fourth channel?",
    published="normalized: kept 83.9, masked 84.06; not: 13.76 and 43.56; ResNet-18, 500 epochs",
    scales={
        "tiny": TINY,
        "cpu": Scale(
            images=5000,
            epochs=12,
            seeds=(0, 1, 2, 3, 4),
            rate_seeds=1,
            minutes=40,
            settings={"views": "expert:stacked"},
        ),
        "gpu": Scale(
            images=47_000,
            epochs=500,
            encoder="resnet18",
            minutes=60,
            settings=PAPER | {"views": "expert:stacked"},
        ),
    },
    arms=at_rates(
        _normalized_or_not("s-diet")
        | _normalized_or_not("diet")
        | {"untrained": Arm(data=STACKED, settings=None)},
        RATES,
    ),
    gate=Gate(measures=("digit kept, %", "digit masked, %")),
    measure=lambda trained: _digit_kept_and_masked(trained, trained.test_sets),
    validate=lambda trained: _digit_kept_and_masked(trained, trained.choice_sets),
    findings=(
        _learns_both("SD-T1 normalized", "masked"),
        _learns_both("SD-T1 not normalized", "kept"),
        _learns_both("SD-T1 DIET, masked", "masked", "diet, "),
        _learns_both("SD-T1 DIET, kept", "kept", "diet, "),
    ),
    conclusion=(
        "In the committed runs the encoder that is not normalized learns neither the digit nor the "
        "image, where the paper's learns the digit alone."
    ),
)


IN_MAP = "10 neighbors in the map, %"
METHODS = ("s-diet", "diet", "simclr", "byol", "simsiam", "barlow-twins")
BASELINES = METHODS[1:]
IN_EQUAL_TIME = "s-diet, two views' time"
"""S-DIET for twice the epochs, whose steps encode half as many views."""
TUNED: Mapping[str, Mapping[str, Any]] = {
    "simclr": {"lr": 1e-2, "projector_width": 2048},
    "diet": {"lr": 6e-3},
}
"""The settings that measured best at these budgets, of methods whose defaults are others."""
PUBLISHED: Mapping[str, Mapping[str, Any]] = {
    method: {"recipe": "s-diet-paper" if method in ("s-diet", "diet") else "solo-learn"}
    for method in METHODS
}


def _maps(trained: Mapping[str, Trained]) -> Measured:
    """Accuracy of the neighbors' class in a t-SNE map of the test images, in percent."""
    return {
        f"{arm}: {IN_MAP}": _neighbors_class(*_map(of_arm))
        for arm, of_arm in _at_best(trained).items()
    }


def _at_best(trained: Mapping[str, Trained]) -> dict[str, Trained]:
    names = ("s-diet", "simclr", "untrained")
    return {arm: at_best_rate(trained, arm, validated, "class, %") for arm in names}


def _map(trained: Trained) -> tuple[Tensor, Tensor]:
    """Return the map of at most 2,000 test images, and their classes."""
    test = trained.test_set().subset(slice(0, 2000))
    return tsne_map(extract(trained.encoder, test.inputs)), torch.from_numpy(test.labels["class"])


def _neighbors_class(at: Tensor, y: Tensor) -> float:
    nearest = torch.cdist(at, at).fill_diagonal_(torch.inf).topk(10, largest=False).indices
    return percent((y[nearest].mode(1).values == y).float().mean())


def _draw_both(trained: Mapping[str, Trained]) -> Figure:
    """Draw the maps of S-DIET, SimCLR and the untrained network, side by side."""
    return draw_maps(_at_best(trained))


def _six_methods(data: str, published: str, conclusion: str, *more: Finding) -> Study:
    """Return table 5 of one data set with ResNet-18, whose row is named after the data."""
    row = f"SD-T5 {'CIFAR-10' if data == 'cifar10' else 'CIFAR-100'} R18"
    return Study(
        id=row.removesuffix(" R18").replace(" ", "-"),
        question=f"Is S-DIET as good as DIET and four losses of two views on {row.split()[1]}?",
        published=f"{published}; ResNet-18, 1,000 epochs of the others and 5,000 of DIET's",
        scales={
            "tiny": TINY,
            "cpu": Scale(
                images=2500,
                epochs=8,
                seeds=tuple(range(5)),
                rate_seeds=1,
                minutes=60,
                of_method=TUNED,
            ),
            "gpu": Scale(
                images=47_000,
                epochs=100,
                encoder="resnet18",
                minutes=200,
                settings={"precision": "32"},
                of_method=PUBLISHED,
            ),
        },
        arms=at_rates(
            {
                **{method: Arm(data=data, settings={"method": method}) for method in METHODS},
                IN_EQUAL_TIME: Arm(data=data, settings={"method": "s-diet"}, epochs=2.0),
                "untrained": Arm(data=data, settings=None),
            },
            RATES,
        ),
        gate=Gate(),
        measure=probes,
        findings=(
            Finding(
                id=row,
                criterion="in equal epochs S-DIET is at least 0.5 points above the best other",
                value=above_best("class, %", "s-diet", *BASELINES),
                at_least=0.5,
                trained=METHODS,
            ),
            Finding(
                id=f"{row}, equal time",
                criterion="in equal time it is at least 0.5 points above the best of two views",
                value=above_best("class, %", IN_EQUAL_TIME, *BASELINES[1:]),
                at_least=0.5,
                trained=(IN_EQUAL_TIME, *BASELINES[1:]),
            ),
            *more,
        ),
        together=_maps if more else None,
        figure=_draw_both if more else None,
        conclusion=(
            f"{conclusion} Each learning rate is the best of four on validation images of the "
            "first seed, or of the first two where those have all four."
        ),
    )


T5_CIFAR10 = _six_methods(
    "cifar10",
    "S-DIET 91.48, DIET 54.64, Barlow Twins 90.38, BYOL 90.76, SimCLR 90.00, SimSiam 90.78",
    "In equal epochs the accuracy of S-DIET is below that of the best other method, here SimCLR, "
    "which has two views of each image and takes longer. In equal time it is above that of the "
    "best of two views; that it is half a point or more was not shown. DIET is 1 to 4 points below "
    "S-DIET, less than published.",
    Finding(
        id="SD-6.2",
        criterion="S-DIET is at least 5 points above DIET",
        value=difference("class, %", "s-diet", "diet"),
        at_least=5.0,
        trained=("s-diet",),
    ),
    Finding(
        id="SD-F2",
        criterion="the class of neighbors in both maps is at least 3 points above that in the "
        "untrained network's, and differs by less than 5 points",
        value=lambda runs: _alike(
            *(_of_map(runs, arm) for arm in ("s-diet", "simclr", "untrained"))
        ),
        trained=("s-diet", "simclr"),
    ),
)
T5_CIFAR100 = _six_methods(
    "cifar100",
    "S-DIET 66.88, DIET 62.93, Barlow Twins 66.84, BYOL 65.26, SimCLR 63.56, SimSiam 65.66",
    "In eight epochs of 2,500 images SimCLR alone, and S-DIET in the time of two views, are three "
    "points above the untrained network.",
)


def _of_map(runs: SeedRuns, arm: str) -> float:
    return float(runs[TOGETHER][f"{arm}: {IN_MAP}"])


def _alike(a: float, b: float, untrained: float) -> float:
    return min(5 - abs(a - b), a - untrained - 3, b - untrained - 3)


STUDIES = [T1, T3, T5_CIFAR10, T5_CIFAR100]
