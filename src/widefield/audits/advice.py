"""What to try next, for the encoder that was audited.

A run of widefield is told of settings that its own recipe has, and of no others; the maker of any
other encoder is told in words.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from widefield.audits.result import Audit
from widefield.audits.verdict import TaskAudit
from widefield.train.run_dir import RunFolder

_RISE = 0.02
"""Least rise of a learned share over the second half of training that counts as one."""
_FINER = {"logit_scale": "larger", "temperature": "smaller"}
"""Settings that make a loss ask for finer differences between images, and which way."""


def run_settings(run: RunFolder) -> dict[str, Any]:
    """Return name -> value of every setting of the recipe of `run`."""
    return run.recipe().flat()


def advice(audit: Audit) -> tuple[str, ...]:
    """Say what to try next: views, method, loss, more training, other data."""
    behind = _with_verdict(audit, "suppressed", "weakened")
    unclear = _with_verdict(audit, "unclear")
    inseparable = _with_verdict(audit, "not separable")
    steps: list[str] = []
    if behind:
        steps += [_views(audit.settings, behind), _method(audit)]
        steps += _finer(audit)
        steps.append(_training(audit, behind))
    if unclear:
        steps.append(
            f"Data: the interval of {_listed(unclear)} holds several verdicts. Score on more "
            f"{audit.kind}."
        )
    if inseparable:
        steps.append(
            f"Data: floor and ceiling nearly meet for {_listed(inseparable)}. Score on more "
            f"{audit.kind}, or choose data in which raw pixels tell less."
        )
    if not steps:
        steps.append("Nothing asked about is missing: plant harder features with `--plant`.")
    return tuple(steps)


def _views(settings: Mapping[str, Any], behind: Sequence[str]) -> str:
    lead = "Views: an encoder drops the features that views change."
    if "views" not in settings:
        return f"{lead} Train with views that leave {_listed(behind)} as it is."
    other = "gentle" if settings["views"] != "gentle" else "expert"
    return (
        f"{lead} Train with `--views {other}` in place of `{settings['views']}` and put that run "
        f"beside this one with `--compare`, looking at {_listed(behind)}."
    )


def _method(audit: Audit) -> str:
    settings = audit.settings
    if "method" not in settings:
        return (
            "Method: another objective weighs features differently. Train one on the same "
            f"{audit.kind} and put it beside this encoder with `--compare`."
        )
    return (
        f"Method: objectives weigh features differently. Train with another `--method` than "
        f"`{settings['method']}` and put that run beside this one with `--compare`."
    )


def _finer(audit: Audit) -> list[str]:
    steps = []
    for name, way in _FINER.items():
        value = audit.settings.get(name)
        if value is not None:  # None: the run chose it by its length, and never began
            steps.append(
                f"Loss: a {way} `--{name.replace('_', '-')}` than {value:g} asks for finer "
                f"differences between {audit.kind}."
            )
    return steps


def _training(audit: Audit, behind: Sequence[str]) -> str:
    """Say whether longer training is likely to help, from the checkpoints if they were judged.

    That nothing rose is said only if all tasks that are behind were judged there.
    """
    raise_it = "raise `--epochs`" if "epochs" in audit.settings else "train for longer"
    if len(audit.checkpoints) >= 2:
        rising = _rising(audit.checkpoints)
        if rising:
            return f"More training: {_listed(rising)} rose over the second half of it; {raise_it}."
        if all(task in row for row in audit.checkpoints.values() for task in behind):
            return "More training: nothing rose over the second half of it; more would hardly help."
    if not audit.settings:  # there are no checkpoints to look back at
        return "More training: features that are learned late need it; train for longer."
    return (
        "More training: `--all-checkpoints` shows whether the learned share was still rising; if "
        f"so, {raise_it}."
    )


def _rising(checkpoints: Mapping[int, Mapping[str, TaskAudit]]) -> list[str]:
    """Return the tasks whose learned share rose over the second half of training."""
    end = max(checkpoints)
    half = max((epoch for epoch in checkpoints if 2 * epoch <= end), default=min(checkpoints))
    before, last = checkpoints[half], checkpoints[end]
    return [task for task in last if _learned(last[task]) > _learned(before[task]) + _RISE]


def _learned(task: TaskAudit) -> float:
    return float("nan") if task.learned is None else task.learned


def _with_verdict(audit: Audit, *words: str) -> list[str]:
    return [name for name, task in audit.tasks.items() if task.verdict in words]


def _listed(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
