"""The linear probe of wide features: pooled columns, and further ones of a selected scale."""

import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from widefield.probes import LinearProbe, fit_linear

POOLED = 8


def fit(h: Tensor, y: Tensor, pooled: int | None, **options: list[float]) -> LinearProbe:
    half = len(h) // 2
    train, test = {"t": y[:half]}, {"t": y[half:]}
    classes = {"t": int(y.max()) + 1}
    return fit_linear(h[:half], train, h[half:], test, classes=classes, pooled=pooled, **options)[
        "t"
    ]


@pytest.fixture
def noisy() -> tuple[Tensor, Tensor]:
    """The class depends on a pooled column, and the further ones are noise."""
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(800, POOLED + 300, generator=generator)
    noise = torch.randn(800, generator=generator)
    return h, (h[:, 0] + 0.3 * noise > 0).long()


def test_noise_beside_pooled_features_costs_little(noisy: tuple[Tensor, Tensor]) -> None:
    h, y = noisy
    alone = fit(h[:, :POOLED], y, None).outcome.value
    assert fit(h, y, POOLED).outcome.value > alone - 0.05
    assert fit(h, y, None).outcome.value < alone - 0.05  # the control: one scale for all columns


def test_a_class_in_the_further_columns_is_found(noisy: tuple[Tensor, Tensor]) -> None:
    h, _ = noisy
    y = (h[:, POOLED] > 0).long()
    assert fit(h, y, POOLED).outcome.value >= fit(h, y, None).outcome.value > 0.7


def test_noise_in_pooled_features_costs_little() -> None:
    h = torch.randn(800, 300 + POOLED, generator=torch.Generator().manual_seed(0))
    y = (h[:, 300] > 0).long()
    alone = fit(h[:, 300:], y, None).outcome.value
    assert fit(h, y, 300).outcome.value > alone - 0.05
    assert fit(h, y, None).outcome.value < alone - 0.05  # the control: one scale for all columns


def test_each_task_has_the_scale_with_the_least_validation_cross_entropy(
    noisy: tuple[Tensor, Tensor],
) -> None:
    """Scaled by hand, with the columns standardized, scikit-learn finds the same probes."""
    h, y = noisy
    l2, half = 0.01, len(h) // 2
    found = fit(h, y, POOLED, l2_grid=[l2])
    z = (h - h[:half].mean(0)) / h[:half].std(0, correction=0)
    agreement = []
    for scale in (1.0, 10.0, 0.1, 0.0):
        x = torch.cat([z[:, :POOLED], scale * z[:, POOLED:]], dim=1).numpy()
        model = LogisticRegression(C=2 / (half * l2), tol=1e-8, max_iter=2000)
        predicted = model.fit(x[:half], y[:half].numpy()).predict(x[half:])
        agreement.append((torch.from_numpy(predicted) == found.predicted).float().mean())
    assert max(agreement) > 0.99
    assert min(agreement) < 0.95


def test_tasks_of_other_scales_and_classes_do_not_change_a_probe(
    noisy: tuple[Tensor, Tensor],
) -> None:
    h, y = noisy
    thirds = h[:, POOLED].argsort().argsort() * 3 // len(h)  # of a further column
    half = len(h) // 2
    train, test = ({"t": y[rows], "u": thirds[rows]} for rows in (slice(half), slice(half, None)))
    both = fit_linear(h[:half], train, h[half:], test, classes={"t": 2, "u": 3}, pooled=POOLED)
    for task, labels in {"t": y, "u": thirds}.items():
        torch.testing.assert_close(both[task].weight, fit(h, labels, POOLED).weight)


def test_the_weights_are_those_of_features_as_given(noisy: tuple[Tensor, Tensor]) -> None:
    h, y = noisy
    result = fit(3 * h + 1, y, POOLED)
    logits = (3 * h + 1)[len(h) // 2 :] @ result.weight.T + result.bias
    assert (logits.argmax(1) == result.predicted).float().mean() > 0.99
