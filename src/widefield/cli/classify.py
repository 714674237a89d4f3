"""`widefield classify`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from widefield.cli.output import Notes, percent, print_json, print_line, print_table
from widefield.cli.signature import Json, like

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from widefield.workflows.classify_result import Classification
    from widefield.workflows.classify_targets import TargetPrediction


@like("classify")
def classify(*, out: Path, json: Json = False, **arguments: Any) -> None:
    """Predict classes, and print their cross-validated accuracy."""
    from widefield.workflows.classify import classify as call
    from widefield.workflows.classify import page_of
    from widefield.workflows.classify_targets import TargetPrediction

    notes = Notes()
    result = call(**arguments, out=out, on_note=notes.on_note)
    if isinstance(result, TargetPrediction):
        if json:
            print_json({**result.to_json(), "out": str(out)})
            return
        _print_target(result)
        notes.print_others(result.notes)
        print_line(f"{out}: {len(result.paths)} predictions from {result.given.known.sum()}")
        return
    if json:
        print_json({**result.to_json(), "out": str(out), "page": str(page_of(out))})
        return
    _print(result)
    notes.print_others(result.notes)
    print_line(f"{page_of(out)}: the least certain predictions, to be corrected")
    print_line(f"{out}: {len(result.paths)} predictions from {len(result.labels)} labels")


def _print(result: "Classification") -> None:
    checked, predicted = result.cross_validation, result.predicted
    given = list(result.labels.values())
    if checked is None:
        print_line(
            "no cross-validation: fewer than two classes have two labels or groups, give more"
        )
    else:
        print_table(
            f"{result.encoder}, cross-validated on {len(result.labels)} labels",
            ["class", "labels", "recall %", "most often confused with", "predicted"],
            [
                [
                    name,
                    str(given.count(name)),
                    percent(checked.recall[name]) if checked.confusion[k].any() else "",
                    _confused_with(result.classes, checked.confusion[k], k),
                    str(predicted.count(name)),
                ]
                for k, name in enumerate(result.classes)
            ],
        )
        print_line(
            f"accuracy {percent(checked.accuracy)} % [{percent(checked.low)}, "
            f"{percent(checked.high)}], balanced accuracy {percent(checked.balanced_accuracy)} %"
        )
        for line in checked.lines():
            print_line(line)
    for path in result.suggested:
        print_line(f"label next: {path}")


def _print_target(result: "TargetPrediction") -> None:
    """Print the average precision of each label, and the scores beside their floors."""
    checked = result.cross_validation
    if checked is not None and checked.labels:
        print_table(
            f"{result.encoder}, cross-validated on {checked.test_examples} examples",
            ["label", "share %", "average precision  [95 %]"],
            [
                [
                    name,
                    percent(checked.share[name]),
                    f"{found.value:.3f}  [{found.low:.3f}, {found.high:.3f}]",
                ]
                for name, found in checked.labels.items()
            ],
        )
    for line in result.lines():
        print_line(line)


def _confused_with(classes: tuple[str, ...], row: "NDArray[np.int64]", label: int) -> str:
    others = {name: int(row[k]) for k, name in enumerate(classes) if k != label}
    worst = max(others, key=others.__getitem__)
    return f"{worst} ({others[worst]})" if others[worst] else ""
