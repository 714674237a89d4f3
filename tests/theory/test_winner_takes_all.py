import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from widefield_labs import winner_takes_all as lab
from widefield_labs.one_layer import gated_covariance, is_lme, summation

BROKEN = [
    ("linear_cosine", lambda a: a * 0.999, "top eigenvector"),
    ("reached", lambda a: a[::-1], "linear rows from random starts"),
    ("reached", lambda a: a[::-1], "ReLU rows from random starts"),
    ("threshold", lambda a: a * 1.3, "stable against (*)"),
    ("collected", lambda a: a + 1, "independent rows collect"),
    ("distinct", lambda a: a[::-1], "start close together"),
    ("equal_scale_movement", lambda a: a + 0.1, "equally strong"),
]


@given(
    s=st.lists(st.floats(0.1, 1), min_size=2, max_size=4),
    rate=st.floats(0.02, 0.6),
    slope=st.floats(0, 1),
)
@settings(max_examples=40, deadline=None)
def test_the_boundary_says_which_features_are_lmes(s, rate, slope):
    s = torch.tensor(s, dtype=torch.float64)
    ratio = lab.strength(s) / lab.threshold(rate, torch.tensor(slope, dtype=torch.float64))
    assume(((ratio - 1).abs() > 1e-6).all())
    y, p = summation(torch.full_like(s, rate))
    axes = torch.eye(len(s), dtype=torch.float64)
    a = gated_covariance(axes, s * y, p, slope=slope)
    assert is_lme(a, axes).tolist() == (ratio > 1).tolist()


def test_the_boundary_at_both_ends():
    ends = lab.threshold(0.25, torch.tensor([0.0, 1.0]))
    torch.testing.assert_close(ends, torch.tensor([0.5 / 0.75, 1.0]))


def test_strength_is_relative_to_the_strongest_other():
    strength = lab.strength(torch.tensor([1.0, 0.5, 0.25]))
    torch.testing.assert_close(strength, torch.tensor([2.0, 0.5, 0.25]))


def test_distinct_counts_sets():
    ids = [0, 0, 1, 2, 1, 1, 3, 3]
    hits = torch.nn.functional.one_hot(torch.tensor(ids), 4).double()
    hits[0] = 0  # a row that has learned nothing
    means, _ = lab.distinct(hits, (1, 2, 4))
    assert means.tolist() == [7 / 8, (1 + 2 + 1 + 1) / 4, (3 + 2) / 2]


def test_collected_is_what_independent_rows_find():
    g = torch.Generator().manual_seed(0)
    share = torch.tensor([0.6, 0.3, 0.05])
    draws = torch.multinomial(torch.cat([share, 1 - share.sum(0, True)]), 60_000, True, generator=g)
    hits = torch.nn.functional.one_hot(draws, 4).double()[:, :3]
    predicted, error = lab.collected(hits[:20_000], (1, 4))
    measured, spread = lab.distinct(hits[20_000:], (1, 4))
    assert ((predicted - measured).abs() < 4 * torch.hypot(error, spread)).all()
    exact = (1 - (1 - share) ** 4).sum()
    assert float(predicted[1]) == pytest.approx(float(exact), abs=4 * float(error[1]))


def test_close_starts_are_close():
    g = torch.Generator().manual_seed(0)
    near, far = (
        lab.starts(spread, 500, 5, generator=g, dtype=torch.float64) for spread in (0.3, 1e9)
    )
    assert float((near @ near.T).mean()) > 0.8
    assert abs(float((far @ far.T).mean())) < 0.05


def test_rows_of_either_sign_count():
    w = torch.tensor([[1.0, 0.0], [0.0, -1.0], [0.7071, 0.7071]])
    assert lab.learned(w).tolist() == [[1, 0], [0, 1], [0, 0]]
