import pytest
import torch

from widefield.core.types import Score
from widefield.probes import fit_linear, knn, score


def test_a_score_joins_the_linear_probe_and_the_vote() -> None:
    generator = torch.Generator().manual_seed(0)
    h = torch.randn(150, 6, generator=generator)
    labels = {
        "sign": (h[:, 0] > 0).long(),
        "third": (h[:, 1] > -1).long() + (h[:, 1] > 1).long(),
    }
    train = {task: y[:100] for task, y in labels.items()}
    test = {task: y[100:] for task, y in labels.items()}
    classes = {"sign": 2, "third": 3}
    scores = score(h[:100], train, h[100:], test, classes=classes, seed=4)
    linear = fit_linear(h[:100], train, h[100:], test, classes=classes, seed=4)
    near = knn(h[:100], train, h[100:], test, classes=classes)
    assert list(scores) == ["sign", "third"]
    for task, result in linear.items():
        assert scores[task] == Score(
            task=task,
            accuracy=result.accuracy,
            low=result.low,
            high=result.high,
            knn=near[task],
            balanced_accuracy=scores[task].balanced_accuracy,
            recall=scores[task].recall,
            l2=result.l2,
            classes=classes[task],
            train_examples=100,
            test_examples=50,
        )
    assert scores["sign"].accuracy > 0.85


def test_the_seed_fixes_the_score() -> None:
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(90, 40, generator=generator)
    y = {"t": torch.arange(90) % 3}
    first, second = (score(h, y, h, y, classes={"t": 3}, seed=7) for _ in range(2))
    assert first == second


def test_bad_input_is_refused_before_anything_is_computed() -> None:
    with pytest.raises(ValueError, match="NaN"):
        score(
            torch.full((9, 2), torch.inf),
            {"t": torch.arange(9) % 3},
            torch.ones(9, 2),
            {"t": torch.arange(9) % 3},
            classes={"t": 3},
        )
