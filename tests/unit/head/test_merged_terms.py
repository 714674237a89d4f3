"""Few terms instead of many: the same sum for every x, and not with fewer of them."""

import math

import pytest
import torch
from torch import Tensor

from widefield.head import merged_terms
from widefield.head.merged_terms import merge_terms

X = torch.logspace(-12, 12, 200, dtype=torch.float64)[:, None, None]
"""Root of the second moment over eps, from far below it to far above."""


def adamw_terms(last: int, terms: int) -> tuple[Tensor, Tensor]:
    """Return weight and log of the factor of each term [terms, 1], by their definition."""
    steps = torch.arange(last + 1, last + terms + 1, dtype=torch.float64)[:, None]
    i = steps - last
    weight = 0.9**i / (1 - 0.9**steps) * (1 + torch.cos(steps))  # some rate, at least 0
    return weight, ((0.999**i).sqrt() / (1 - 0.999**steps).sqrt()).log()


def error(weight: Tensor, log_shrink: Tensor, dtype: torch.dtype) -> float:
    """Return the largest error of the merged sum over x, relative to the sum itself."""
    expected = (weight.T / (log_shrink.exp().T * X + 1)).sum(-1)
    few, shrink = merge_terms(weight, log_shrink, dtype)
    return float(((few / (shrink * X + 1)).sum(-1) / expected - 1).abs().max())


@pytest.mark.parametrize("last", [1, 2, 10, 100, 10_000])
@pytest.mark.parametrize(
    ("dtype", "terms", "tolerance"),
    [(torch.float32, 172, 3e-8), (torch.float64, 364, 4e-15), (torch.float64, 30, 4e-15)],
    ids=str,
)
def test_the_sum_is_that_of_all_terms(
    last: int, dtype: torch.dtype, terms: int, tolerance: float
) -> None:
    """From the second step of a run, where the factors differ tenfold, on."""
    assert error(*adamw_terms(last, terms), dtype) < tolerance


def test_with_fewer_nodes_it_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = merged_terms.node_count
    monkeypatch.setattr(merged_terms, "node_count", lambda *args: enough(*args) - 4)
    assert error(*adamw_terms(1, 172), torch.float32) > 1e-7


def test_few_terms_stay_as_they_are() -> None:
    weight, log_shrink = adamw_terms(5, 3)
    same, shrink = merge_terms(weight, log_shrink, torch.float32)
    assert torch.equal(same, weight.T)
    torch.testing.assert_close(shrink.log(), log_shrink.T)


def test_terms_that_a_row_does_not_have_do_not_count() -> None:
    """Rows of a batch missed more or fewer steps, and some were never visited."""
    weight, log_shrink = (x.repeat(1, 3) for x in adamw_terms(20, 172))
    weight[40:, 1], weight[:, 2] = 0, 0
    merged, shrink = merge_terms(weight, log_shrink, torch.float64)
    found = (merged / (shrink * X + 1)).sum(-1)
    expected = (weight.T / (log_shrink.exp().T * X + 1)).sum(-1)
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)
    assert float(found[:, 2].abs().max()) == 0


@pytest.mark.parametrize("half_width", [0.04, 0.5, 1.3])
def test_the_number_of_nodes_follows_the_rate_of_convergence(half_width: float) -> None:
    """rho^-K with rho from the poles of the logistic curve."""
    rho = math.pi / half_width + math.sqrt(1 + (math.pi / half_width) ** 2)
    count = merged_terms.node_count(half_width, torch.float32)
    assert rho**-count <= torch.finfo(torch.float32).eps / 8 < rho ** -(count - 1)
