"""Every measured rule of the default recipe, and the result file that it comes from."""

import math
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from widefield.encoders import Family
from widefield.methods import METHODS, MethodConfig, ViewContrastConfig, view_contrast

DEFAULT_METHOD = "view-contrast"
"""Method of short runs, of runs with initial weights, and of runs whose epochs are long."""

LONG_METHOD = "row-contrast"
"""Method of other runs of `LONG_RUN_EPOCHS` and more."""

LONG_RUN_EPOCHS = 40
"""Epochs from which head rows alone give better features than a second view."""

MAX_STEPS_BETWEEN_VISITS = 64
"""Steps per epoch up to which that holds: a row is as old as an epoch has steps."""

MIN_EPOCHS = {"row-contrast": 10, "s-diet": 10, "diet": 10}
"""Method -> epochs below which its rows are visited too rarely; 1 for others."""

FEW_STEPS = 200
"""Steps below which features may be worse than raw pixels."""

STEPS_PER_EPOCH = 16
"""Steps that an epoch of few examples should have."""

SMALLEST_BATCH = 64
"""Batch size below which more steps do not help."""

LR_MULTIPLES: dict[Family, float] = {
    "networks with batch norm": 1.0,
    "networks without batch norm": 0.03,
    "transformers": 0.03,
}
"""Learning rate of a family of encoders, as a multiple of the method's own."""

LR_MEASURED_ON = (
    "resnet-tiny",
    "mobilenetv3_small_050",
    "resnet18",
    "resnet50",
    "convnext_atto",
    "vit_tiny_patch16_224",
)
"""Encoders on which the multiples were measured."""


class Balance(NamedTuple):
    """The two terms of view-contrast against each other."""

    logit_scale: float
    cross_entropy_weight: float


BALANCES = {
    0: Balance(view_contrast.LOGIT_SCALE, view_contrast.CROSS_ENTROPY_WEIGHT),
    600: Balance(logit_scale=20.0, cross_entropy_weight=30.0),
    3000: Balance(logit_scale=5.0, cross_entropy_weight=3.0),
}
"""Steps that a run has at least -> its balance."""

RESULTS = {
    "method_for": ("equal_time.json", "budgets.json", "start_table.json"),
    "DEFAULT_METHOD": ("equal_time.json", "budgets.json", "start_table.json"),
    "LONG_METHOD": ("equal_time.json", "budgets.json"),
    "LONG_RUN_EPOCHS": ("equal_time.json", "budgets.json"),
    "MAX_STEPS_BETWEEN_VISITS": ("equal_time.json", "staleness.json"),
    "MIN_EPOCHS": ("staleness.json",),
    "FEW_STEPS": ("budgets.json",),
    "batch_size_for": ("batch_size.json",),
    "STEPS_PER_EPOCH": ("batch_size.json",),
    "SMALLEST_BATCH": ("batch_size.json",),
    "LR_MULTIPLES": ("learning_rates.json", "row_rates.json"),
    "LR_MEASURED_ON": ("learning_rates.json",),
    "BALANCES": ("view_contrast.json", "equal_time.json"),
    "balanced": ("view_contrast.json", "equal_time.json"),
}
"""Rule of this file -> files of `benchmarks/results/` that it was chosen by."""


def method_for(
    *, epochs: int, init: str | None = None, given: Collection[str] = (), steps_per_epoch: int = 0
) -> str:
    """Return the method of a run that names none.

    A setting that only one of the two methods has chooses that method.

    Args:
        epochs: epochs of the run.
        init: initial weights of the run, if any.
        given: names of the settings that the user gave.
        steps_per_epoch: steps from one visit of a row to the next; 0 while it is not known.

    Example:
        >>> method_for(epochs=5), method_for(epochs=100)
        ('view-contrast', 'row-contrast')
        >>> method_for(epochs=100, given=["cross_entropy_weight"])
        'view-contrast'
    """
    by_setting = method_with_settings(given)
    if by_setting:
        return by_setting
    is_long = epochs >= LONG_RUN_EPOCHS and steps_per_epoch <= MAX_STEPS_BETWEEN_VISITS
    return LONG_METHOD if is_long and init is None else DEFAULT_METHOD


def method_with_settings(given: Collection[str]) -> str | None:
    """Return which of the two methods has one of the settings `given` that the other lacks."""
    short, long = (set(METHODS[method]().flat()) for method in (DEFAULT_METHOD, LONG_METHOD))
    if (short - long).intersection(given):
        return DEFAULT_METHOD
    return LONG_METHOD if (long - short).intersection(given) else None


def batch_size_for(examples: int, *, most: int) -> int:
    """Return the largest power of two that gives an epoch `STEPS_PER_EPOCH` steps.

    It is at least `SMALLEST_BATCH`, and at most `most` and the number of examples.

    Example:
        >>> [batch_size_for(n, most=256) for n in (20, 500, 2000, 5000)]
        [20, 64, 64, 256]
    """
    fewer = 2 ** int(math.log2(max(1, examples // STEPS_PER_EPOCH)))
    return min(most, max(SMALLEST_BATCH, fewer), examples)


def balanced(method: MethodConfig, *, steps: int) -> MethodConfig:
    """Return view-contrast with a scale and a weight for `steps` where it has none; others as is.

    Example:
        >>> chosen = balanced(ViewContrastConfig(logit_scale=8.0), steps=10_000)
        >>> chosen.flat()["logit_scale"], chosen.flat()["cross_entropy_weight"]
        (8.0, 3.0)
    """
    if not isinstance(method, ViewContrastConfig):
        return method
    usual = BALANCES[max(least for least in BALANCES if least <= steps)]._asdict()
    return replace(method, **{k: v for k, v in usual.items() if getattr(method, k) is None})
