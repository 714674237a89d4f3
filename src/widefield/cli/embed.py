"""`widefield embed`."""

from pathlib import Path
from typing import Literal

from widefield.cli.output import print_json, print_line


def embed(
    encoder: str,
    data: str,
    /,
    *,
    out: Path,
    features: Literal["pooled", "feature-map", "projected"] = "pooled",
    max_examples: int | None = None,
    overwrite: bool = False,
    json: bool = False,
) -> None:
    """Write the features of every example with its index, path and labels.

    Parameters
    ----------
    encoder
        Use a run's folder, a file of weights, timm:NAME, torchvision:NAME, random or pixels.
    data
        Read these data, named as for pretrain.
    out
        Write to this .npz or .parquet file, or, without a suffix, to this folder, with an index of
        faiss (pip install 'widefield[faiss]').
    features
        Take pooled features, the feature-map before pooling, or those projected by the head that
        the run was trained with.
    max_examples
        Take a class-balanced first N examples.
    overwrite
        Replace the file if it is there.
    json
        Print one JSON object.
    """
    from widefield.workflows.embed import embed as call

    embedding = call(
        encoder, data, features=features, max_examples=max_examples, out=out, overwrite=overwrite
    )
    n, dim = embedding.features.shape
    if json:
        tasks = list(embedding.labels)
        notes = list(embedding.notes)
        print_json({"out": str(out), "examples": n, "dim": dim, "tasks": tasks, "notes": notes})
    else:
        for note in embedding.notes:
            print_line(f"note: {note}")
        print_line(f"{out}: {n} x {dim} features")
