"""Every view policy: docs/views.md."""

import statistics
from collections.abc import Callable

from pages.format import table
from studies.page import runs
from studies.study import SeedRuns
from studies.verdict import by_seed, interval
from widefield.views import VIEWS, Augmentation, Policy

PRESETS = {
    "cells": "microscopy",
    "x-rays": "xray",
    "satellite": "satellite",
    "documents": "documents",
}
"""Kind of images in the study `view-presets` -> views for it."""


def views() -> str:
    """Return each policy's summary, settings and requirements."""
    rows = []
    for name, policy in VIEWS.items():
        built = policy.build(policy.settings(), 3)
        rows.append([f"`{name}`", policy.summary, _settings(policy), _needs(built)])
    return table(["views", "augmentation", "settings", "requires"], rows)


def _settings(policy: Policy) -> str:
    values = policy.settings().flat()
    return ", ".join(
        f"`{name}` {value:.3g}" if isinstance(value, float) else f"`{name}` {value}"
        for name, value in values.items()
    )


def _needs(views: Augmentation) -> str:
    needs = {
        "a planted object": views.needs_mask,
        "a method of two views": views.complementary_pairs,
        "the gradient of the loss": bool(views.gradient_calls) or bool(list(views.parameters())),
    }
    return ", ".join(name for name, is_needed in needs.items() if is_needed)


def presets() -> str:
    """Return the accuracies with views for a kind of images, and with those by default."""
    seeds = list(by_seed(runs("view-presets")).values())

    def mean(arm: str, measure: str) -> str:
        return f"{statistics.mean(run[arm][measure] for run in seeds):.1f}"

    def row(kind: str, label: str) -> list[str]:
        pooled, wide = f"{label}, %", f"{label}, wide, %"
        cells = [f"`{PRESETS[kind]}`: {label}"]
        for measure in (pooled, wide):
            arms = ("untrained", "default views", "views for them")
            cells += [mean(f"{arm} @ {kind}", measure) for arm in arms]
            cells.append(_spread(_gain(kind, measure), seeds))
        return [*cells, mean(f"raw pixels @ {kind}", pooled)]

    head = [
        f"{name}, {features}"
        for features in ("pooled", "wide")
        for name in ("untrained", "default", "own views", "difference")
    ]
    labels = {
        kind: [name.removesuffix(", %") for name in seeds[0][f"raw pixels @ {kind}"]]
        for kind in PRESETS
    }
    rows = [row(kind, label) for kind in PRESETS for label in labels[kind]]
    return table(["views: label", *head, "raw pixels"], rows)


def _gain(kind: str, measure: str) -> Callable[[SeedRuns], float]:
    """Return the accuracy with the views for a kind of images minus that by default."""
    own, default = (f"{views} @ {kind}" for views in ("views for them", "default views"))
    return lambda runs: runs[own][measure] - runs[default][measure]


def _spread(value: Callable[[SeedRuns], float], seeds: list[SeedRuns]) -> str:
    mean, half = interval([value(runs) for runs in seeds])
    return f"{mean:+.1f} ± {half:.1f}"
