import pytest
import torch
from sklearn.manifold import trustworthiness

from axes import each_value
from widefield.metrics import nearest_neighbors, tsne, tsne_map


def test_groups_stay_together_and_neighbors_are_kept() -> None:
    generator = torch.Generator().manual_seed(0)
    group = torch.arange(90) % 3
    h = torch.randn(90, 20, generator=generator) + 8 * torch.eye(20)[group]
    places = tsne_map(h)
    assert places.shape == (90, 2)
    centered = places - places.mean(0)
    near = torch.cdist(centered, centered).fill_diagonal_(torch.inf).argmin(1)
    assert (group[near] == group).all()
    assert trustworthiness(h.numpy(), places.numpy(), n_neighbors=10) > 0.85
    assert torch.equal(places, tsne_map(h))
    assert torch.equal(places, tsne_map(h, iterations=tsne.ITERATIONS))
    assert not torch.equal(places, tsne_map(h, iterations=(20, 20)))
    assert len(nearest_neighbors(h, 1)) == 90


@pytest.mark.parametrize("n", [4, 5])
def test_few_or_equal_examples_have_a_map(n: int) -> None:
    assert tsne_map(torch.ones(n, 1)).isfinite().all()


def test_too_few_are_refused() -> None:
    with pytest.raises(ValueError, match="4 examples at least, got 3"):
        tsne_map(torch.rand(3, 2))


@each_value(
    (("n", "dim"), [(60, 9), (9, 60), (60, 60), (9, 1), (60, 50), (50, 60)]), ("exact", [2048, 40])
)
def test_it_starts_from_the_two_strongest_directions(
    n: int, dim: int, exact: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tsne, "_EXACT", exact)
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(n, dim, generator=generator, dtype=torch.float64)
    h *= torch.arange(1, dim + 1) ** -0.7
    centered = h - h.mean(0)
    u, sigma, _ = torch.linalg.svd(centered, full_matrices=False)
    places = tsne.pca_projection(centered, seed=0)
    expected = (u * sigma)[:, :2]
    turned = places * (places * expected).sum(0).sign()
    torch.testing.assert_close(turned, expected, rtol=0, atol=1e-5)
    assert torch.equal(places, tsne.pca_projection(centered, seed=0))


def test_far_more_dimensions_than_examples_take_no_time() -> None:
    """A matrix of dimensions by dimensions would take 20 GB."""
    h = torch.randn(20, 50_000, generator=torch.Generator().manual_seed(0))
    assert tsne_map(h).shape == (20, 2)
