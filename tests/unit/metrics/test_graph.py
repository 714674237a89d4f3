import sys

import numpy as np
import pytest
import torch
from sklearn.neighbors import NearestNeighbors

from widefield.metrics import (
    Graph,
    graph,
    graph_overlap,
    nearest_neighbors,
    neighbor_graph,
    neighbors,
)


def rows(n: int, dim: int = 5) -> torch.Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(0))


def test_the_graph_is_scikit_learns(monkeypatch: pytest.MonkeyPatch) -> None:
    unit = torch.nn.functional.normalize(rows(70), dim=1)
    distance, index = NearestNeighbors(n_neighbors=6).fit(unit.numpy()).kneighbors()
    found = neighbor_graph(rows(70), 6)
    assert found.index.tolist() == index.tolist()
    assert found.distance == pytest.approx(distance, abs=1e-5)
    assert (len(found), found.k) == (70, 6)
    monkeypatch.setattr(neighbors, "_SIMILARITIES", 70 * 9)
    monkeypatch.setattr(neighbors, "_MIN_ROWS", 1)
    monkeypatch.setattr(graph, "_VALUES", 70 * 9)
    assert neighbor_graph(rows(70), 6).index.tolist() == index.tolist()


@pytest.mark.parametrize("exact", [1000, 50])
def test_rows_of_a_group_are_no_neighbors(exact: int) -> None:
    """By all pairs, and by an index that may lack rows."""
    h, groups = rows(90).repeat(4, 1), np.arange(360) % 90
    h += 0.01 * rows(360)
    unit = torch.nn.functional.normalize(h, dim=1)
    cosine = (unit @ unit.T).numpy()
    cosine[groups[:, None] == groups] = -2
    best = np.sort(cosine, axis=1)[:, ::-1][:, :8]
    found = neighbor_graph(h, 8, groups=groups, exact=exact)
    assert (groups[found.index] != groups[:, None]).all()
    close = np.isclose(np.take_along_axis(cosine, found.index, 1), best, atol=1e-5)
    assert close.mean() == (1 if exact == 1000 else pytest.approx(1, abs=0.3))
    with pytest.raises(ValueError, match="choose 1 to 356"):
        neighbor_graph(h, 357, groups=groups, exact=exact)


def test_small_distances_are_no_noise() -> None:
    """From a cosine in single precision they would be: 1 - 5e-9 rounds to 1."""
    h = torch.cat([rows(30, 64), rows(30, 64)])
    h[30:] += 1e-4 * torch.eye(64)[:30] * h[:30].norm(dim=1, keepdim=True)
    assert neighbor_graph(h, 3).distance[:, 0] == pytest.approx(1e-4, rel=0.2)


def test_features_with_a_large_mean_are_ordered_as_they_lie() -> None:
    """Their cosines differ by less than single precision holds; chords do not."""
    h = 1 + 0.001 * rows(400, 64)
    found = neighbor_graph(h, 10)
    exact = nearest_neighbors(h, 10)
    assert graph_overlap(torch.from_numpy(found.index), exact) > 0.99
    assert (np.diff(found.distance) >= 0).all()


def test_no_example_is_its_own_neighbor_even_among_copies() -> None:
    for exact in (10, 1000):
        found = neighbor_graph(torch.ones(300, 4), 5, exact=exact)
        assert (found.index != torch.arange(300).numpy()[:, None]).all()
        assert all(len(set(line)) == 5 for line in found.index.tolist())
        assert (found.distance == 0).all()


def test_an_index_finds_nearly_all_of_them() -> None:
    h = rows(3000, 8)
    exact, found = neighbor_graph(h, 10), neighbor_graph(h, 10, exact=100)
    shared = graph_overlap(torch.from_numpy(exact.index), torch.from_numpy(found.index))
    assert 0.7 < shared < 1
    assert found.index.min() >= 0
    assert isinstance(found, Graph)


def test_many_rows_without_faiss_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "faiss", None)
    assert neighbor_graph(rows(20), 3).k == 3
    with pytest.raises(ValueError, match=r"pip install 'widefield\[faiss\]'"):
        neighbor_graph(rows(20), 3, exact=19)


@pytest.mark.parametrize("k", [0, 20])
def test_too_many_neighbors_are_refused(k: int) -> None:
    with pytest.raises(ValueError, match=f"k is {k} and there are 20 examples: choose 1 to 19"):
        neighbor_graph(rows(20), k)


@pytest.mark.parametrize("exact", [10, 1000])
def test_rows_of_zeros_are_at_right_angles_to_all_others(exact: int) -> None:
    """In the middle of the sphere they were the nearest neighbors of everybody."""
    h = (rows(400, 32) > 1).float()
    h[[13, 200]] = 0
    found = neighbor_graph(h, 12, exact=exact)
    unit = torch.nn.functional.normalize(h.double(), dim=1)
    cosine = unit @ unit.T
    cosine[13, 200] = cosine[200, 13] = 1
    near = torch.from_numpy(found.index)
    assert 1 - found.distance**2 / 2 == pytest.approx(cosine.gather(1, near).numpy(), abs=1e-5)
    assert found.distance[[13, 200], 0].tolist() == [0, 0]
    assert found.index[[13, 200], 0].tolist() == [200, 13]
    others = np.delete(found.index, [13, 200], axis=0)
    assert not np.isin(others[:, 0], [13, 200]).any()


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20])
def test_the_graph_does_not_see_the_scale(scale: float) -> None:
    plain, scaled = (neighbor_graph(s * rows(70), 6) for s in (1, scale))
    assert scaled.index.tolist() == plain.index.tolist()
    assert scaled.distance == pytest.approx(plain.distance, abs=1e-6)
