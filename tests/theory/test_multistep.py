import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from widefield_labs import multistep as lab

BROKEN = [
    ("closed", lambda a: 1.001 * a, "k steps one by one"),
    ("torch", lambda a: 1.001 * a, "torch.optim.AdamW"),
    ("sgd_closed", lambda a: 1.001 * a, "SGD with momentum"),
    ("printed", lambda a: 0.999 * a, "erratum"),
    ("eps_gap", lambda a: a + 1, "eps > 0"),
    ("head_error", lambda a: a + 1e-6, "row optimizer"),
    ("replayed", lambda a: a + 0.01, "replaying true gaps"),
    ("deviation", lambda a: 1.1 * a, "library's epochs"),
    ("estimated", lambda a: a * 0, "boundary"),
    ("estimated", lambda a: a + 0.01, "exact if gaps are constant"),
]

rate = st.floats(0.05, 0.999)


def scalar(value):
    return torch.tensor(value, dtype=torch.float64)


@given(a=rate, mu=rate, k=st.integers(1, 60))
@settings(max_examples=100, deadline=None)
def test_decayed_sum_against_the_sum(a, mu, k):
    expected = sum(a ** (k - 1 - j) * mu**j for j in range(k))
    assert float(lab.decayed_sum(scalar(a), scalar(mu), scalar(k))) == pytest.approx(expected)


@given(a=rate, apart=st.sampled_from([0.0, 1e-16, 1e-12, 1e-8]), k=st.integers(1, 60))
@settings(max_examples=50, deadline=None)
def test_decayed_sum_passes_through_its_limit(a, apart, k):
    found = float(lab.decayed_sum(scalar(a), scalar(a * (1 + apart)), scalar(k)))
    assert found == pytest.approx(k * a ** (k - 1), rel=1e-6)


@given(
    lr=st.floats(1e-4, 0.1),
    decay=st.floats(0, 0.5),
    b1=st.floats(0.1, 0.95),
    b2=st.floats(0.95, 0.9999),
    k=st.integers(0, 80),
    start=st.tuples(st.floats(-2, 2), st.floats(-2, 2), st.floats(0.01, 4)),
)
@settings(max_examples=60, deadline=None)
def test_skip_against_single_steps(lr, decay, b1, b2, k, start):
    s = lab.Settings(*(scalar(value) for value in (lr, decay, b1, b2)))
    row = begin = lab.Row(*(scalar(value) for value in start))
    for _ in range(k):
        row = lab.step(row, scalar(0.0), s)
    found = lab.skip(begin, scalar(float(k)), s)
    for name in ("theta", "m", "v"):
        torch.testing.assert_close(getattr(found, name), getattr(row, name), rtol=1e-9, atol=1e-12)


@given(lr=st.floats(1e-4, 0.1), mu=st.floats(0.1, 0.99), m=st.floats(0.1, 2), k=st.integers(1, 40))
@settings(max_examples=30, deadline=None)
def test_sgd_without_decay_against_torch(lr, mu, m, k):
    weight = torch.nn.Parameter(scalar(0.3))
    optimizer = torch.optim.SGD([weight], lr=lr, momentum=mu)
    optimizer.state[weight]["momentum_buffer"] = scalar(m)
    weight.grad = torch.zeros_like(weight)
    for _ in range(k):
        optimizer.step()
    s = lab.Settings(scalar(lr), scalar(0.0), scalar(mu), scalar(1.0))
    found = lab.skip(lab.Row(scalar(0.3), scalar(m), scalar(1.0)), scalar(float(k)), s, sgd=True)
    torch.testing.assert_close(found.theta, weight.detach(), rtol=1e-10, atol=1e-12)


@given(m=st.floats(0.1, 2), k=st.integers(1, 40))
@settings(max_examples=20, deadline=None)
def test_the_printed_sign_moves_a_row_up_its_momentum(m, k):
    assume(m > 0)
    s = lab.Settings(*(scalar(value) for value in (1e-2, 0.0, 0.9, 0.999)))
    row = lab.Row(scalar(0.0), scalar(m), scalar(1.0))
    assert lab.skip(row, scalar(float(k)), s).theta < 0
    assert lab.skip(row, scalar(float(k)), s, sign=1.0).theta > 0


def test_bias_correction_is_what_the_closed_form_leaves_out():
    s = lab.Settings(*(torch.tensor([v], dtype=torch.float64) for v in (1e-2, 0.05, 0.9, 0.999)))
    row = lab.Row(*(torch.tensor([v], dtype=torch.float64) for v in (0.5, 0.1, 0.04)))
    weight = torch.nn.Parameter(row.theta.clone())
    optimizer = torch.optim.AdamW([weight], lr=1e-2, weight_decay=0.05, eps=0.0)
    moments = {"exp_avg": row.m.clone(), "exp_avg_sq": row.v.clone()}
    optimizer.state[weight] = {"step": torch.tensor(1.0), **moments}
    weight.grad = torch.zeros_like(weight)
    for _ in range(20):
        optimizer.step()
    worn_out = lab.by_adamw(row, 20, s)
    torch.testing.assert_close(worn_out, lab.skip(row, scalar(20.0), s).theta)
    assert abs(float(weight.detach() - worn_out)) > 1e-3


@pytest.mark.parametrize("law", lab.GAP_LAWS)
@pytest.mark.parametrize("epoch", [2, 7, 40])
def test_gaps_have_mean_t_and_at_least_one_step(law, epoch):
    gap = lab.gaps(law, epoch, 50, 4000, torch.Generator().manual_seed(0)).numpy()
    assert gap.shape == (50, 4000)
    assert gap.min() >= 1
    assert gap.mean() == pytest.approx(epoch, rel=0.02)
    if law == "shuffled":
        assert gap.max() <= 2 * epoch - 1


@pytest.mark.parametrize("epoch", [1, 2, 5, 30])
def test_predicted_deviation_against_all_pairs_of_places(epoch):
    place = np.arange(epoch)
    assert lab.predicted_deviation(epoch) == pytest.approx(np.abs(place[:, None] - place).mean())
