import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from draws import draw
from widefield_labs import LABS
from widefield_labs import sparse_coding as lab
from widefield_labs import sparse_downstream as worth
from widefield_labs import sparse_learner as learner
from widefield_labs.sparse_learner import SparseCoding, masked_pair

BROKEN = [
    ("covered", lambda a: 0.5 * a, "with RandomMask: share of atoms"),
    ("covered", lambda a: a[::-1], "without: share of atoms"),
    ("per_atom", lambda a: 3 * a, "mean over atoms, over m/d"),
    ("per_atom", lambda a: a + 9 * (a == a.max()), "most, over m/d"),
    ("best", lambda a: a[::-1], "with: largest |<w, M_j>|/|w|"),
    ("best", lambda a: a[::-1], "without: largest"),
    ("dense", lambda a: 2 * a, "dense part over the largest"),
    ("cos_signal", lambda a: a[::-1], "closer to f(Mz)"),
    ("cos_noise", lambda a: a[::-1], "closer to f(xi)"),
    ("r2", lambda a: a[::-1], "with: R^2"),
    ("r2", lambda a: a[::-1], "without: R^2"),
    ("sign", lambda a: a[::-1], "with: accuracy"),
    ("sign", lambda a: a[::-1], "without: accuracy"),
    ("loss_share", lambda a: 0 * a, "with: fall of the loss"),
    ("loss_share", lambda a: a[::-1], "without: fall of the loss"),
    ("loss_share", lambda a: 0.5 * a, "minus the optimal learner's"),
    ("optimal_share", lambda a: a[::-1], "Lemma E.11"),
    ("stage_one_growth", lambda a: a[:, ::-1], "stage I, with: log growth"),
    ("stage_one_growth", lambda a: a[:, ::-1], "stage I, without: log growth"),
    ("best_curve", lambda a: a * 0 + 0.7, "stage II, with: it then rises"),
    ("best_curve", lambda a: a * 0 + 0.7, "no singletons yet"),
    ("best_curve", lambda a: np.linspace(0, 1, len(a))[:, None] * [1, 1], "III"),
    ("trained_bias", lambda a: a[:, ::-1], "footnote 4, with"),
    ("trained_bias", lambda a: a[:, ::-1], "footnote 4, without"),
]

ROW = {"tau": 1.0, "lam": 0.1, "mask_rate": 0.5, "noise": 1.0, "trained": 0.0}


@given(y=st.floats(-5, 5), b=st.floats(0, 3))
@settings(max_examples=50, deadline=None)
def test_respond_is_the_symmetrized_relu(y, b):
    expected = max(y - b, 0.0) - max(-y - b, 0.0)
    found = learner.respond(torch.tensor([[y]], dtype=torch.float64), torch.tensor([b]).double())
    assert float(found) == pytest.approx(expected, abs=1e-6)


@given(seed=st.integers(0, 1000), tau=st.floats(0.2, 3), bias=st.floats(-1, 1))
@settings(max_examples=20, deadline=None)
def test_gradient_is_that_of_the_loss_with_its_second_argument_held(seed, tau, bias):
    w = draw(1, 4, 6, seed=seed)
    b = torch.full((1, 4), bias, dtype=torch.float64)
    anchor, partner, negative = draw(3, 5, 6, seed=seed + 1)

    moving = w[0].clone().requires_grad_()
    moving_b = b[0].clone().requires_grad_()
    held = [learner.respond(x @ w[0].T, b[0]) for x in (partner, negative)]
    losses = []
    for i in range(5):
        y = anchor[i] @ moving.T
        f = torch.relu(y - moving_b) - torch.relu(-y - moving_b)
        others = torch.cat([held[0][i : i + 1], held[1]])
        similar = (others @ f) / tau
        losses.append(-tau * (similar[0] - torch.logsumexp(similar, 0)))
    expected = torch.autograd.grad(sum(losses) / 5, (moving, moving_b))
    views = (anchor[None], partner[None], negative[None])
    column = torch.tensor(tau, dtype=torch.float64).view(1, 1, 1)
    along_w, along_b = learner.gradient(w, b, views, column)
    torch.testing.assert_close(along_w[0], expected[0])
    torch.testing.assert_close(along_b[0], expected[1])
    f, partner_f, negative_f = (learner.respond(x @ w.mT, b) for x in views)
    found = learner.contrastive_loss(learner.similarities(f, partner_f, negative_f), column)
    torch.testing.assert_close(found[0], (sum(losses) / 5).detach())


def test_scheduled_biases_grow_as_the_norms_do_never_fall_and_stop_at_their_cap():
    b = torch.tensor([[0.2, 0.2, 0.6]])
    growth = torch.tensor([[1.5, 0.5, 1.5]])
    torch.testing.assert_close(learner.scheduled(b, growth, 0.5), torch.tensor([[0.3, 0.2, 0.6]]))


def test_the_linear_stage_grows_at_the_rates_of_the_lab():
    arms = learner.Arms.paired([{**ROW, "lam": 0.005, "noise": 1.5}])
    g = torch.Generator().manual_seed(0)
    data = SparseCoding.random(12, 36, 2.0, arms.noise, g)
    how = learner.Training(
        neurons=40, batch=1000, steps=100, step_size=0.05, initial_norm=1e-4, bias_factor=0.6
    )
    _, _, curves = learner.train(data, arms, how, g)
    norms = np.stack([curves["inside"], curves["outside"]])
    rates = np.log(norms[:, -1] / norms[:, 0]) / 5
    np.testing.assert_allclose(rates, lab.stage_one_rates(data, arms.lam), atol=0.015)
    assert (curves["stage_two"] == -1).all()


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
    share = learner.best_share(w, atoms)
    torch.testing.assert_close(share, torch.tensor([[1.0, math.sqrt(0.5), 0.6]]))


def test_downstream_reads_z_off_features_that_hold_it_and_nothing_off_others():
    z = draw(3000, 6).sign() * (draw(3000, 6, seed=1) > 0)
    noise = draw(3000, 6, seed=2)
    y = z @ draw(6, 4, seed=3).sign()
    features = torch.stack([z @ draw(6, 6, seed=4), noise]).float()
    r2, sign = worth.regression(features, y), worth.classification(features, y)
    assert r2[0] > 0.99
    assert sign[0] > 0.99
    assert abs(float(r2[1])) < 0.05
    assert float(sign[1]) == pytest.approx(0.5, abs=0.06)


def test_downstream_scores_are_of_examples_that_were_not_fitted():
    features, y = draw(1, 120, 70).float(), draw(120, 8, seed=1)
    assert worth.regression(features, y)[0] < 0.1
    assert worth.classification(features, y.sign())[0] < 0.6


def test_classification_is_logistic_regression():
    f = draw(1, 600, 5)
    y = f[0] @ draw(5, 2, seed=1) + 2 * draw(600, 2, seed=2)
    fit, test, fit_y, test_y = worth.split(f, y)
    weights = torch.zeros(5, 2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss():
        optimizer.zero_grad()
        value = torch.log1p(torch.exp(-(fit[0] @ weights) * fit_y.sign())).sum()
        value = value + worth.RIDGE * 400 / 2 * weights.square().sum()
        value.backward()
        return value

    optimizer.step(loss)
    expected = ((test[0] @ weights).sign() == test_y.sign()).double().mean()
    assert float(worth.classification(f, y)) == pytest.approx(float(expected), abs=1e-6)


def test_the_optimal_learner_reads_the_sign_of_an_atom_through_the_gates_of_the_net():
    atoms = torch.eye(4)[:, :2]
    w = torch.tensor([[[2.0, 0, 0, 0], [-3, 0, 0, 0], [1, 1, 1, 1]]])  # two of atom 0, one of none
    b = torch.tensor([[0.5, 0.5, 0.5]])
    x = torch.tensor([[1.0, 0, 0, 0], [0.1, 0, 0, 0], [0.0, 0, 0, 1.0]])
    found = worth.optimal_responses(w, b, x, atoms, torch.tensor([8.0]))
    # kappa/|M*| = 4; the third neuron has theta = 0 and keeps its bias where it fires
    expected = torch.tensor([[3.5, -3.5, -0.5], [0, 0, 0], [0, 0, -0.5]])
    torch.testing.assert_close(found[0], expected)


def test_a_net_that_reads_z_has_fallen_by_all_that_z_tells():
    g = torch.Generator().manual_seed(0)
    arms = learner.Arms.paired([{**ROW, "noise": 1e-12}])
    data = SparseCoding.random(6, 40, 1.0, arms.noise, g)
    w = 10 * data.atoms.T.repeat(2, 1, 1)
    shares = worth.losses(w, torch.full((2, 6), 1.0), data, arms, 64, g)
    assert shares["loss_share"][1] == pytest.approx(1, abs=1e-3)
    silent = worth.losses(w, torch.full((2, 6), 300.0), data, arms, 64, g)
    np.testing.assert_allclose(silent["loss_share"], 0, atol=1e-6)


def test_a_sweep_adds_two_arms_for_each_value_and_keeps_the_base():
    rows, values = lab.sweep_rows(ROW, "tau", 16)
    arms = learner.Arms.paired(rows)
    assert values == [1.0, 0.3, 3.0]
    assert arms.tau.tolist() == pytest.approx([1.0, 1.0, 0.3, 0.3, 3.0, 3.0])
    assert arms.lam.tolist() == pytest.approx([0.1] * 6)
    assert lab.sweep_rows(ROW, None, 16) == ([ROW], [])
    _, decays = lab.sweep_rows(ROW, "lam", 16)
    assert all(16**-1.499 <= lam <= 16**-1.001 for lam in decays[1:])


@pytest.mark.parametrize("sweep", ["noise", "size"])
def test_a_sweep_records_both_arms_at_every_value(sweep, tmp_path):
    result = LABS["sparse-coding"].run(scale="tiny", sweep=sweep, atoms=8, ambient=32)
    for name in lab.MEASURES:
        assert result.arrays[f"sweep_{name}"].shape == (len(result.arrays["swept"]), 2)
        assert (result.arrays[f"sweep_{name}"][0] == result.arrays[name][:2]).all()
    assert "over the swept values" in result.notes[-1]
    result.save(tmp_path / "sweep.svg")
