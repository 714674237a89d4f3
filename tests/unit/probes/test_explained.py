"""How much of some features others explain: known answers, and what a run loses."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield.probes.explained import explained
from widefield.probes.paired import PairedDifference
from widefield.probes.verdicts import judge_without_labels


def features(n: int, dim: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


@settings(max_examples=30)
@given(dim=st.integers(2, 6), kept=st.integers(0, 6), seed=st.integers(0, 99))
def test_independent_directions_count_as_those_that_are_kept(
    dim: int, kept: int, seed: int
) -> None:
    h, kept = features(400, dim, seed), min(kept, dim)
    mixed = h[:, :kept] @ (torch.eye(kept) + 0.1 * features(kept, kept, seed))
    found = explained(h, torch.cat([5 + mixed, features(400, dim - kept, seed + 1000)], dim=1))
    assert found is not None
    assert found.r2 == pytest.approx(kept / dim, abs=0.15)


@pytest.mark.parametrize("n", [1, 19])
def test_few_or_constant_features_have_no_answer(n: int) -> None:
    assert explained(features(n, 3), features(n, 3)) is None
    assert explained(torch.ones(40, 3), features(40, 3)) is None
    found = explained(features(40, 3), torch.ones(40, 3))
    assert found is not None
    assert found.directions == 0


def test_the_same_features_are_explained_with_fewer_examples_than_features() -> None:
    h = features(300, 20) @ features(20, 512, seed=1)
    found = explained(h, h)
    assert found is not None
    assert (found.r2 > 0.95, found.directions) == (True, 1.0)


@pytest.mark.parametrize("sizes", [(20,), (980, 20), (950, 50), (500, 500)])
def test_the_same_features_are_kept_whole_whatever_the_groups(sizes: tuple[int, ...]) -> None:
    h = features(sum(sizes), 16)
    groups = np.repeat(np.arange(len(sizes)), sizes) if len(sizes) > 1 else None
    same, half = (explained(h, other, groups=groups) for other in (h, h[:, :8]))
    assert same is not None
    assert half is not None
    assert (same.r2, same.directions) == (1, 1)
    assert half.r2 < 0.7


def test_features_of_one_group_have_no_answer() -> None:
    h = features(100, 16)
    assert explained(h, h, groups=np.zeros(100, dtype=np.int64)) is None


def test_lost_features_and_a_lower_score_are_worse() -> None:
    lower = PairedDifference(before=0.5, after=0.46, low=-0.06, high=-0.02)
    equal = PairedDifference(before=0.5, after=0.5, low=-0.02, high=0.02)
    lost, kept = (
        explained(features(200, 4), features(200, 4, 1)),
        explained(*[features(200, 4)] * 2),
    )
    verdicts = {
        (name, score.verdict): judge_without_labels(
            score, {}, rank=(40, 40), collapsed=False, kept=found
        )[0]
        for name, found in {"lost": lost, "kept": kept}.items()
        for score in (lower, equal)
    }
    same = "no significant difference"
    assert verdicts == {
        ("lost", "lower"): "worse",
        ("lost", same): same,
        ("kept", "lower"): same,
        ("kept", same): same,
    }
