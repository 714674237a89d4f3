"""`widefield probe`."""

from typing import TYPE_CHECKING, Any

from widefield.cli.output import Notes, percent, print_json, print_line, print_table
from widefield.cli.signature import Json, like

if TYPE_CHECKING:
    from widefield.probes.target_scores import Estimate
    from widefield.workflows.probe_report import ProbeReport, TaskProbe


@like("probe")
def probe(*, json: Json = False, **arguments: Any) -> None:
    """Probe, and print a table of the tasks."""
    from widefield.workflows.probe import probe as call

    notes = Notes()
    report = call(**arguments, on_note=notes.on_note)
    if json:
        print_json(report.to_json())
        return
    if report.tasks:
        _print_classes(report)
    if report.targets:
        _print_targets(report)
    descriptions = {
        "linear": "L2 strength chosen on a fifth of these",
        "feature-dropout": f"100 epochs of SGD on views of {report.views}",
    }
    protocol = descriptions[report.protocol]
    print_line(f"{report.features} features, fitted on {report.fitted_on}; {protocol}")
    notes.print_others(report.notes)
    if report.train_test_overlap:
        count = report.train_test_overlap
        print_line(f"note: {count} of the scored images were in the encoder's training data")


def _print_classes(report: "ProbeReport") -> None:
    has_wide = next(iter(report.tasks.values())).wide is not None
    rows = [
        [
            name,
            f"{percent(result.score.accuracy)}  [{percent(result.score.low)}, "
            f"{percent(result.score.high)}]",
            percent(result.score.knn),
            *([percent(result.wide.accuracy)] if result.wide is not None else []),
            *(percent(floor.accuracy) for floor in result.floor.values()),
        ]
        for name, result in report.tasks.items()
    ]
    names = [f"floor: {name} %" for name in next(iter(report.tasks.values())).floor]
    wide = ["wide features %"] * has_wide
    columns = ["task", "linear-probe accuracy %  [95 %]", "kNN accuracy %", *wide, *names]
    print_table(f"{report.encoder}, scored on {report.scored_on}", columns, rows)
    for name, result in report.tasks.items():
        print_line(_by_class(name, result))


def _print_targets(report: "ProbeReport") -> None:
    """Print R^2 and mean absolute error of numbers, and the average precision of labels."""
    from widefield.probes.target_scores import MEASURES

    first = next(iter(report.targets.values()))
    has_wide = first.wide is not None
    rows = []
    for name, result in report.targets.items():
        score, floors = result.score, list(result.floor.values())
        wide = [] if result.wide is None else [f"{result.wide.accuracy:.3f}"]
        kind = f"{name}: {MEASURES[score.kind]}"
        rows.append([kind, _estimate(score.score), *wide, *(f"{f.accuracy:.3f}" for f in floors)])
        if score.error is not None:
            errors = [f.error.value for f in floors if f.error is not None]
            value, gap = _estimate(score.error), [""] * has_wide
            rows.append(
                [f"{name}: mean absolute error", value, *gap, *(f"{e:.4g}" for e in errors)]
            )
        for label, found in score.labels.items():
            values = [f"{f.labels[label].value:.3f}" for f in floors]
            rows.append([f"  {label}", _estimate(found), *[""] * has_wide, *values])
    names = [f"floor: {name}" for name in first.floor]
    columns = ["target", "ridge probe  [95 %]", *["wide features"] * has_wide, *names]
    print_table(f"{report.encoder}, scored on {report.scored_on}", columns, rows)


def _estimate(found: "Estimate") -> str:
    return f"{found.value:.4g}  [{found.low:.4g}, {found.high:.4g}]"


def _by_class(task: str, result: "TaskProbe") -> str:
    """Return the balanced accuracy of a task, and its lowest recall."""
    recall = {
        c: r for c, r in zip(result.classes, result.score.recall, strict=True) if r is not None
    }
    worst = min(recall, key=recall.__getitem__)
    return (
        f"{task}: balanced accuracy {percent(result.score.balanced_accuracy)} %, "
        f"lowest recall {percent(recall[worst])} % ({worst})"
    )
