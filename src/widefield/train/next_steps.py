"""Suggested commands for the encoder of a run."""

import shlex
from contextlib import suppress
from pathlib import Path

from widefield.data import Dataset
from widefield.data.spec import parse


def next_command(run: Path, dataset: Dataset, encoder: str = "") -> str:
    """Return a command for a run: a probe if its data have labeled test examples."""
    if _has_test_labels(dataset):
        return shlex.join(["widefield", "probe", _named(run, encoder)])
    return _command("embed", _named(run, encoder), dataset, f"{run}.parquet")


def next_steps(run: Path, dataset: Dataset, encoder: str) -> tuple[str, str]:
    """Return the next steps on the page of a run; `encoder` is the name of its encoder."""
    named = _named(run, encoder)
    page_command = _command("explore", named, dataset, f"{run}-explore.html")
    first = next_command(run, dataset, encoder) if _has_test_labels(dataset) else page_command
    second = _command("embed", named, dataset, f"{run}.parquet")
    return f"`{first}` shows what the features hold", f"`{second}` takes them away"


def _named(run: Path, encoder: str) -> str:
    """Return how commands name a run, with the file of a network of one's own."""
    return f"{run}@{encoder}" if ".py:" in encoder else str(run)


def _command(name: str, run: str, dataset: Dataset, out: str) -> str:
    """Return a command on the run's data, or on DATA where these have no name."""
    spec = "DATA"
    with suppress(ValueError):
        spec = str(parse(dataset.spec))
    return shlex.join(["widefield", name, run, spec, "--out", out])


def _has_test_labels(dataset: Dataset) -> bool:
    """Return whether this is a training split with labels of two classes or more."""
    tasks = dataset.classes.values()
    try:
        return parse(dataset.spec).split == "train" and len(tasks) > 0 and min(map(len, tasks)) > 1
    except ValueError:  # arrays, which have no splits
        return False
