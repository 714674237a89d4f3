"""`widefield probe`."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from widefield.cli.output import percent, print_json, print_line, print_table

if TYPE_CHECKING:
    from widefield.workflows.probe import TaskProbe


def probe(
    encoder: str,
    data: str | None = None,
    /,
    *,
    task: str | None = None,
    train_data: str | None = None,
    labels: Path | None = None,
    max_examples: int | None = None,
    features: Literal["pooled", "feature-map", "projected"] | None = None,
    protocol: Literal["linear", "feature-dropout"] = "linear",
    floors: bool = True,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Score each task with probes on frozen features, beside three floors.

    Parameters
    ----------
    encoder
        Probe a run's folder, a file of weights, timm:NAME, torchvision:NAME, random or pixels.
    data
        Score on these data; by default on the test split of the run's data.
    task
        Score this task alone.
    train_data
        Fit on these data; by default on the run's own training data. The data to score on are
        divided 80 / 20 instead where these had no labels, and with --labels.
    labels
        Take labels from this .csv file in place of those that the data have: column path and one
        for each task; examples without one of them are left out.
    max_examples
        Score on a class-balanced first N.
    features
        Take pooled features, the feature-map before pooling, which is the default of the protocol
        feature-dropout, or those projected by the head that the run was trained with.
    protocol
        Fit the best linear probe, or train for 100 epochs of SGD on augmented images as Feature
        Dropout does: by the run's own views if they learned, else by expert:feature-dropout.
    floors
        Score raw pixels, an untrained encoder and the commonest class too, which takes most of the
        time.
    seed
        Seed the validation split that chooses the L2 strength, or the SGD.
    json
        Print one JSON object.
    """
    from widefield.workflows.probe import probe as call

    report = call(
        encoder,
        data,
        train_data=train_data,
        labels=labels,
        task=task,
        max_examples=max_examples,
        features=features,
        protocol=protocol,
        floors=floors,
        seed=seed,
    )
    if json:
        print_json(report.to_json())
        return
    rows = [
        [
            name,
            f"{percent(probed.score.accuracy)}  [{percent(probed.score.low)}, "
            f"{percent(probed.score.high)}]",
            percent(probed.score.knn),
            *(percent(floor.accuracy) for floor in probed.floor.values()),
        ]
        for name, probed in report.tasks.items()
    ]
    names = [f"floor: {name} %" for name in next(iter(report.tasks.values())).floor]
    columns = ["task", "linear probe %  [95 %]", "kNN %", *names]
    print_table(f"{report.encoder}, scored on {report.scored_on}", columns, rows)
    for name, probed in report.tasks.items():
        print_line(_by_class(name, probed))
    how = {
        "linear": "L2 strength chosen on a fifth of it",
        "feature-dropout": f"100 epochs of SGD on views of {report.views}",
    }
    print_line(f"{report.features} features, fitted on {report.fitted_on}; {how[report.protocol]}")
    for note in report.notes:
        print_line(note)
    if report.train_test_overlap:
        count = report.train_test_overlap
        print_line(f"note: {count} of the scored images were in the encoder's training data")


def _by_class(task: str, probed: "TaskProbe") -> str:
    """Say what the classes reach alike, and which is found least."""
    recall = {
        c: r for c, r in zip(probed.classes, probed.score.recall, strict=True) if r is not None
    }
    worst = min(recall, key=recall.__getitem__)
    return (
        f"{task}: mean of the classes {percent(probed.score.balanced_accuracy)} %, "
        f"least {worst} at {percent(recall[worst])} %"
    )
