"""`widefield explore`."""

from pathlib import Path
from typing import Literal

from widefield.cli.output import percent, print_json, print_line


def explore(
    encoder: str,
    data: str,
    /,
    *,
    out: Path,
    labels: Path | None = None,
    tables: Path | None = None,
    features: Literal["pooled", "feature-map", "projected"] = "pooled",
    max_examples: int | None = None,
    overwrite: bool = False,
    seed: int = 0,
    json: bool = False,
) -> None:
    """Draw a page to look at images: map, copies, outliers, clusters, labels to check.

    Parameters
    ----------
    encoder
        Use a run's folder, a file of weights, timm:NAME, torchvision:NAME, random or pixels.
    data
        Read these data, named as for pretrain.
    out
        Write to this .html file, which loads nothing from anywhere.
    labels
        Take labels from this .csv file in place of those that the data have: column path and one
        for each task; images without a label are shown too.
    tables
        Write each finding as a table to this folder too, as Parquet and CSV.
    features
        Take pooled features, the feature-map before pooling, or those projected by the head that
        the run was trained with.
    max_examples
        Take a class-balanced first N examples.
    overwrite
        Replace what is there.
    seed
        Seed the map.
    json
        Print one JSON object.
    """
    from widefield.workflows.explore import explore as call

    found = call(
        encoder,
        data,
        labels=labels,
        features=features,
        max_examples=max_examples,
        out=out,
        tables=tables,
        overwrite=overwrite,
        seed=seed,
    )
    told = found.to_json()
    if json:
        folder = None if tables is None else str(tables)
        print_json({**told, "out": str(out), "tables": folder})
        return
    for note in found.notes:
        print_line(f"note: {note}")
    print_line(
        f"{told['clusters']} clusters, {told['duplicate_groups']} groups of near-duplicates, "
        f"{told['outliers']} outliers"
    )
    for task, suspected in told["suspected_labels"].items():
        print_line(
            f"{task}: {suspected['count']} labels to check; neighbors name the label of "
            f"{percent(suspected['neighbors_agree'])} % of {found.judged(task)}"
        )
    if tables is not None:
        print_line(f"{tables}: {', '.join(found.tables())}")
    print_line(f"{out}: {told['examples']} {found.dataset.kind}")
