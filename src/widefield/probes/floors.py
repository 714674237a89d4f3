"""Floors of a score, above which features show that something was learned."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

import numpy as np

from widefield.data.table import Table
from widefield.probes.outcome import Outcome, class_outcome, target_outcome
from widefield.probes.score import split_groups

FLOORS = {
    "pixels": "raw pixels",
    "random": "an untrained encoder",
    "dictionary": "a dictionary of patches",
    "majority": "the commonest class",
    "mean": "the mean prediction",
}

TaskOutcomes = Mapping[str, Outcome]
E = TypeVar("E")


def best(outcomes: Iterable[TaskOutcomes]) -> dict[str, Outcome]:
    """Return the highest outcome of each task, the first of equals."""
    candidates = list(outcomes)  # a generator builds one network after the other
    return {
        task: max((each[task] for each in candidates), key=lambda outcome: outcome.value)
        for task in candidates[0]
    }


def floors(
    score: Callable[[E], TaskOutcomes],
    *,
    pixels: E,
    untrained: Iterable[E],
    dictionary: E,
    constant: TaskOutcomes,
) -> dict[str, dict[str, Outcome]]:
    """Return task -> floor -> outcome, with `score` of pixels, untrained encoders and a dictionary.

    The best of the untrained encoders counts, task by task. `constant` are the outcomes of constant
    predictions.
    """
    of_pixels, of_untrained, of_dictionary = (
        score(pixels),
        best(map(score, untrained)),
        score(dictionary),
    )
    return {
        task: {
            "pixels": of_pixels[task],
            "random": of_untrained[task],
            "dictionary": of_dictionary[task],
            "majority" if outcome.measure == "accuracy" else "mean": outcome,
        }
        for task, outcome in constant.items()
    }


def constant_outcomes(train: Table, test: Table) -> dict[str, Outcome]:
    """Return the outcomes of predicting the commonest class or the mean of training examples."""
    _, groups = split_groups(train, test) or (None, None)
    found = {}
    for task, y in train.labels.items():
        majority = np.full_like(test.labels[task], np.bincount(y).argmax())
        outcome = class_outcome(majority, test.labels[task], train.classes[task], groups=groups)
        # kNN with all training examples votes for the commonest class too.
        found[task] = replace(outcome, knn=outcome.value, train_examples=len(y))
    for task, target in train.targets.items():
        mean = np.broadcast_to(target.values.mean(0), test.targets[task].values.shape)
        outcome = target_outcome(test.targets[task], mean, groups=groups)
        found[task] = replace(outcome, train_examples=len(target.values))
    return found
