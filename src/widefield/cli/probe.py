"""`widefield probe`."""

from typing import Literal

from widefield.cli.output import percent, print_json, print_line, print_table


def probe(
    encoder: str,
    data: str | None = None,
    /,
    *,
    task: str | None = None,
    fit_on: str | None = None,
    limit: int | None = None,
    features: Literal["pooled", "prepool"] | None = None,
    protocol: Literal["linear", "fd"] = "linear",
    floors: bool = True,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Score what can be read off frozen features, beside two floors.

    Parameters
    ----------
    encoder
        A run's folder, a file of weights, timm:NAME, torchvision:NAME, random or pixels.
    data
        What to score on; by default the test split of the run's data.
    task
        Score this task alone.
    fit_on
        What to fit on; by default the run's own training data.
    limit
        Score on a class-balanced first N.
    features
        pooled, or prepool for the feature map before pooling, the default of the protocol fd.
    protocol
        linear: the best linear probe; fd: Feature Dropout's, 100 epochs of SGD on augmented images.
    floors
        Probe raw pixels and an untrained encoder too, which takes most of the time.
    seed
        Of the validation split that chooses the L2 strength, or of the SGD.
    json
        Print one JSON object.
    """
    from widefield.workflows.probe import probe as call

    report = call(
        encoder,
        data,
        fit_on=fit_on,
        task=task,
        limit=limit,
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
            f"{percent(found.score.accuracy)}  [{percent(found.score.low)}, "
            f"{percent(found.score.high)}]",
            percent(found.score.knn),
            *(percent(floor.accuracy) for floor in found.floor.values()),
        ]
        for name, found in report.tasks.items()
    ]
    names = [f"floor: {name} %" for name in next(iter(report.tasks.values())).floor]
    columns = ["task", "linear probe %  [95 %]", "kNN %", *names]
    print_table(f"{report.encoder}, scored on {report.scored_on}", columns, rows)
    how = {
        "linear": "L2 strength chosen on a fifth of it",
        "fd": "100 epochs of SGD on augmented images",
    }
    print_line(f"{report.features} features, fitted on {report.fitted_on}; {how[report.protocol]}")
    for note in report.notes:
        print_line(note)
    if report.seen:
        print_line(f"note: {report.seen} of the scored images were in the encoder's training data")
