"""Advice on what to try next, for the encoder that was audited: one sentence for each verdict.

Commands name the encoder and the data of the audit. For a widefield run it names options that the
method of the run has; for others it names none.
"""

from collections.abc import Mapping, Sequence

from widefield.audits.result import Audit
from widefield.audits.verdict import TaskAudit
from widefield.core.errors import option

_MIN_INCREASE = 0.02
"""Smallest increase of a learned share over the second half of training that counts."""
_LOSS_SETTINGS = {"logit_scale": "larger", "temperature": "smaller"}
"""Settings that make a loss sensitive to finer differences, and in which direction."""


def advice(result: Audit) -> tuple[str, ...]:
    """Return what to try next: another readout, views, method, loss, more training, other data."""
    steps: list[str] = []
    if names := _select(result, "hidden"):
        steps.append(_readout(result, names))
    if behind := _select(result, "lost", "weakened", "not learned"):
        steps += [_views(result, behind), _method(result)]
        steps += _loss(result)
        steps.append(_training(result, behind))
    if names := _select(result, "unclear"):
        steps.append(
            f"Data: the interval of {_join(names)} holds several verdicts. Score on more "
            f"{result.kind}."
        )
    if names := _select(result, "not separable"):
        steps.append(
            f"Data: floor and ceiling nearly meet for {_join(names)}, so no share can be given. "
            f"Score on more {result.kind}, or compare the wide readout with the floors: "
            f"{_wide_probe(result)}"
        )
    if names := _select(result, "easy"):
        steps.append(
            f"Data: {_join(names)} is easy, since features that are not trained predict it too. "
            f"Audit harder features, with other labels or `{option('plant')}`."
        )
    if not steps:
        steps.append(
            f"Nothing asked about is missing: plant harder features with `{option('plant')}`."
        )
    return tuple(steps)


def _readout(result: Audit, names: Sequence[str]) -> str:
    """Return how to read features that are hidden by pooling."""
    tasks = [result.tasks[name] for name in names]
    stages = _join(
        sorted({str(t.best_stage) if t.wide is None else "the wide features" for t in tasks})
    )
    verb = "is" if len(names) == 1 else "are"
    return (
        f"Readout: {_join(names)} {verb} in {stages}, not in the audited features; take the wide "
        f"readout: {_wide_probe(result)}"
    )


def _wide_probe(result: Audit) -> str:
    """Return how to measure the wide readout."""
    command = result.wide_probe
    return "in Python, `probe(features='wide')`" if command is None else f"`{command}`"


def _views(result: Audit, behind: Sequence[str]) -> str:
    """Return views that keep the features, measured where possible."""
    for name in behind:
        effects = result.explanations.get(name)
        if effects is None or not effects.is_readable:
            continue
        if effects.keeps is not None:
            command = effects.command(result.encoder, result.fitted_on) if result.settings else None
            command = command or option("views", effects.keeps)
            return f"Views: {effects.cause or effects.views} removes {name}. Train with `{command}`"
    reason = "Views: an encoder drops the features that views change."
    if "views" not in result.settings:
        return f"{reason} Train with views that leave {_join(behind)} as it is."
    other = "gentle" if result.settings["views"] != "gentle" else "expert"
    return (
        f"{reason} Train with `{option('views', other)}` in place of `{result.settings['views']}` "
        f"and compare that run with this one by `{option('compare')}`, on {_join(behind)}."
    )


def _method(result: Audit) -> str:
    settings = result.settings
    if "method" not in settings:
        return (
            "Method: another objective weighs features differently. Train one on the same "
            f"{result.kind} and compare it with this encoder by `{option('compare')}`."
        )
    return (
        f"Method: objectives weigh features differently. Train with another `{option('method')}` "
        f"than `{settings['method']}` and compare that run with this one by `{option('compare')}`."
    )


def _loss(result: Audit) -> list[str]:
    steps = []
    for name, direction in _LOSS_SETTINGS.items():
        value = result.settings.get(name)
        if value is not None:  # None: not resolved, because the run did not start
            steps.append(
                f"Loss: a {direction} `{name}` than {value:g} contrasts finer differences between "
                f"{result.kind}; set it in a `{option('config')}` file."
            )
    return steps


def _training(result: Audit, behind: Sequence[str]) -> str:
    """Return whether longer training is likely to help, by the checkpoints if they were audited.

    They have to cover all tasks that are behind to show that nothing rose.
    """
    raise_it = f"raise `{option('epochs')}`" if "epochs" in result.settings else "train for longer"
    if len(result.checkpoints) >= 2:
        increasing = _increasing(result.checkpoints)
        if increasing:
            return (
                f"More training: {_join(increasing)} rose over the second half of it; {raise_it}."
            )
        if all(task in row for row in result.checkpoints.values() for task in behind):
            return "More training: nothing rose over the second half of it; more would hardly help."
    if not result.settings:  # not a run, so without checkpoints
        return "More training: features that are learned late need it; train for longer."
    return (
        f"More training: `{option('all_checkpoints')}` shows whether the learned share was still "
        f"rising; if so, {raise_it}."
    )


def _increasing(checkpoints: Mapping[int, Mapping[str, TaskAudit]]) -> list[str]:
    """Return the tasks whose learned share rose over the second half of training."""
    end = max(checkpoints)
    half = max((epoch for epoch in checkpoints if 2 * epoch <= end), default=min(checkpoints))
    before, last = checkpoints[half], checkpoints[end]
    return [task for task in last if last[task].share > before[task].share + _MIN_INCREASE]


def _select(result: Audit, *words: str) -> list[str]:
    return [name for name, task in result.tasks.items() if task.verdict in words]


def _join(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
