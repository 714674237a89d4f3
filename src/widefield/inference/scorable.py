"""The part of training and test data that probes can be fitted and scored on."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from widefield.data import Dataset
from widefield.data.labels.text import folded

# Chosen by hand: a note is one line.
_MAX_NAMES = 3
"""Classes that a note on small classes names."""


def scorable(train: Dataset, test: Dataset) -> tuple[Dataset, Dataset]:
    """Return the part of the data that probes can be fitted and scored on.

    Test labels become class ids of the training data. Left out, with a note each, are test examples
    of other classes, classes with fewer than two examples to fit on, labels of several that do not
    vary, and beside other tasks those that cannot be scored, or not on half of the test examples.
    """
    tasks = (*train.labels, *train.targets)
    rows_of: dict[str, _TaskRows] = {}
    problems: dict[str, str] = {}
    for task in tasks:
        try:
            if task in train.labels:
                rows_of[task] = _valid_rows(train, test, task)
            else:
                train, test = _drop_constant(train, test, task)
        except ValueError as error:
            problems[task] = str(error)
    for task, (_, score_mask, _, _) in rows_of.items():
        if 2 * score_mask.sum() < len(score_mask) and len(problems) + 1 < len(tasks):
            problems[task] = (
                f"task {task!r}: {int((~score_mask).sum())} of {len(score_mask)} test examples "
                "have no class with two examples to fit on"
            )
    if len(problems) == len(tasks) > 0:
        raise ValueError(next(iter(problems.values())))
    if problems:
        rest = [task for task in tasks if task not in problems]
        left = [f"left out: {problem}" for problem in problems.values()]
        train, test = with_tasks(train, rest).with_notes(*left), with_tasks(test, rest)
    return _select_rows(train, test, {task: rows_of[task] for task in train.labels})


_TaskRows = tuple[
    NDArray[np.bool_], NDArray[np.bool_], NDArray[np.int64], tuple[list[str], list[str]]
]
"""Training and test examples that a task of classes can be fitted and scored on, bool [n] and [m],
class ids of the latter, and notes on both."""


def _valid_rows(train: Dataset, test: Dataset, task: str) -> _TaskRows:
    if task not in test.labels:
        raise ValueError(
            f"{test.spec} has no labels of task {task!r}, which {train.spec} has: leave it "
            "out of these, or score on data that have it"
        )
    names, others = train.classes[task], test.classes[task]
    class_of = _class_ids(names, others)
    ids = class_of[test.labels[task]]
    notes: tuple[list[str], list[str]] = [], []
    renamed = [k for k, y in enumerate(class_of.tolist()) if y >= 0 and names[y] != others[k]]
    notes[1].extend(
        f"{others[k]!r} of {task!r} is the class {names[class_of[k]]!r} that probes are fitted to"
        for k in renamed[:_MAX_NAMES]
    )
    unknown = ids < 0
    if unknown.any():
        left = [others[k] for k in np.unique(test.labels[task][unknown])]
        if unknown.all():
            raise ValueError(
                f"task {task!r}: class {left[0]!r} of {test.spec} is not in {train.spec}: "
                "score on data with the same classes"
            )
        notes[1].append(
            f"task {task!r}: {unknown.sum()} examples to score are left out, of classes without "
            f"one to fit on: {_join_names(left)}"
        )
    counts = np.bincount(train.labels[task], minlength=len(names))
    test_counts = np.bincount(ids[~unknown], minlength=len(names))
    if (counts + test_counts > 0).sum() < 2:
        raise ValueError(f"task {task!r}: labels hold one class: two are needed")
    is_small = counts < 2
    if (~is_small).sum() < 2:
        raise ValueError(
            f"task {task!r}: labels hold fewer than two classes of two examples to fit on in "
            f"{train.spec}: give more of them"
        )
    if dropped := counts[is_small].sum() + test_counts[is_small].sum():
        left = [names[k] for k in np.flatnonzero(is_small & (counts + test_counts > 0))]
        notes[0].append(
            f"task {task!r}: {dropped} examples are left out, of classes with fewer than two to "
            f"fit on: {_join_names(left)}"
        )
    score_mask = ~unknown & ~np.append(is_small, True)[ids]
    if not score_mask.any():
        raise ValueError(
            f"task {task!r}: no test example has a class with two examples to fit on in "
            f"{train.spec}: give more of them"
        )
    return ~is_small[train.labels[task]], score_mask, ids, notes


def _class_ids(names: Sequence[str], others: Sequence[str]) -> NDArray[np.int64]:
    """Return the position in `names` of each of the other class names, -1 for none.

    Names are equal that differ by case or by a decimal .0, as in a table, where no other has both.
    """
    exact = {name: k for k, name in enumerate(names)}
    counts, other_counts = (Counter(map(folded, x)) for x in (names, others))
    position = {folded(name): k for name, k in exact.items() if counts[folded(name)] == 1}
    ids = []
    for name in others:
        match = position.get(folded(name), -1)
        ids.append(exact.get(name, match if other_counts[folded(name)] == 1 else -1))
    return np.array(ids, dtype=np.int64)


def _select_rows(
    train: Dataset, test: Dataset, rows_of: Mapping[str, _TaskRows]
) -> tuple[Dataset, Dataset]:
    fit_mask, score_mask = (np.ones(len(half), dtype=bool) for half in (train, test))
    for fit, score, _, _ in rows_of.values():
        fit_mask &= fit
        score_mask &= score
    if not score_mask.any():
        raise ValueError(
            f"no example of {test.spec} has classes of {train.spec} in all tasks: give one task"
        )
    test = replace(
        test,
        labels=test.labels | {task: ids for task, (_, _, ids, _) in rows_of.items()},
        classes=test.classes | train.classes,
    )
    notes = [[note for *_, both in rows_of.values() for note in both[half]] for half in (0, 1)]
    if not score_mask.all():
        test = test.subset(np.flatnonzero(score_mask))
    if not fit_mask.all():
        train = train.subset(np.flatnonzero(fit_mask))
    train, test = train.with_notes(*notes[0]), test.with_notes(*notes[1])
    if fit_mask.all() and score_mask.all():
        return train, test
    # What one task leaves out can take the second example of another task's class, or all that vary
    # in a number.
    return scorable(train, test)


def _drop_constant(train: Dataset, test: Dataset, task: str) -> tuple[Dataset, Dataset]:
    """Return the data without labels of a task of several that too few examples have, or lack."""
    target, other = train.targets[task], test.targets.get(task)
    if other is None:
        raise ValueError(
            f"{test.spec} has no {target.kind} {task!r}, which {train.spec} has: leave "
            "it out of these, or score on data that have it"
        )
    train_values, test_values = target.values, other.values
    if target.kind == "number":
        if np.ptp(train_values) == 0 or np.ptp(test_values) == 0:
            raise ValueError(f"task {task!r}: the number is the same for all: give others")
        return train, test
    min_count = np.minimum(train_values.sum(0), (1 - train_values).sum(0))
    is_valid = (min_count >= 2) & (np.ptp(test_values, axis=0) > 0)
    if not is_valid.any():
        raise ValueError(
            f"task {task!r}: no label has two examples with it and two without to fit on, and "
            "one of each to score: give more of them"
        )
    if is_valid.all():
        return train, test
    left = [name for name, kept in zip(target.labels, is_valid, strict=True) if not kept]
    note = f"task {task!r}: left out are labels that too few examples have or lack: "
    kept = np.flatnonzero(is_valid)
    train, test = (
        replace(half, targets=half.targets | {task: half.targets[task].only(kept)})
        for half in (train, test)
    )
    return train.with_notes(note + _join_names(left)), test


def _join_names(names: Sequence[str]) -> str:
    text = ", ".join(map(repr, names[:_MAX_NAMES]))
    return f"{text} and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else text


def with_tasks(dataset: Dataset, tasks: Sequence[str]) -> Dataset:
    """Return the same examples, with the labels and targets of some tasks alone."""
    return replace(
        dataset,
        labels={task: dataset.labels[task] for task in tasks if task in dataset.labels},
        classes={task: dataset.classes[task] for task in tasks if task in dataset.classes},
        targets={task: dataset.targets[task] for task in tasks if task in dataset.targets},
    )
