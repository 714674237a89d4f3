"""The reductions that the wide readout is compared with."""

import torch
from torch.nn import functional

from studies.readout_columns import beside, group_lasso, standardized


def test_group_lasso_minimizes_its_objective() -> None:
    """Its optimality conditions hold: the gradient is the penalty times unit weights, or less."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 12, generator=generator)
    y = (x[:, 0] + 0.5 * x[:, 1] > 0).long() + (x[:, 2] > 1).long()
    weight, penalty = torch.zeros(12, 3), 0.05
    for _ in range(5):
        weight = group_lasso(x, y, weight, penalty)
    target = functional.one_hot(y, 3).float()
    error = (x @ weight + target.mean(0).log()).softmax(1) - target
    gradient, norm = x.T @ error / len(x), weight.norm(dim=1)
    chosen = norm > 0
    assert set(chosen.nonzero()[:, 0].tolist()) >= {0, 1, 2}
    assert (~chosen).any()
    unit = weight[chosen] / norm[chosen, None]
    assert torch.allclose(gradient[chosen], -penalty * unit, atol=1e-4)
    assert (gradient[~chosen].norm(dim=1) <= penalty + 1e-4).all()


def test_residuals_are_uncorrelated_with_the_pooled_features() -> None:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(200, 4, generator=generator)
    source = h @ torch.randn(4, 10, generator=generator) + torch.randn(200, 10, generator=generator)
    pair, other = standardized(h, h[:50]), standardized(source, source[:50])
    output, scored = beside(pair, [other], [3], residuals=True)
    assert output.shape == (200, 7)
    assert (output[:, :4].T @ output[:, 4:] / 200).abs().max() < 1e-5
    assert torch.allclose(scored, output[:50], atol=1e-5)
