"""What the page says in words: a summary of verdicts, and what to try next."""

from dataclasses import replace

from widefield.audits.found import Audit
from widefield.audits.page import advice, summary
from widefield.audits.verdict import TaskAudit, name_of
from widefield.workflows.frozen import open_frozen


def task(name: str, learned: float | None) -> TaskAudit:
    return TaskAudit(
        task=name,
        verdict="not separable" if learned is None else name_of(learned),
        learned=learned,
        learned_low=learned,
        learned_high=learned,
        accuracy=0.5,
        low=0.4,
        high=0.6,
        knn=0.5,
        floor=0.3,
        floor_of="pixels",
        ceiling=0.9,
        classes=3,
        test_examples=100,
    )


def audited(**learned: float | None) -> Audit:
    return Audit(
        encoder="random",
        fitted_on="a",
        scored_on="b",
        examples=(10, 10),
        tasks={name: task(name, share) for name, share in learned.items()},
        plants={},
        trained=(),
        compared={},
        similarity={},
        checkpoints={},
        features={},
        notes=(),
        seed=0,
        report=None,
    )


def test_the_summary_groups_tasks_by_their_verdict() -> None:
    found = audited(letters=0.9, shape=0.5, class_=0.1, digit=0.2, light=None)
    assert summary(found) == (
        "Learned: letters; weakened: shape; suppressed: class_, digit; not separable: light."
    )


def test_the_summary_names_the_encoders_that_it_compares() -> None:
    found = audited(letters=0.9, digit=0.2)
    found = replace(found, compared={"theirs": {"digit": task("digit", 0.8)}})
    assert summary(found) == (
        "random, learned: letters; suppressed: digit. theirs, learned: digit."
    )


def test_what_is_missing_gets_views_method_head_and_training() -> None:
    found = audited(letters=0.9, shape=0.5, digit=0.2)
    steps = advice(found, open_frozen("random"))
    assert [step.partition(":")[0] for step in steps] == [
        "Views",
        "Method",
        "Head",
        "More training",
    ]
    assert "shape and digit" in steps[0]
    assert "letters" not in " ".join(steps)


def test_more_training_is_advised_where_it_was_still_rising() -> None:
    found = audited(shape=0.5, digit=0.2)
    rows = {
        1: {"shape": task("shape", 0.5), "digit": task("digit", 0.1)},
        2: {"shape": task("shape", 0.5), "digit": task("digit", 0.2)},
    }
    steps = advice(replace(found, checkpoints=rows), open_frozen("random"))
    expected = "More training: digit rose over the second half of it; raise `--epochs`."
    assert steps[-1] == expected
    rows[4] = rows[2]  # it rose in the first half alone
    steps = advice(replace(found, checkpoints=rows), open_frozen("random"))
    assert "nothing rose over the second half" in steps[-1]


def test_nothing_missing_and_nothing_to_tell_are_said() -> None:
    frozen = open_frozen("random")
    assert "Nothing asked about is missing" in advice(audited(shape=0.9), frozen)[0]
    (step,) = advice(audited(shape=0.9, light=None), frozen)
    assert step.startswith("For light floor and ceiling nearly meet")
