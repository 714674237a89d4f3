"""The measured rules of the default recipe, and the result files that they come from."""

import math
from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from widefield.core.types import Kind
from widefield.encoders import EncoderSettings, Family, family_of
from widefield.methods import METHODS, MethodConfig, ViewContrastConfig, view_contrast
from widefield.views import ViewSettings

DEFAULT_METHOD = "view-contrast"
"""Method of short runs, of runs with initial weights, and of runs whose epochs are long."""

LONG_METHOD = "row-contrast"
"""Method of other runs of `LONG_RUN_EPOCHS` and more."""

DEFAULT_VIEWS = "moderate"
"""Views of images in runs from initial weights, and of `DEFAULT_METHOD` below `LONG_RUN_STEPS`."""

# Moderate views were measured up to 780 steps (study `equal-time-50000`). From 3,000 steps on other
# settings change too (`BALANCE_BY_STEPS`), so these runs keep the views they were measured with.
LONG_RUN_STEPS = 3000
"""Steps from which a run does not take `DEFAULT_VIEWS`; they were measured up to 780 steps."""

# After many visits a row is a better positive than a second view, and one view costs less (study
# `run-length`, which has the method that measured better at each length).
LONG_RUN_EPOCHS = 40
"""Epochs from which the rows of a head give better features than a second view."""

# Chosen between the 19 steps of 5,000 images in study `run-length`, where row-contrast is better in
# long runs, and the 195 of 50,000, where it keeps less of a digit.
MAX_STEPS_BETWEEN_VISITS = 64
"""Steps per epoch up to which that holds, the age of a row in steps."""

MIN_EPOCHS = {"row-contrast": 10, "s-diet": 10, "diet": 10}
"""Method -> smallest number of epochs; 1 for others."""

# The shortest runs of study `budgets` are less accurate than raw pixels (37 %) with most methods.
# The bound was chosen by hand.
FEW_STEPS = 200
"""Steps below which features may be worse than raw pixels."""

# Of 500 and of 2,000 images, batches of 64 are the most accurate (study `batch-size`), and 16 steps
# an epoch choose them for both.
STEPS_PER_EPOCH = 16
"""Smallest number of steps of an epoch with few examples."""

SMALLEST_BATCH = 64
"""Batch size below which more steps do not help."""

# The best of 0.01 to 1 in study `learning-rates`: with batch norm 0.3 to 1, others 0.03. Rows keep
# the method's own rate (study `row-rates`), so `resolve` divides their multiple by this one.
LR_SCALES: dict[Family, float] = {
    "networks with batch norm": 1.0,
    "networks without batch norm": 0.03,
    "transformers": 0.03,
}
"""Learning rate of a family of encoders, as a multiple of the method's own."""

LR_MEASURED_ON = (
    "dictionary-tiny",
    "resnet-tiny",
    "mobilenetv3_small_050",
    "resnet18",
    "resnet50",
    "convnext_atto",
    "vit_tiny_patch16_224",
)
"""Encoders on which the multiples were measured."""

# Weak starts gain more at larger rates and strong ones lose more. Averaging takes back what is too
# much (`probes/explained.py`): in single runs from ImageNet weights, of which no result is
# committed, 0.01 and 0.03 ended alike. Without batch norm 0.03 was not tried.
INIT_LRS: dict[Family, float] = {
    "networks with batch norm": 0.03,
    "networks without batch norm": 0.01,
    "transformers": 0.01,
}
"""Learning rate of initial weights, as a multiple of the method's own."""


class Balance(NamedTuple):
    """Weights of the two terms of view-contrast."""

    logit_scale: float
    cross_entropy_weight: float


# A large weight learns the class faster and keeps less of a planted digit. From 600 steps on scale
# 20 keeps more of it at the same class accuracy (study `contrast-weights`).
BALANCE_BY_STEPS = {
    0: Balance(view_contrast.LOGIT_SCALE, view_contrast.CROSS_ENTROPY_WEIGHT),
    600: Balance(logit_scale=20.0, cross_entropy_weight=30.0),
    3000: Balance(logit_scale=5.0, cross_entropy_weight=3.0),
}
"""Smallest number of steps of a run -> its balance."""

STUDIES = {
    "method_for": ("run-length", "budgets", "starts"),
    "DEFAULT_METHOD": ("run-length", "budgets", "starts"),
    "LONG_METHOD": ("run-length", "budgets"),
    "LONG_RUN_EPOCHS": ("run-length", "budgets"),
    "MAX_STEPS_BETWEEN_VISITS": ("run-length", "staleness"),
    "views_for": ("views", "default-views", "equal-time", "equal-time-50000"),
    "DEFAULT_VIEWS": ("views", "default-views", "equal-time", "equal-time-50000"),
    "LONG_RUN_STEPS": ("equal-time-50000",),
    "MIN_EPOCHS": ("staleness",),
    "FEW_STEPS": ("budgets",),
    "batch_size_for": ("batch-size",),
    "STEPS_PER_EPOCH": ("batch-size",),
    "SMALLEST_BATCH": ("batch-size",),
    "LR_SCALES": ("learning-rates", "row-rates"),
    "LR_MEASURED_ON": ("learning-rates", "dictionary-rates"),
    "INIT_LRS": ("start-settings", "start-averages"),
    "init_lr_scale_for": ("start-settings",),
    "BALANCE_BY_STEPS": ("contrast-weights", "run-length"),
    "with_balance": ("contrast-weights", "run-length"),
}
"""Rule of this file -> studies (docs/studies.md) that support it."""


def method_for(
    *,
    epochs: int,
    init: str | None = None,
    overrides: Collection[str] = (),
    steps_per_epoch: int = 0,
) -> str:
    """Return the default method of a run.

    A setting that only one of the two methods has selects that method.
    """
    if "teacher" in overrides:
        return "distill"
    by_setting = method_with_settings(overrides)
    if by_setting:
        return by_setting
    is_long = epochs >= LONG_RUN_EPOCHS and steps_per_epoch <= MAX_STEPS_BETWEEN_VISITS
    return LONG_METHOD if is_long and init is None else DEFAULT_METHOD


def method_with_settings(overrides: Collection[str]) -> str | None:
    """Return the one of the two default methods that alone has a setting of `overrides`."""
    short, long = (set(METHODS[method]().flat()) for method in (DEFAULT_METHOD, LONG_METHOD))
    if (short - long).intersection(overrides):
        return DEFAULT_METHOD
    return LONG_METHOD if (long - short).intersection(overrides) else None


def views_for(method: str, *, steps: int, init: str | None = None, kind: Kind = "images") -> str:
    is_short = method == DEFAULT_METHOD and steps < LONG_RUN_STEPS
    is_moderate = kind == "images" and (is_short or init is not None)
    return DEFAULT_VIEWS if is_moderate else ViewSettings().names


def init_lr_scale_for(encoder: EncoderSettings) -> float:
    """Return the learning rate of initial weights, as a multiple of the encoder's default rate."""
    family = family_of(encoder)
    return INIT_LRS[family] / LR_SCALES[family]


def batch_size_for(examples: int, *, max_batch_size: int) -> int:
    """Return the largest power of two that gives an epoch `STEPS_PER_EPOCH` steps.

    It is at least `SMALLEST_BATCH`, and at most `max_batch_size` and the number of examples.
    """
    fewer = 2 ** int(math.log2(max(1, examples // STEPS_PER_EPOCH)))
    return min(max_batch_size, max(SMALLEST_BATCH, fewer), examples)


def with_balance(method: MethodConfig, *, steps: int) -> MethodConfig:
    """Return view-contrast with a scale and a weight for `steps`; other methods unchanged."""
    if not isinstance(method, ViewContrastConfig):
        return method
    balance = BALANCE_BY_STEPS[max(n for n in BALANCE_BY_STEPS if n <= steps)]._asdict()
    return replace(method, **{k: v for k, v in balance.items() if getattr(method, k) is None})
