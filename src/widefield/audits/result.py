"""The result of an audit: its tables, its JSON, and advice on what to try next.

Commands in the advice name the encoder and the data of the audit. For a run they name options that
the method of the run has; for another encoder they name none.
"""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from widefield.audits.pictures import Pictures
from widefield.audits.planting import PlantAudit
from widefield.audits.verdict import TaskAudit
from widefield.audits.view_effects import ViewEffects
from widefield.core.errors import option
from widefield.core.files import check_plain_file
from widefield.core.types import Kind
from widefield.core.validation import check
from widefield.data.spec import MEMORY
from widefield.probes.comparison import Comparison
from widefield.probes.outcome import score_text
from widefield.report.tables import ResultTable, TabularResult, percent, percents

# Chosen by hand: an audit takes less than 2 MB (pictures.py).
LARGEST = 2**28
"""Largest size of an audit's file, bytes."""
_FORMAT = 5
_LOSS_SETTINGS = {"logit_scale": "larger", "temperature": "smaller"}
"""Settings that make a loss sensitive to finer differences, and in which direction."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Audit(TabularResult):
    """Results of an audit, and what its figures are drawn from.

    `audit_page(audit)` depends on nothing else.

    Example (of minutes, in docs/tutorials/audit.ipynb)::

        found = widefield.audit("weights.safetensors", "photos", out="audit.html")
        print(found.tasks["class"].line(), found.plants["digits"].line())
    """

    encoder: str
    settings: Mapping[str, Any]
    """Name -> value of the recipe of the run that trained the encoder; empty if it is no run."""
    fitted_on: str
    scored_on: str
    examples: tuple[int, int]
    """Numbers of examples that probes were fitted on, and scored on."""
    tasks: Mapping[str, TaskAudit]
    """The data's own tasks, then the planted ones at their middle grade."""
    plants: Mapping[str, PlantAudit]
    explanations: Mapping[str, ViewEffects]
    """Task that is not learned -> which component of the views removes its feature."""
    wide_probe: str | None
    """Command that probes the wide readout; None for what only Python can name."""
    compared: Mapping[str, Mapping[str, TaskAudit]]
    """Other encoder -> its verdicts on the same data."""
    similarity: Mapping[str, float]
    """Other encoder -> linear CKA of its features with this encoder's, on the images scored."""
    comparisons: Mapping[str, Comparison]
    """Other encoder -> the comparison with it without labels, on images scored."""
    checkpoints: Mapping[int, Mapping[str, TaskAudit]]
    """Epoch -> verdicts of the encoder after it."""
    features: Mapping[str, float | None]
    """Diagnostics of the features of the images scored; None where one is not defined."""
    notes: tuple[str, ...]
    """What may limit the verdicts."""
    seed: int
    widefield: str
    machine: Mapping[str, str]
    pictures: Pictures
    report: Path | None
    """The page that was written."""
    kind: Kind = "images"

    def to_json(self) -> dict[str, Any]:
        """Return plain values, as `widefield audit --json` prints them."""
        values = asdict(self)
        values |= values.pop("pictures")
        return json.loads(json.dumps({"format": _FORMAT, **values}, default=os.fspath))

    def tables(self) -> list[ResultTable]:
        """Return the verdicts of this encoder and of others, and what explains them."""
        verdicts = [
            ResultTable(
                title=f"{name}, scored on {self.scored_on}",
                columns=["task", "verdict", "learned %", *columns],
                rows=rows,
            )
            for name, tasks in {self.encoder: self.tasks, **self.compared}.items()
            for columns, rows in _rows(tasks)
            if rows
        ]
        page = [] if self.report is None else [f"report: {self.report}"]
        return [*verdicts, ResultTable(lines=[*self._lines(), *page])]

    def _lines(self) -> list[str]:
        return [
            *(task.line() for task in self.tasks.values()),
            *(f"why: {effects.line()}" for effects in self.explanations.values()),
            *(f"next: {step}" for step in advice(self)),
            *(
                f"epoch {epoch}: "
                + ", ".join(f"{name} {_learned(task)}" for name, task in tasks.items())
                for epoch, tasks in self.checkpoints.items()
            ),
            *(
                f"linear CKA with {name}: {percent(share)} %"
                for name, share in self.similarity.items()
            ),
            *(
                f"without labels, compared with {name}: {'; '.join(found.lines())}"
                for name, found in self.comparisons.items()
            ),
            *(_differences(self.tasks, tasks, name) for name, tasks in self.compared.items()),
            *(plant.line() for plant in self.plants.values()),
        ]


def read_findings(path: str | Path) -> list[str]:
    """Return the verdict on each task as a sentence, from the JSON of `widefield audit --json`."""
    check_plain_file(Path(path), largest=LARGEST)
    try:
        values = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} holds no JSON: {error}") from error
    if not isinstance(values, dict) or values.get("format") != _FORMAT:
        raise ValueError(f"{path} holds no audit: write one with widefield audit ENCODER --json")
    try:
        tasks = {name: TaskAudit(**task) for name, task in values["tasks"].items()}
        check("tasks", Mapping[str, TaskAudit], tasks)
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ValueError(f"the audit is damaged: {error}") from error
    return [task.line() for task in tasks.values()]


def _differences(tasks: Mapping[str, TaskAudit], others: Mapping[str, TaskAudit], name: str) -> str:
    words: dict[str, list[str]] = {"higher": [], "lower": []}
    for task in sorted(tasks.keys() & others.keys()):
        found = tasks[task].difference_from(others[task])
        if found.verdict in words:
            before, after = (
                score_text(x, tasks[task].measure) for x in (found.before, found.after)
            )
            words[found.verdict].append(f"{task} ({before} to {after})")
    parts = [f"{word}: {', '.join(found) or 'none'}" for word, found in words.items()]
    return f"significant differences from {name}: {'; '.join(parts)}"


def _rows(tasks: Mapping[str, TaskAudit]) -> list[tuple[list[str], list[list[str]]]]:
    """Return columns and rows of the tasks of classes, and of the others, which have no kNN."""
    classes, others = [], []
    for task in tasks.values():
        first = [task.title, task.verdict, _learned(task)]
        floor, ceiling = f" {task.floor_of}", task.ceiling
        if task.measure == "accuracy":
            scores = percents(task.accuracy, task.knn)
            classes.append([*first, *scores, percent(task.floor) + floor, percent(ceiling)])
        else:
            scores = [f"{task.accuracy:.3f}", f"{task.floor:.3f}{floor}", f"{ceiling:.3f}"]
            others.append([*first, *scores])
    return [
        (["linear probe %", "kNN %", "floor %", "ceiling %"], classes),
        (["ridge probe", "floor", "ceiling"], others),
    ]


def _learned(task: TaskAudit) -> str:
    if task.learned_interval is None:
        return "none"
    learned, low, high = (100 * x for x in task.learned_interval)
    return f"{learned:.0f} [{low:.0f}, {high:.0f}]"


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
    command = result.wide_probe
    return "in Python, `probe(features='wide')`" if command is None else f"`{command}`"


def _views(result: Audit, behind: Sequence[str]) -> str:
    for name in behind:
        effects = result.explanations.get(name)
        if effects is None or not effects.is_readable:
            continue
        if effects.keeps is not None:
            command: str | None = option("views", effects.keeps)
            if result.settings and result.fitted_on != MEMORY:  # arrays have no name to type
                command = effects.command(result.encoder, result.fitted_on)
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
            return (
                "More training: nothing rose significantly over the second half of it: more may "
                "not help."
            )
    if not result.settings:  # not a run, so without checkpoints
        return "More training: features that are learned late need it; train for longer."
    return (
        f"More training: `{option('all_checkpoints')}` shows whether the learned share was still "
        f"rising; if so, {raise_it}."
    )


def _increasing(checkpoints: Mapping[int, Mapping[str, TaskAudit]]) -> list[str]:
    end = max(checkpoints)
    half = max((epoch for epoch in checkpoints if 2 * epoch <= end), default=min(checkpoints))
    before, last = checkpoints[half], checkpoints[end]
    return [task for task in last if last[task].difference_from(before[task]).verdict == "higher"]


def _select(result: Audit, *words: str) -> list[str]:
    return [name for name, task in result.tasks.items() if task.verdict in words]


def _join(names: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))
