import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from widefield.metrics import graph_overlap, nearest_neighbors
from widefield.metrics import neighbors as neighbors


def test_neighbors_are_scikit_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    h = torch.randn(70, 5, generator=torch.Generator().manual_seed(0))
    found = NearestNeighbors(n_neighbors=6, metric="cosine", algorithm="brute").fit(h.numpy())
    expected = found.kneighbors(return_distance=False)  # without an argument: not of itself
    assert nearest_neighbors(h, 6).tolist() == expected.tolist()
    monkeypatch.setattr(neighbors, "_SIMILARITIES", 70 * 9)
    monkeypatch.setattr(neighbors, "_MIN_ROWS", 1)
    assert nearest_neighbors(h, 6).tolist() == expected.tolist()


def test_overlap_counts_the_shared_ones() -> None:
    generator = torch.Generator().manual_seed(0)
    first, second = (
        torch.stack([torch.randperm(30, generator=generator)[:8] for _ in range(40)])
        for _ in range(2)
    )
    pairs = zip(first.tolist(), second.tolist(), strict=True)
    expected = sum(len(set(a) & set(b)) / 8 for a, b in pairs) / 40
    assert graph_overlap(first, second) == pytest.approx(expected)
    assert graph_overlap(first, first.flip(1)) == 1


def test_unrelated_features_overlap_by_chance() -> None:
    generator = torch.Generator().manual_seed(0)
    one, two = (nearest_neighbors(torch.randn(400, 8, generator=generator), 20) for _ in "ab")
    assert graph_overlap(one, two) == pytest.approx(20 / 399, abs=0.02)


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="k is 5 and there are 5 examples: choose 1 to 4"):
        nearest_neighbors(torch.rand(5, 2), 5)
    with pytest.raises(ValueError, match="same number of neighbors"):
        graph_overlap(torch.zeros(3, 2), torch.zeros(3, 1))


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20])
def test_neighbors_do_not_see_the_scale(scale: float) -> None:
    h = torch.randn(70, 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(nearest_neighbors(scale * h, 6), nearest_neighbors(h, 6))
