"""Training that brings a feature back which the last layer projects away."""

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from widefield.probes import extract, fit_linear
from widefield.train.recover import _least_squares, _Objective, train_to_predict

COUNT = 400


def made() -> tuple[np.ndarray, dict[str, Tensor]]:
    """Return noisy images with vertical or horizontal stripes, and red or blue, independently."""
    rng = np.random.default_rng(0)
    labels = {"stripes": rng.integers(2, size=COUNT), "color": rng.integers(2, size=COUNT)}
    x = rng.integers(0, 100, (COUNT, 8, 8, 3))
    x[labels["stripes"] == 0, ::2] += 60
    x[labels["stripes"] == 1, :, ::2] += 60
    x[np.arange(COUNT), :, :, 2 * labels["color"]] += 60
    return x.astype(np.uint8), {task: torch.from_numpy(y) for task, y in labels.items()}


def inner() -> nn.Sequential:
    """Return a convolution whose mean over positions has both features."""
    torch.manual_seed(0)
    convolution = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    return nn.Sequential(convolution, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def hiding() -> tuple[nn.Sequential, Tensor]:
    """Return a network whose last layer removes the stripes, and what it removes, for `made()`."""
    images, labels = made()
    s = extract(inner(), images)
    classes = dict.fromkeys(labels, 2)
    w = fit_linear(s, labels, s, labels, classes=classes)["stripes"].weight.diff(dim=0)[0]
    across = torch.cov(s.T) @ w
    last = nn.Linear(8, 8, bias=False)
    with torch.no_grad():  # its features are uncorrelated with the logit s w
        last.weight.copy_(torch.eye(8) - torch.outer(across, w) / across.dot(w))
    logit = s @ w
    return nn.Sequential(*inner(), last).eval(), ((logit - logit.mean()) / logit.std())[:, None]


def accuracy(net: nn.Module) -> dict[str, float]:
    """Return linear-probe accuracies on features with noise, which hides rounding errors."""
    images, labels = made()
    h = extract(net, images)
    h += 0.02 * h.std(0) * torch.randn(h.shape, generator=torch.Generator().manual_seed(0))
    halves = [{t: y[i::2] for t, y in labels.items()} for i in (0, 1)]
    classes = dict.fromkeys(labels, 2)
    probes = fit_linear(h[::2], halves[0], h[1::2], halves[1], classes=classes)
    return {task: probe.outcome.value for task, probe in probes.items()}


def trained(weight: float, seed: int = 0) -> nn.Module:
    net, wanted = hiding()
    return train_to_predict(net, made()[0], wanted, weight=weight, epochs=12, seed=seed)


def test_what_the_last_layer_removed_comes_back_and_the_rest_stays() -> None:
    before, after = accuracy(hiding()[0]), accuracy(trained(1.0))
    assert before["stripes"] < 0.65
    assert after["stripes"] > 0.95
    assert before["color"] > 0.95
    assert after["color"] > before["color"] - 0.01


def test_the_same_steps_without_the_request_gain_nothing() -> None:
    """The control of the test above."""
    before, after = accuracy(hiding()[0]), accuracy(trained(0.0))
    assert abs(after["stripes"] - before["stripes"]) < 0.05


def test_the_encoder_is_not_changed_and_the_seed_decides() -> None:
    net, wanted = hiding()
    state = {key: value.clone() for key, value in net.state_dict().items()}
    steps: list[tuple[int, int]] = []
    one = train_to_predict(
        net.train(), made()[0], wanted, epochs=1, progress=lambda *done: steps.append(done)
    )
    assert all(torch.equal(value, state[key]) for key, value in net.state_dict().items())
    assert net.training
    assert one.training
    assert steps == [(step, 8) for step in range(1, 9)]
    again, other = (
        train_to_predict(net, made()[0], wanted, epochs=1, seed=seed) for seed in (0, 1)
    )
    assert torch.equal(one[-1].weight, again[-1].weight)
    assert not torch.equal(one[-1].weight, other[-1].weight)


def test_running_statistics_stay() -> None:
    net = nn.Sequential(inner(), nn.BatchNorm1d(8))
    wanted = torch.randn(COUNT, 2, generator=torch.Generator().manual_seed(0))
    after = train_to_predict(net, made()[0], wanted, epochs=1)
    assert torch.equal(after[1].running_mean, net[1].running_mean)
    assert not torch.equal(after[1].weight, net[1].weight)


def test_the_loss_is_that_of_the_formula() -> None:
    generator = torch.Generator().manual_seed(0)
    before, t = torch.randn(40, 5, generator=generator), torch.randn(40, 3, generator=generator)
    before[:, 4] = 2.0  # a constant feature
    objective = _Objective(before, t, weight=0.5)
    rows, h = torch.arange(7), torch.randn(7, 5, generator=generator)
    a, b = objective.to_kept, objective.to_wanted
    with torch.no_grad():
        a += 0.1 * torch.randn(5, 5, generator=generator)
        objective.kept_offset.fill_(0.1)
        objective.wanted_offset.fill_(0.2)
    expected = torch.tensor(0.0)
    for row in range(7):
        z, z0 = (
            torch.tensor(
                [
                    0.0 if j == 4 else (x[j] - before[:, j].mean()) / before[:, j].std(correction=0)
                    for j in range(5)
                ]
            )
            for x in (h[row], before[row])
        )
        expected += (a.T @ z + 0.1 - z0).square().sum() / 5
        expected += 0.5 * (b.T @ z + 0.2 - t[row]).square().sum() / 3
    torch.testing.assert_close(objective(h, rows), expected / 7)
    assert _Objective(before, t, weight=0.0)(before[rows], rows) < 1e-12


def test_least_squares_are_those_of_stacked_rows() -> None:
    """A ridge is a row for each feature whose target is 0."""
    generator = torch.Generator().manual_seed(0)
    z, t = torch.randn(50, 4, generator=generator), torch.randn(50, 2, generator=generator)
    rows = torch.cat([z, (1e-3 * 50) ** 0.5 * torch.eye(4)])
    expected = torch.linalg.lstsq(rows, torch.cat([t, torch.zeros(4, 2)])).solution
    torch.testing.assert_close(_least_squares(z, t), expected, atol=1e-5, rtol=1e-4)


def test_weights_that_are_not_finite_are_refused() -> None:
    net, wanted = hiding()
    with pytest.raises(ValueError, match="NaN or infinite"):
        train_to_predict(net, made()[0], wanted * 1e30, epochs=1)
