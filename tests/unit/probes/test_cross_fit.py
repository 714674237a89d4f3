import numpy as np
import torch

from widefield.probes.cross_fit import knn_accuracies, knn_hits, rows_of_common_classes


def test_votes_equal_those_that_are_counted_one_by_one() -> None:
    rng = np.random.default_rng(0)
    h = rng.normal(size=(60, 4))
    y = rng.integers(0, 3, 60)
    unit = h / np.linalg.norm(h, axis=1, keepdims=True)
    right = []
    for i, row in enumerate(unit):
        near = np.argsort(-(unit @ row + np.where(np.arange(60) == i, -9, 0)))[:6]  # a tenth of 60
        counts = np.bincount(y[near], minlength=3)
        first = next(label for label in y[near] if counts[label] == counts.max())
        right.append(first == y[i])  # the nearest one of those with equal counts
    got = knn_hits(torch.from_numpy(h), y, np.arange(60))
    assert got.tolist() == right


def test_votes_do_not_depend_on_the_order_of_the_classes() -> None:
    rng = np.random.default_rng(0)
    for n in (20, 40, 60):
        h, y = torch.from_numpy(rng.normal(size=(n, 4))), rng.integers(0, 3, n)
        renamed = np.array([2, 0, 1])[y]
        rows = np.arange(n)
        assert knn_hits(h, y, rows).tolist() == knn_hits(h, renamed, rows).tolist()


def test_classes_that_lie_apart_are_predicted_and_mixed_ones_are_not() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(200) % 2
    noise = rng.normal(size=(200, 8))
    apart = torch.from_numpy(noise + 9 * y[:, None] * np.eye(8)[0] - 4.5 * np.eye(8)[0])
    assert knn_accuracies(apart, {"side": y})["side"] == 1.0
    assert 0.3 < knn_accuracies(torch.from_numpy(noise), {"side": y})["side"] < 0.7


def test_tasks_that_cannot_be_judged_are_left_out() -> None:
    h = torch.rand(6, 3, generator=torch.Generator().manual_seed(0))
    labels = {"alone": np.arange(6), "same": np.zeros(6, np.int64), "two": np.arange(6) % 2}
    assert list(knn_accuracies(h, labels)) == ["two"]
    assert rows_of_common_classes(np.array([0, 0, 1]), 2).tolist() == []
