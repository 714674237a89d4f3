import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield.labs import LABS
from widefield.labs import sparse_coding as lab
from widefield.labs.sparse_data import SparseCoding, masked_pair


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(y=st.floats(-5, 5), b=st.floats(0, 3))
@settings(max_examples=50, deadline=None)
def test_respond_is_the_symmetrised_relu(y, b):
    expected = max(y - b, 0.0) - max(-y - b, 0.0)
    found = lab.respond(torch.tensor([[y]], dtype=torch.float64), torch.tensor([b]).double())
    assert float(found) == pytest.approx(expected, abs=1e-6)


@given(seed=st.integers(0, 1000), tau=st.floats(0.2, 3), bias=st.floats(0, 1))
@settings(max_examples=20, deadline=None)
def test_gradient_is_that_of_the_loss_with_its_second_argument_held(seed, tau, bias):
    w = draw(1, 4, 6, seed=seed)
    b = torch.full((1, 4), bias, dtype=torch.float64)
    anchor, partner, negative = draw(3, 5, 6, seed=seed + 1)

    moving = w[0].clone().requires_grad_()
    held = [lab.respond(x @ w[0].T, b[0]) for x in (partner, negative)]
    losses = []
    for i in range(5):
        y = anchor[i] @ moving.T
        f = torch.relu(y - bias) - torch.relu(-y - bias)
        others = torch.cat([held[0][i : i + 1], held[1]])
        similar = (others @ f) / tau
        losses.append(-tau * (similar[0] - torch.logsumexp(similar, 0)))
    (expected,) = torch.autograd.grad(sum(losses) / 5, moving)
    views = (anchor[None], partner[None], negative[None])
    found = lab.gradient(w, b, views, torch.tensor(tau, dtype=torch.float64).view(1, 1, 1))
    torch.testing.assert_close(found[0], expected)


def test_masked_views_are_complementary_and_unbiased():
    x = draw(2, 50, 400).float()
    keep = torch.rand(50, 400, generator=torch.Generator().manual_seed(1))
    q = torch.tensor([0.3, 0.3]).view(-1, 1, 1)
    first, second = masked_pair(x, keep, q)
    assert (first[0] * second[0]).abs().max() == 0
    torch.testing.assert_close(0.3 * first[0] + 0.7 * second[0], x[0])
    assert (first[0] != 0).float().mean() == pytest.approx(0.3, abs=0.02)
    assert torch.equal(first[1], x[1])
    assert torch.equal(second[1], x[1])


def test_data_have_the_moments_of_their_definition():
    g = torch.Generator().manual_seed(0)
    data = SparseCoding.random(16, 40, 2.0, torch.tensor([1.0, 4.0]), g)
    torch.testing.assert_close(data.atoms.T @ data.atoms, torch.eye(16), atol=1e-5, rtol=0)
    z, xi = data.sample(20_000, g)
    assert set(z.unique().tolist()) == {-1.0, 0.0, 1.0}
    active = 2 * math.log(math.log(16)) / 16
    assert (z != 0).float().mean() == pytest.approx(active, rel=0.05)
    assert z.mean() == pytest.approx(0, abs=0.01)
    variance = math.sqrt(math.log(16)) / 16
    torch.testing.assert_close(
        xi.square().mean((1, 2)), torch.tensor([variance, 4 * variance]), rtol=0.02, atol=0
    )


def test_best_share_is_the_largest_cosine_with_an_atom():
    atoms = torch.eye(5)[:, :3]
    w = torch.tensor([[[0.0, 2.0, 0, 0, 0], [1, 1, 0, 0, 0], [0, 0, 3, 4, 0]]])
    share = lab.best_share(w, atoms)
    torch.testing.assert_close(share, torch.tensor([[1.0, math.sqrt(0.5), 0.6]]))


def test_downstream_reads_z_off_features_that_hold_it_and_nothing_off_others():
    z = draw(3000, 6).sign() * (draw(3000, 6, seed=1) > 0)
    noise = draw(3000, 6, seed=2)
    targets = draw(6, 4, seed=3).sign()
    features = torch.stack([z @ draw(6, 6, seed=4), noise]).float()
    r2, sign = lab.downstream(features, z.float(), targets.float())
    assert r2[0] > 0.99
    assert sign[0] > 0.99
    assert abs(float(r2[1])) < 0.05
    assert float(sign[1]) == pytest.approx(0.5, abs=0.06)


def test_a_sweep_adds_two_arms_for_each_value_and_keeps_the_base():
    base = {"tau": 1.0, "lam": 0.1, "mask_rate": 0.5, "noise": 1.0}
    arms = lab.Arms.around(base, "tau")
    assert arms.tau.tolist() == pytest.approx([1.0, 1.0, 0.3, 0.3, 3.0, 3.0])
    assert arms.lam.tolist() == pytest.approx([0.1] * 6)
    assert lab.Arms.around(base, None).tau.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("sweep", ["noise", "size"])
def test_a_sweep_records_both_arms_at_every_value(sweep, tmp_path):
    result = LABS["sparse-coding"].run(scale="tiny", sweep=sweep, atoms=8, ambient=32)
    assert len(result.arrays["swept"]) == 3
    for name in lab.MEASURES:
        assert result.arrays[f"sweep_{name}"].shape == (3, 2)
        assert (result.arrays[f"sweep_{name}"][0] == result.arrays[name][:2]).all()
    assert "over the swept values" in result.notes[-1]
    result.save(tmp_path / "sweep.svg")
