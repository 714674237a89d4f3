"""Copies are found under the changes that people make before the split, and others are not."""

import json
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from near_copies import rates, sounds, windows
from widefield.probes.near_copies import copy_groups

FILE = Path(__file__).parents[3] / "benchmarks" / "results" / "near_copies.json"
STATED: dict[str, float] = json.loads(FILE.read_text())["rates"]

found = cache(rates)


@pytest.mark.parametrize("change", STATED)
def test_changed_copies_are_found_at_the_stated_rate(change: str) -> None:
    rate = found(160, 24, 7)[change]
    # Two standard errors of a share of 24 copies, and of 160 examples.
    if "control" in change:
        assert rate <= STATED[change] + 0.03
    else:
        assert rate >= STATED[change] - 0.2


def test_the_changes_that_are_common_are_found() -> None:
    every = ("brightness", "levels", "contrast", "turn", "mirrored", "half", "center crop, ")
    for change, rate in STATED.items():
        if change.startswith(every) and "then" not in change:
            assert rate >= 0.9, change
        if "control" in change:
            assert rate <= 0.01, change


@pytest.mark.parametrize(("make", "length"), [(sounds, 8000), (windows, 64)])
def test_groups_are_the_sources_of_overlapping_parts(make: object, length: int) -> None:
    assert callable(make)
    whole = make(40, 3, 3 * length)
    half = [whole[:, :, start : start + length] for start in range(0, 2 * length + 1, length // 2)]
    groups = copy_groups(np.concatenate(half))
    source = np.tile(np.arange(40), len(half))
    assert len(np.unique(groups)) < 60
    together = groups[:, None] == groups
    assert (source[:, None] == source)[together].mean() > 0.9
    apart = np.concatenate(half[::2])  # the control
    assert len(np.unique(copy_groups(apart))) > 0.95 * len(apart)


def test_flat_examples_are_copies_only_if_they_are_equal() -> None:
    shade = np.random.default_rng(5).integers(0, 256, (60, 1, 1, 3), dtype=np.uint8)
    flat = np.broadcast_to(shade, (60, 32, 32, 3))
    assert len(np.unique(copy_groups(flat))) == 60
    silence = np.zeros((40, 1, 4000, 1), np.int16)
    assert len(np.unique(copy_groups(silence))) == 1
