import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from sklearn.cluster import HDBSCAN
from torch import Tensor

from widefield.metrics import (
    Graph,
    density_clusters,
    near_duplicates,
    neighbor_graph,
    outliers,
    suspected_labels,
    typical,
)


def rows(n: int, dim: int = 16, seed: int = 0) -> Tensor:
    return torch.randn(n, dim, generator=torch.Generator().manual_seed(seed))


def duplicates(h: Tensor, k: int = 20) -> list[list[int]]:
    return [group.tolist() for group in near_duplicates(neighbor_graph(h, min(k, len(h) - 1)))]


def test_copies_are_found_and_nothing_else() -> None:
    h = rows(400)
    assert duplicates(h) == []
    h[[10, 20]] = h[[30, 40]] + 0.02 * rows(2)
    h[[50, 60]] = h[70].clone()
    assert sorted(duplicates(h)) == [[10, 30], [20, 40], [50, 60, 70]]
    assert duplicates(h)[0] == [50, 60, 70]  # the closest


@pytest.mark.parametrize(("share", "expected"), [(0.5, [[0, 1]]), (0.51, [])])
def test_half_the_ordinary_distance_is_the_border(share: float, expected: list[list[int]]) -> None:
    index = np.array([[j for j in range(9) if j != i] for i in range(9)])
    distance = np.full((9, 8), 0.8, dtype=np.float32)
    distance[[0, 1], 0] = 0.8 * share
    found = near_duplicates(Graph(index=index, distance=distance))
    assert [group.tolist() for group in found] == expected


@pytest.mark.parametrize("copies", [2, 6, 7, 15, 40])
def test_a_group_of_any_size_is_one_group(copies: int) -> None:
    h = rows(300)
    h[:copies] = h[0].clone() + 0.005 * rows(copies, seed=1)
    assert duplicates(h) == [list(range(copies))]


def test_all_alike_is_one_group() -> None:
    assert duplicates(torch.ones(30, 4)) == [list(range(30))]
    assert duplicates(rows(4)) == []


def test_outliers_are_those_far_away() -> None:
    centers = rows(3, 32)
    h = centers[torch.arange(600) % 3] + 0.1 * rows(600, 32)
    assert len(outliers(neighbor_graph(h, 20))) <= 6  # a hundredth
    h[[5, 77]] = torch.stack([-centers.sum(0), 3 * rows(1, 32, seed=3)[0]])
    assert set(outliers(neighbor_graph(h, 20))[:2].tolist()) == {5, 77}
    assert outliers(neighbor_graph(torch.ones(20, 3), 5)).tolist() == []


def test_copies_make_no_outliers_of_the_others() -> None:
    h = rows(100)
    h[:60] = h[0]
    assert outliers(neighbor_graph(h, 10)).tolist() == []
    h[99] *= 1000
    h[99, 0] += 1e9  # alone in its direction
    graph = neighbor_graph(torch.cat([h[:60] + 1, h[60:] / 10 + 1]), 10)
    assert 99 in outliers(graph)


def blobs(n: int = 300, groups: int = 3) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    rng = np.random.default_rng(0)
    group = np.arange(n) % groups
    return 10 * np.eye(groups)[group] + rng.normal(size=(n, groups)), group


def test_clusters_are_the_dense_places_the_largest_first() -> None:
    rng = np.random.default_rng(0)
    group = rng.permutation(np.repeat([0, 1, 2], [200, 100, 60]))
    places = np.array([[0, 0], [50, 0], [0, 50]])[group] + rng.normal(size=(360, 2))
    found = density_clusters(places)
    inside = found >= 0
    assert inside.mean() > 0.8
    assert (found[inside] == group[inside]).all()
    assert (density_clusters(rng.normal(size=(8, 2))) == -1).all()


def test_a_cluster_of_nearly_all_points_is_divided() -> None:
    rng = np.random.default_rng(0)
    centers = [(0, 0), (4, 0), (0, 4), (4, 4), (8, 0)]
    near = [rng.normal(center, 0.9, (80, 2)) for center in centers]
    places = np.concatenate([*near, rng.normal(60, 0.5, (30, 2))])
    assert HDBSCAN(min_cluster_size=5, copy=True).fit(places).labels_.max() == 1  # the control
    found = density_clusters(places)
    group = np.repeat(range(6), [80] * 5 + [30])
    assert found.max() == 5
    assert (found >= 0).mean() > 0.8
    shares = [np.bincount(group[found == k]).max() / (found == k).sum() for k in range(6)]
    assert min(shares) > 0.9


@pytest.mark.parametrize("copies", [20, 200])
def test_copies_are_one_cluster(copies: int) -> None:
    rng = np.random.default_rng(0)
    places = 60 * rng.normal(size=(copies + 80, 2))  # a map spreads copies over any shape
    places[:copies] = np.eye(2)[np.arange(copies) % 2] * 40 + rng.normal(size=(copies, 2))
    group = np.arange(copies)
    assert len(np.unique(density_clusters(places)[group])) > 1  # the control
    found = density_clusters(places, [group])
    assert found[group].tolist() == [0] * copies
    assert sorted(np.unique(found[found >= 0])) == list(range(found.max() + 1))
    alone = np.append(400 * rng.normal(size=(60, 2)), 4000 * rng.normal(size=(12, 2)), axis=0)
    apart = np.arange(60, 72)
    assert len(np.unique(density_clusters(alone, [apart])[apart])) == 1


def test_typical_ones_are_nearest_to_the_mean() -> None:
    h, group = blobs()
    unit = h / np.linalg.norm(h, axis=1, keepdims=True)
    for cluster, found in enumerate(typical(h, group, count=4)):
        mine = np.flatnonzero(group == cluster)
        middle = unit[mine].mean(0)
        order = sorted(mine.tolist(), key=lambda row: -float(unit[row] @ middle))
        assert found.tolist() == order[:4]
    assert typical(h, np.full(300, -1), count=4) == []


def test_wrong_labels_are_suspected_and_right_ones_are_not() -> None:
    h, y = blobs()
    graph = neighbor_graph(torch.from_numpy(h), 30)
    right = suspected_labels(graph, y)
    assert right.rows.tolist() == []
    assert right.agreement == 1
    wrong = y.copy()
    wrong[[4, 90, 200]] = (y[[4, 90, 200]] + 1) % 3
    found = suspected_labels(graph, wrong)
    assert sorted(found.rows.tolist()) == [4, 90, 200]
    assert (found.named == y[found.rows]).all()
    assert found.agreement == pytest.approx(297 / 300)


def test_labels_by_lot_are_hardly_suspected() -> None:
    """The control: neighbors that know nothing of the labels agree on nothing."""
    h, _ = blobs()
    y = np.random.default_rng(1).integers(0, 10, 300)
    found = suspected_labels(neighbor_graph(torch.from_numpy(h), 30), y)
    assert len(found.rows) <= 3
    assert found.agreement < 0.3


@settings(max_examples=30, deadline=None)
@given(st.integers(3, 40), st.integers(1, 6), st.integers(0, 99))
def test_suspects_are_those_of_a_plain_count(n: int, classes: int, seed: int) -> None:
    y = np.random.default_rng(seed).integers(0, classes, n)
    graph = neighbor_graph(rows(n, 4, seed), min(25, n - 1))
    expected = []
    for row in range(n):
        votes = [y[j] for j in graph.index[row][:20]]
        most = max(votes.count(c) for c in votes)
        if y[row] not in votes and most >= len(votes) / 2:
            expected.append(row)
    assert sorted(suspected_labels(graph, y).rows.tolist()) == expected


@pytest.mark.parametrize("scale", [1e-30, 1e20])
def test_typical_ones_do_not_depend_on_the_scale(scale: float) -> None:
    h, group = blobs()
    plain, scaled = (typical(np.float32(s * h), group, count=4) for s in (1, scale))
    assert [rows.tolist() for rows in scaled] == [rows.tolist() for rows in plain]
