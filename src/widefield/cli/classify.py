"""`widefield classify`."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from widefield.cli.output import percent, print_json, print_line, print_table

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from widefield.workflows.classify import Classification


def classify(
    encoder: str,
    data: str,
    /,
    *,
    labels: Path,
    out: Path,
    features: Literal["pooled", "feature-map", "projected"] = "pooled",
    suggest: int = 0,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Predict the class of every image from the labels of a few.

    Parameters
    ----------
    encoder
        Use a run's folder, a file of weights, timm:NAME, torchvision:NAME, random or pixels.
    data
        Read these data, named as for pretrain.
    labels
        Take labels from this .csv file, whose first line is path,label; paths are those that embed
        writes, or lead to the file.
    out
        Write to this .parquet or .csv file: path, label, predicted class and probabilities.
    features
        Take pooled features, the feature-map before pooling, or those projected by the head that
        the run was trained with.
    suggest
        Name so many images whose labels would help most.
    overwrite
        Replace the file if it is there.
    seed
        Seed the folds of cross-validation.
    json
        Print one JSON object.
    """
    from widefield.workflows.classify import classify as call

    result = call(
        encoder,
        data,
        labels=labels,
        features=features,
        suggest=suggest,
        out=out,
        overwrite=overwrite,
        seed=seed,
    )
    if json:
        print_json({**result.to_json(), "out": str(out)})
        return
    _tell(result)
    for note in result.notes:
        print_line(f"note: {note}")
    print_line(f"{out}: {len(result.paths)} predictions from {len(result.given)} labels")


def _tell(result: "Classification") -> None:
    checked, predicted = result.cross_validation, result.predicted
    if checked is None:
        print_line("a class has one label: give two of each to learn how far predictions hold")
    else:
        print_table(
            f"{result.encoder}, cross-validated on {len(result.given)} labels",
            ["class", "labels", "found %", "most often taken for", "predicted"],
            [
                [
                    name,
                    str(checked.confusion[k].sum()),
                    percent(checked.recall[name]),
                    _mistaken_for(result.classes, checked.confusion[k], k),
                    str(predicted.count(name)),
                ]
                for k, name in enumerate(result.classes)
            ],
        )
        print_line(
            f"accuracy {percent(checked.accuracy)} % [{percent(checked.low)}, "
            f"{percent(checked.high)}], mean of the classes {percent(checked.balanced_accuracy)} %"
        )
    for path in result.suggested:
        print_line(f"label next: {path}")


def _mistaken_for(classes: tuple[str, ...], row: "NDArray[np.int64]", own: int) -> str:
    others = {name: int(row[k]) for k, name in enumerate(classes) if k != own}
    worst = max(others, key=others.__getitem__)
    return f"{worst} ({others[worst]})" if others[worst] else ""
