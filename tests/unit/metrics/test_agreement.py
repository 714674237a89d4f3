"""Neighbors kept through views, against loops."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from axes import each_value
from widefield.metrics import graph_overlap, nearest_neighbors, neighbor_agreement, view_agreement


def features(seed: int, n: int = 40, dim: int = 6) -> torch.Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("k", [1, 5, 39])
def test_it_is_the_share_of_equal_neighbors(k: int) -> None:
    h, views = features(0), features(0) + features(1)
    expected = []
    for i in range(len(h)):
        near = []
        for query in (h[i], views[i]):
            cosine = torch.nn.functional.cosine_similarity(query[None], h)
            order = [j for j in cosine.argsort(descending=True).tolist() if j != i]
            near.append(set(order[:k]))
        expected.append(len(near[0] & near[1]) / k)
    assert view_agreement(h, views, k).tolist() == pytest.approx(expected)


def test_unrelated_views_keep_what_chance_keeps() -> None:
    kept = view_agreement(features(0, 500), features(1, 500), 10).mean()
    assert kept == pytest.approx(10 / 499, abs=0.01)


@pytest.mark.parametrize(("n", "k"), [(39, 5), (40, 0), (40, 40)])
def test_bad_input(n: int, k: int) -> None:
    with pytest.raises(ValueError, match=r"give a view of each|choose 1 to 39"):
        view_agreement(features(0), features(0)[:n], k)


@each_value(("n", [30, 1000]), ("value", [0.0, 1.0, 0.3]))
def test_neighbors_of_constant_features_are_kept_by_chance(n: int, value: float) -> None:
    h = torch.full((n, 24), value)
    assert view_agreement(h, h, 20).mean().item() == pytest.approx(20 / (n - 1))


@pytest.mark.parametrize("seed", range(5))
def test_equal_rows_are_equal_whatever_their_products_round_to(seed: int) -> None:
    h = features(seed, n=1, dim=37).expand(101, 37).clone()
    assert view_agreement(h, 2 * h, 5).mean().item() == pytest.approx(5 / 100)


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20])
def test_agreement_does_not_see_the_scale(scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    h, noise = torch.randn(2, 60, 8, generator=generator)
    agreed = view_agreement(h, h + 0.3 * noise, 5)
    assert 0.2 < agreed.mean() < 0.9
    assert torch.equal(view_agreement(scale * h, scale * (h + 0.3 * noise), 5), agreed)


@given(seed=st.integers(0, 10_000), k=st.integers(1, 9))
def test_neighbors_by_other_features_are_those_of_two_graphs(seed: int, k: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    first, second = (torch.randn(10, dim, generator=generator) for dim in (3, 5))
    expected = graph_overlap(nearest_neighbors(first, k), nearest_neighbors(second, k))
    assert neighbor_agreement(first, second, k).mean().item() == pytest.approx(expected)


def test_equally_near_neighbors_are_kept_by_chance() -> None:
    h, constant = torch.randn(30, 4, generator=torch.Generator().manual_seed(0)), torch.ones(30, 2)
    for pair in ((h, constant), (constant, h), (constant, constant)):
        assert neighbor_agreement(*pair, 5).mean().item() == pytest.approx(5 / 29)
    with pytest.raises(ValueError, match="features of 30 and of 29 examples"):
        neighbor_agreement(h, h[1:], 5)
    with pytest.raises(ValueError, match="choose 1 to 29"):
        neighbor_agreement(h, h, 30)
