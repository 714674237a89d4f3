import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from widefield.probes import suggest as module
from widefield.probes.suggest import suggest


def brute_force(h, labeled, probabilities) -> list[float]:
    """How much doubt each example would cover, by loops; only of the class with fewest labels."""
    classes = [int(np.argmax(p)) for p in probabilities]
    unit = [row / max(np.linalg.norm(row), 1e-12) for row in h - h.mean(0)]
    rest = [i for i in range(len(h)) if i not in labeled]
    growth = []
    for i in range(len(h)):
        total = 0.0
        for j in rest:
            second, first = sorted(probabilities[j])[-2:]
            covered = max([0.0, *(unit[k] @ unit[j] for k in labeled)])
            total += (1 - (first - second)) * max(0.0, unit[i] @ unit[j] - covered)
        labels = {k: sum(classes[j] == k for j in labeled) for k in {classes[j] for j in rest}}
        is_fewest = labels.get(classes[i]) == min(labels.values())
        growth.append(total if i in rest and is_fewest else -1.0)
    return growth


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(3, 12), st.integers(1, 2))
def test_each_choice_covers_the_most_doubt(seed: int, n: int, known: int) -> None:
    rng = np.random.default_rng(seed)
    h, p = rng.normal(size=(n, 3)), rng.dirichlet(np.ones(3), size=n)
    labeled = rng.choice(n, known, replace=False)
    chosen = suggest(h, labeled, p, 2)
    for pick in chosen:
        growth = brute_force(h, labeled.tolist(), p)
        assert growth[pick] >= max(growth) - 1e-9
        labeled = np.append(labeled, pick)


def test_a_large_class_does_not_get_all() -> None:
    """Of 60 and 6 examples, all in doubt, one of each class in turn; both are one class without."""
    rng = np.random.default_rng(0)
    h, y = rng.normal(size=(66, 4)), np.array([0] * 60 + [1] * 6)
    h[:, 0] += 3 * y
    p = np.where(y[:, None] == [0, 1], 0.55, 0.45)
    chosen = suggest(h, np.array([0, 60]), p, 8)
    assert y[chosen].sum() == 4
    assert y[suggest(h, np.array([0, 60]), np.tile([0.55, 0.45], (66, 1)), 8)].sum() < 4


def test_all_are_named_once_and_none_that_has_a_label() -> None:
    h, p = np.random.default_rng(0).normal(size=(20, 4)), np.full((20, 2), 0.5)
    chosen = suggest(h, np.array([3, 5]), p, 100)
    assert sorted(chosen) == [i for i in range(20) if i not in (3, 5)]
    assert len(suggest(h, np.array([3]), p, 0)) == 0


def test_doubt_decides_between_equal_crowds() -> None:
    h = np.concatenate([np.tile([1.0, 0.0, 0.0], (6, 1)), np.tile([0.0, 1.0, 0.0], (6, 1))])
    h = np.concatenate([h, np.tile([0.0, 0.0, 1.0], (6, 1))])
    sure, unsure = [0.99, 0.01], [0.5, 0.5]
    p = np.array([sure] * 6 + [unsure] * 6 + [sure] * 6)
    assert suggest(h, np.array([12]), p, 1)[0] in range(6, 12)
    assert suggest(h, np.array([12]), p[::-1][[*range(6, 12), *range(6), *range(12, 18)]], 1)[
        0
    ] in range(6)


def test_a_large_set_is_sampled_by_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SAMPLE", 400)
    rng = np.random.default_rng(0)
    h, p = rng.normal(size=(450, 3)), rng.dirichlet(np.ones(2), size=450)
    first, again, other = (suggest(h, np.array([0]), p, 5, seed=seed) for seed in (0, 0, 1))
    assert first.tolist() == again.tolist() != other.tolist()


@pytest.mark.parametrize("count", [5, 20, 21, 50, 95, 98, 200])
def test_as_many_are_named_as_were_asked_for(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """More than a sample too, and then those of the first sample are named first."""
    monkeypatch.setattr(module, "_SAMPLE", 20)
    rng = np.random.default_rng(0)
    h, p = rng.normal(size=(100, 4)), rng.dirichlet(np.ones(2), size=100)
    chosen = suggest(h, np.array([0, 1]), p, count)
    assert len(np.unique(chosen)) == len(chosen) == min(count, 98)
    assert not set(chosen) & {0, 1}
    least = min(count, 20)
    assert chosen[:least].tolist() == suggest(h, np.array([0, 1]), p, least).tolist()
