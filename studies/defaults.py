"""The choices behind the defaults: rates, weights, batches, moments of rows, objectives, bits."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from studies.equal_time import data
from studies.study import Arm, Measured, Scale, Study, cpu_study, percent
from studies.trained import (
    Trained,
    accuracies,
    by_task,
    features,
    probes,
    validated,
    with_neighbors,
)
from widefield.config.defaults import LR_SCALES
from widefield.encoders import family_of
from widefield.encoders.settings import EncoderSettings
from widefield.methods import METHODS


def family_rate(method: str, encoder: str) -> float:
    """Return the learning rate of a method with the family of an encoder."""
    return LR_SCALES[family_of(EncoderSettings(name=encoder))] * METHODS[method]().lr


def short(method: str) -> dict[str, Any]:
    """Return the settings of a method; SimCLR has the rate for short runs."""
    return {"method": method} | ({"lr": 2e-2} if method == "simclr" else {})


ENCODERS: dict[str, dict[str, Any]] = {
    "resnet-tiny": {},
    "mobilenetv3_small_050": {"stem": "native"},
    "resnet18": {"stem": "native"},
    "resnet50": {"stem": "native"},
    "convnext_atto": {"stem": "native"},
    "vit_tiny_patch16_224": {"stem": "native"},
}
FACTORS = (0.01, 0.03, 0.1, 0.3, 1.0)
BESIDE: dict[str, dict[str, Any]] = {
    "no warm-up": {"warmup_epochs": 0.0},
    "warm-up of 1 epoch": {"warmup_epochs": 1.0},
    "no weight decay": {"weight_decay": 0.0},
    "weight decay x 4": {"weight_decay": 0.2},
}
BESIDE_FOR = ("resnet-tiny", "resnet18", "convnext_atto", "vit_tiny_patch16_224")


def _factors(name: str, size: int) -> tuple[float, ...]:
    """Return all factors at 32 pixels, else the family's and its neighbors."""
    if size == 32:
        return FACTORS
    family = LR_SCALES[family_of(EncoderSettings(name=name))]
    first = min(max(FACTORS.index(family) - 1, 0), len(FACTORS) - 3)
    return FACTORS[first : first + 3]


def _rate_arms() -> Iterator[tuple[str, Arm]]:
    own = METHODS["s-diet"]().lr
    for size, images in ((32, 2000), (64, 1000), (96, 1000)):
        for name, stem in ENCODERS.items():
            run = {"encoder": name, "image_size": size, **stem}
            for factor in _factors(name, size):
                settings = run | {"lr": factor * own}
                arm = Arm(data="cifar10", settings=settings, images=images)
                yield f"{name}, {size} pixels @ lr x {factor:g}", arm
    for name in BESIDE_FOR:
        for beside, changed in BESIDE.items():
            settings = {"encoder": name, **ENCODERS[name], "lr": family_rate("s-diet", name)}
            arm = Arm(data="cifar10", settings=settings | changed)
            yield f"{name}, 32 pixels @ {beside}", arm


LEARNING_RATES = cpu_study(
    id="learning-rates",
    question="Which learning rate does each family of encoders take?",
    cpu=Scale(
        images=2000,
        epochs=6,
        seeds=(0,),
        minutes=90,
        settings={"method": "s-diet", "batch_size": 64},
    ),
    arms=dict(_rate_arms()),
    measure=validated,
    conclusion=(
        "Rates are multiples of the method's own; what is beside them has the family's rate, which "
        "`widefield.config.defaults.LR_SCALES` holds. Networks with batch norm take 0.3 to 1 of a "
        "method's rate, and networks without and transformers 0.03."
    ),
)


TRANSFORMER = "vit_tiny_patch16_224"


def _row_arms() -> Iterator[tuple[str, Arm]]:
    multiple = LR_SCALES[family_of(EncoderSettings(name=TRANSFORMER))]
    faster = {"the encoder's": 1.0, "the method's": 1 / multiple, "3 x the method's": 3 / multiple}
    for method, epochs in (("row-contrast", 55), ("view-contrast", 39), ("s-diet", 55)):
        for rows, scale in faster.items():
            rate = {"lr": family_rate(method, TRANSFORMER), "head_lr_scale": scale}
            arm = Arm(data="cifar10", settings={"method": method, **rate}, epochs=epochs / 55)
            yield f"{TRANSFORMER}, {method} @ rows' rate: {rows}", arm


ROW_RATES = cpu_study(
    id="row-rates",
    question="How fast should rows move where an encoder learns slowly?",
    cpu=Scale(
        images=500,
        epochs=55,
        seeds=(0, 1),
        encoder=TRANSFORMER,
        minutes=20,
        settings={"stem": "native", "batch_size": 64},
    ),
    arms=dict(_row_arms()),
    measure=lambda trained: with_neighbors(trained.encoder, trained.choice_sets()),
    conclusion="Rows keep the method's own rate where the encoder takes a smaller one.",
)


TERMS = {"1": (1, 10), "3": (3, 10), "10": (10, 10), "30": (30, 10)}
TERMS |= {"30, scale 20": (30, 20), "3, scale 5": (3, 5)}
"""Weight of the cross-entropy, and the scale of the contrast's logits where that is not 10."""
TRIED_TERMS: dict[tuple[int, int], tuple[str, ...]] = {
    (5000, 7): ("3", "30"),
    (5000, 34): ("30", "30, scale 20"),
    (5000, 60): ("3", "30"),
    (10_000, 7): ("3", "10", "30"),
    (20_000, 7): ("3", "30"),
    (45_000, 3): ("1", "3", "10", "30"),
    (45_000, 7): ("3", "10", "30", "30, scale 20"),
    (45_000, 30): ("3, scale 5",),
}
"""Images and epochs -> terms that were tried."""


def _weight_arms() -> Iterator[tuple[str, Arm]]:
    for (images, epochs), names in TRIED_TERMS.items():
        for name in names:
            weight, scale = map(float, TERMS[name])
            settings = {"cross_entropy_weight": weight, "logit_scale": scale}
            arm = Arm(data=data("+digits"), settings=settings, images=images, epochs=epochs / 60)
            yield f"{images:,} images, {epochs} epochs @ weight {name}", arm


CONTRAST_WEIGHTS = cpu_study(
    id="contrast-weights",
    question="How sharp a contrast, and how much of the cross-entropy, does view-contrast take?",
    cpu=Scale(
        images=45_000,
        epochs=60,
        seeds=(0, 1),
        minutes=400,
        probed=5000,
        settings={"method": "view-contrast"},
    ),
    arms=dict(_weight_arms()),
    measure=validated,
    conclusion=(
        "A larger weight learns the class faster and keeps less of the digit. Runs of 3,000 steps "
        "or more take weight 3 and scale 5, runs of 600 to 3,000 steps scale 20."
    ),
)

BATCH_SIZE = cpu_study(
    id="batch-size",
    question="How large should a batch be where images are few?",
    cpu=Scale(images=2000, epochs=48, seeds=(0,), minutes=6),
    arms={
        f"{images:,} images @ batches of {batch}": Arm(
            data="cifar10",
            settings={"method": "view-contrast", "batch_size": batch},
            images=images,
            epochs=24_000 / images / 48,
        )
        for images in (500, 2000)
        for batch in (32, 64, 128, 256)
    },
    measure=validated,
    conclusion="Every run is shown 24,000 images, counted with repetition.",
)

MOMENTS = cpu_study(
    id="moments",
    question="What do compact moments of the head's rows cost in accuracy?",
    cpu=Scale(
        images=2000,
        epochs=15,
        seeds=(0, 1, 2, 3, 4),
        minutes=12,
        settings={"method": "row-contrast"},
    ),
    arms={
        "float32": Arm(data=data("+digits")),
        "bf16": Arm(data=data("+digits"), settings={"head_moments": "bf16"}),
        "one second moment a row": Arm(
            data=data("+digits"), settings={"head_second_moment": "row"}
        ),
        "both": Arm(
            data=data("+digits"), settings={"head_moments": "bf16", "head_second_moment": "row"}
        ),
    },
    measure=probes,
)

OBJECTIVES_EPOCHS = {
    "row-contrast": 15,
    "diet": 14,
    "simclr": 8,
    "dcl": 7,
    "barlow-twins": 7,
    "vicreg": 7,
    "lejepa": 7,
    "byol": 11,
    "simsiam": 7,
    "spectral": 8,
    "alpha-cl": 8,
    "supervised": 15,
}
"""Objective -> epochs that take as long as 16 of the bare encoder."""

OBJECTIVES = cpu_study(
    id="objectives",
    question="What does every objective learn in a minute, at its default settings?",
    cpu=Scale(images=5000, epochs=16, seeds=(0, 1), minutes=90),
    arms={
        f"{method} @ {plant}": Arm(
            data=data(plant),
            settings=short(method),
            epochs=epochs / 16,
        )
        for plant in ("plain", "+shapes", "+digits", "+letters")
        for method, epochs in OBJECTIVES_EPOCHS.items()
    },
    measure=probes,
    conclusion="SimCLR has the rate for short runs. Supervised training is the ceiling.",
)

BIT_METHODS = (
    "view-contrast",
    "row-contrast",
    "s-diet",
    "simclr",
    "barlow-twins",
    "vicreg",
    "byol",
)

BITS = cpu_study(
    id="bits",
    question="How many planted bits suppress the class, by objective?",
    published=(
        "with SimCLR, the class falls to chance as bits are added: Chen, Luo and Li (2021), "
        "section 4"
    ),
    cpu=Scale(images=2000, epochs=6, seeds=(0, 1), minutes=25),
    arms={
        f"{method} @ {count} bits": Arm(
            data=f"cifar10+bits:count={count}",
            settings=None if method == "untrained" else short(method),
        )
        for method in ("untrained", *BIT_METHODS)
        for count in (0, 2, 4, 8, 16)
    },
    measure=probes,
    conclusion=(
        "A random integer of so many bits fills constant channels that no view changes. At 16 bits "
        "every objective is below the untrained encoder and near chance, and at 8 bits every one "
        "but row-contrast. The class of the untrained encoder falls too, because its features vary "
        "with the bits: a fall below it is what training adds."
    ),
)


RATE_EPOCHS = {"row-contrast": 7, "diet": 7, "dcl": 3, "lejepa": 3, "byol": 5, "supervised": 8}


def _rates(method: str) -> Study:
    """Return the study that chooses the learning rate of an objective for short runs."""
    return cpu_study(
        id=f"rate-{method}",
        question=f"Which learning rate does {method} take in half a minute?",
        tiny="it is the same for every objective",
        cpu=Scale(images=5000, epochs=RATE_EPOCHS.get(method, 4), seeds=(0,), minutes=2),
        arms={
            f"lr {lr:g}": Arm(data=data("+digits"), settings={"method": method, "lr": lr})
            for lr in (2e-3, 6e-3, 2e-2)
        },
        measure=validated,
    )


AGES = {2560: 39, 10_000: 10, 50_000: 2}
"""Images -> epochs of 390 steps."""
REMEDIES: dict[str, dict[str, Any]] = {
    "rows' rate / 4": {"head_lr_scale": 0.25},
    "rows' rate x 4": {"head_lr_scale": 4.0},
    "rows' rate x 16": {"head_lr_scale": 16.0},
    "rows by SGD with momentum": {"head_optimizer": "sgd"},
    "rows start at random": {"head_init": "random"},
}


def _age_arms() -> Iterator[tuple[str, Arm]]:
    for images, epochs in AGES.items():
        where: dict[str, Any] = {"data": "cifar10", "images": images, "epochs": epochs / 39}
        for method in ("s-diet", "row-contrast", "view-contrast", "simclr"):
            yield f"{method} @ {images:,} images", Arm(settings=short(method), **where)
    for name, changed in REMEDIES.items():
        arm = Arm(settings={"method": "s-diet", **changed}, **where)
        yield f"s-diet, {name} @ {images:,} images", arm
    for weight in (10.0, 3.0):
        settings = {"method": "view-contrast", "cross_entropy_weight": weight}
        arm = Arm(settings=settings, **where)
        yield f"view-contrast, cross-entropy {weight:g} @ {images:,} images", arm


def with_match(trained: Trained) -> Measured:
    """Return the class, and how often a row is the nearest of 256 to its example's projection."""
    measured = by_task(accuracies(trained.encoder, trained.test_sets()))
    rows = _rows(trained)
    if rows is None or trained.projected is None:
        return measured
    z = functional.normalize(features(trained.projected, trained.train_set()), dim=1)
    order = torch.randperm(len(z), generator=torch.Generator().manual_seed(trained.seed))
    hits = [
        (z[group] @ rows[group].T).argmax(1) == torch.arange(len(group))
        for group in torch.split(order, 256)
    ]
    return measured | {"rows that match, %": percent(torch.cat(hits).float().mean())}


def _rows(trained: Trained) -> Tensor | None:
    """Return the normalized rows [n, m] of a finished run; None without a head."""
    assert trained.folder is not None
    (file,) = (trained.folder / "checkpoints").glob("last-step-*-rank-0-of-1.pt")
    head = torch.load(file, weights_only=True)["extra"].get("method.head._extra_state")
    return None if head is None else functional.normalize(head["rows"]["row"], dim=1)


STALENESS = cpu_study(
    id="staleness",
    question="What does it cost that rows of a large data set are old, and what helps?",
    cpu=Scale(images=50_000, epochs=39, seeds=(0,), minutes=40, probed=5000),
    arms=dict(_age_arms()),
    measure=with_match,
    conclusion=(
        "Every run has 390 steps of 256 images, so more images mean fewer visits and older rows; "
        "this does not separate the two. Chance of a match is 0.4 %. Where each example is seen "
        "twice, S-DIET is little better than raw pixels and row-contrast is worse. With a second "
        "view little is lost, and SimCLR, which has no rows, gains from more images. SGD with "
        "momentum for the rows helps S-DIET a little; higher row rates and random initialization "
        "make it worse. With a second view, the weight of S-DIET's loss has little effect."
    ),
)


STUDIES = [
    LEARNING_RATES,
    ROW_RATES,
    CONTRAST_WEIGHTS,
    BATCH_SIZE,
    MOMENTS,
    OBJECTIVES,
    BITS,
    STALENESS,
    *map(_rates, METHODS),
]
