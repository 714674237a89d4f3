import pytest
import torch
from sklearn.manifold import trustworthiness

from widefield.diagnose import nearest_neighbours, tsne_map


def test_groups_stay_together_and_neighbours_are_kept() -> None:
    generator = torch.Generator().manual_seed(0)
    group = torch.arange(90) % 3
    h = torch.randn(90, 20, generator=generator) + 8 * torch.eye(20)[group]
    places = tsne_map(h)
    assert places.shape == (90, 2)
    centred = places - places.mean(0)
    near = torch.cdist(centred, centred).fill_diagonal_(torch.inf).argmin(1)
    assert (group[near] == group).all()
    assert trustworthiness(h.numpy(), places.numpy(), n_neighbors=10) > 0.85
    assert torch.equal(places, tsne_map(h))
    assert len(nearest_neighbours(h, 1)) == 90


@pytest.mark.parametrize("n", [4, 5])
def test_few_or_equal_examples_have_a_map(n: int) -> None:
    assert tsne_map(torch.ones(n, 1)).isfinite().all()


def test_too_few_are_refused() -> None:
    with pytest.raises(ValueError, match="4 examples at least, got 3"):
        tsne_map(torch.rand(3, 2))
