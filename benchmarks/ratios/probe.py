"""The linear probe beside scikit-learn's logistic regression.

Run by `python -m benchmarks.ratios.probe --json benchmarks/results/bench_probe.json`.
"""

import statistics
import time

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import Tensor

from widefield.probes import fit_linear
from widefield.probes.linear import L2_GRID

from .command import Result, command

_CLASSES = 10


def bench(*, examples: int = 5000, dim: int = 512, tasks: int = 2, seed: int = 0) -> Result:
    """Time and accuracy of the whole probe, ours and scikit-learn's, on made-up features.

    Both standardize, choose among the same L2 strengths on a stratified fifth of the `examples`
    and refit on all of them; as many fresh examples test. They take turns three times, and the
    medians of the seconds are returned. The features lie in memory as float32, each task has ten
    classes, accuracies are means over tasks. The ratio is scikit-learn's time over ours.
    """
    h, labels = made_up_features(2 * examples, dim, tasks, seed)
    train = h[:examples], {task: y[:examples] for task, y in labels.items()}
    test = h[examples:], {task: y[examples:] for task, y in labels.items()}
    seconds: dict[str, list[float]] = {"widefield": [], "sklearn": []}
    values: dict[str, float] = {}
    for _ in range(3):
        for name, probe in (("widefield", _widefield), ("sklearn", _sklearn)):
            started = time.perf_counter()
            accuracies = probe(*train, *test, seed)
            seconds[name].append(time.perf_counter() - started)
            values[f"{name} accuracy"] = statistics.mean(accuracies)
    for name, times in seconds.items():
        values[f"{name} seconds"] = statistics.median(times)
    ratio = values["sklearn seconds"] / values["widefield seconds"]
    return {"ratios": {"sklearn/widefield": ratio}, "values": values}


def made_up_features(
    examples: int, dim: int, tasks: int, seed: int
) -> tuple[Tensor, dict[str, Tensor]]:
    """Features float32 [examples, dim] and labels that resemble a pretrained encoder's.

    Every task has a random mean for each class in a space of 64 factors. Their sum and some noise
    pass through a random layer with a ReLU, so that features are correlated, never negative and
    skewed, and their loudness falls off as a power law; linear probes get about two in three.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    factors = 4 * normal(examples, 64)
    labels = {}
    for task in range(tasks):
        y = torch.randint(_CLASSES, (examples,), generator=generator)
        factors += normal(_CLASSES, 64)[y]
        labels[f"task {task}"] = y
    loudness = torch.arange(1, 65) ** -0.6
    hidden = (factors * loudness @ normal(64, dim) + normal(dim)).relu()
    return hidden + 0.1 * normal(examples, dim).abs(), labels


def _widefield(
    train_h: Tensor,
    train_labels: dict[str, Tensor],
    test_h: Tensor,
    test_labels: dict[str, Tensor],
    seed: int,
) -> list[float]:
    classes = dict.fromkeys(train_labels, _CLASSES)
    results = fit_linear(train_h, train_labels, test_h, test_labels, classes=classes, seed=seed)
    return [result.outcome.value for result in results.values()]


def _sklearn(
    train_h: Tensor,
    train_labels: dict[str, Tensor],
    test_h: Tensor,
    test_labels: dict[str, Tensor],
    seed: int,
) -> list[float]:
    scaler = StandardScaler().fit(train_h.numpy())
    x, test_x = scaler.transform(train_h.numpy()), scaler.transform(test_h.numpy())
    accuracies = []
    for task, labels in train_labels.items():
        y = labels.numpy()
        fit_x, held_x, fit_y, held_y = train_test_split(
            x, y, test_size=0.2, stratify=y, random_state=seed
        )

        trials = {l2: _regression(fit_x, fit_y, l2) for l2 in L2_GRID}
        best = max(trials, key=lambda l2: trials[l2].score(held_x, held_y))
        accuracies.append(_regression(x, y, best).score(test_x, test_labels[task].numpy()))
    return accuracies


def _regression(x: np.ndarray, y: np.ndarray, l2: float) -> LogisticRegression:
    """Fit mean cross-entropy + l2 / 2 |W|^2, the objective of our probe."""
    return LogisticRegression(C=1 / (len(y) * l2), max_iter=2000).fit(x, y)


if __name__ == "__main__":
    command(bench)
