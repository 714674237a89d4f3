import importlib
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield.metrics import neighbors
from widefield.probes import knn


def brute_force(
    train: np.ndarray, labels: np.ndarray, test: np.ndarray, classes: int, k: int, t: float
) -> np.ndarray:
    guesses = []
    for row in test:
        cosine = [row @ other / np.linalg.norm(row) / np.linalg.norm(other) for other in train]
        votes = np.zeros(classes)
        for i in sorted(range(len(train)), key=lambda i: -cosine[i])[:k]:
            votes[labels[i]] += np.exp(cosine[i] / t)
        guesses.append(votes.argmax())
    return np.array(guesses)


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    train=st.integers(1, 40),
    k=st.integers(1, 30),
    temperature=st.sampled_from([0.07, 0.5, 10.0]),
)
def test_equals_brute_force(seed: int, train: int, k: int, temperature: float) -> None:
    rng = np.random.default_rng(seed)
    h, queries = rng.normal(size=(train, 5)), rng.normal(size=(15, 5))
    labels, truth = rng.integers(0, 3, train), rng.integers(0, 3, 15)
    expected = (brute_force(h, labels, queries, 3, k, temperature) == truth).mean()
    got = knn(
        torch.from_numpy(h).float(),
        {"task": torch.from_numpy(labels)},
        torch.from_numpy(queries).float(),
        {"task": torch.from_numpy(truth)},
        classes={"task": 3},
        k=k,
        temperature=temperature,
    )
    assert got["task"] == pytest.approx(expected)


def test_chunks_and_tasks_do_not_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(81, 6, generator=generator)
    labels = {task: torch.randint(0, 4, (81,), generator=generator) for task in ("a", "b")}
    train = {task: y[:50] for task, y in labels.items()}
    test = {task: y[50:] for task, y in labels.items()}
    whole = knn(h[:50], train, h[50:], test, classes={"a": 4, "b": 4})
    assert whole["a"] != whole["b"]
    module = importlib.import_module("widefield.probes.knn")  # the package's name is the function
    monkeypatch.setattr(module, "_ROWS", 20)
    monkeypatch.setattr(neighbors, "_SIMILARITIES", 7 * 50)
    monkeypatch.setattr(neighbors, "_MIN_ROWS", 1)
    assert knn(h[:50], train, h[50:], test, classes={"a": 4, "b": 4}) == whole
    assert knn(h[:50], train, h[50:], test, classes={"b": 4}) == {"b": whole["b"]}


def test_length_of_features_does_not_matter() -> None:
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(60, 4, generator=generator)
    y = {"task": (h[:, 0] > 0).long()}
    scaled = h * torch.rand(60, 1, generator=generator).add(0.01)
    classes = {"task": 2}
    assert knn(h, y, h, y, classes=classes) == knn(scaled, y, 1000 * scaled, y, classes=classes)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"k": 0}, "k is 0: give the number of neighbors"),
        ({"h": torch.full((20, 3), torch.nan)}, "training features contain NaN"),
        ({"h": torch.full((20, 3), 1e39, dtype=torch.float64)}, "training features contain NaN"),
        ({"y": torch.arange(80) % 2}, r"labels have shape \[80\] for 20 rows"),
        ({"y": torch.arange(20) % 2 > 0}, "labels have dtype torch.bool: give class ids, int64"),
        ({"test_h": torch.ones(0, 3), "test_y": torch.arange(0)}, r"test features .* n > 0"),
    ],
)
def test_input_that_cannot_work_is_refused(change: dict[str, Any], reason: str) -> None:
    given = {"h": torch.ones(20, 3), "y": torch.arange(20) % 2, "k": 5}
    given |= {"test_h": torch.ones(4, 3), "test_y": torch.arange(4) % 2, **change}
    test = given["test_h"], {"t": given["test_y"]}
    with pytest.raises(ValueError, match=reason):
        knn(given["h"], {"t": given["y"]}, *test, classes={"t": 2}, k=given["k"])


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20])
def test_no_scale_is_too_small_or_too_large(scale: float) -> None:
    generator = torch.Generator().manual_seed(1)
    h, noise = torch.randn(2, 60, 4, generator=generator)
    y, classes = {"task": (h[:, 0] > 0).long()}, {"task": 2}
    votes = knn(h, y, h + noise, y, classes=classes)
    assert votes["task"] > 0.6
    assert knn(scale * h, y, scale * (h + noise), y, classes=classes) == votes
