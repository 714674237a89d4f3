"""What to do with the encoder of a run: commands that work on it."""

import shlex
from contextlib import suppress
from pathlib import Path

from widefield.data import Dataset
from widefield.data.spec import parse


def next_command(run: Path, dataset: Dataset) -> str:
    """Return a command that works on a run: a probe where there is something to score on."""
    if _has_test_labels(dataset):
        return shlex.join(["widefield", "probe", str(run)])
    return _command("embed", run, dataset, f"{run}.parquet")


def next_steps(run: Path, dataset: Dataset) -> tuple[str, str]:
    """Return what a run's page says of what to do with the encoder."""
    page_command = _command("explore", run, dataset, f"{run}-explore.html")
    first = next_command(run, dataset) if _has_test_labels(dataset) else page_command
    second = _command("embed", run, dataset, f"{run}.parquet")
    return f"`{first}` shows what the features hold", f"`{second}` takes them away"


def _command(name: str, run: Path, dataset: Dataset, out: str) -> str:
    """Return a command on the run's data; those without a name are left for the user to name."""
    spec = "DATA"
    with suppress(ValueError):
        spec = str(parse(dataset.spec))
    return shlex.join(["widefield", name, str(run), spec, "--out", out])


def _has_test_labels(dataset: Dataset) -> bool:
    """Whether this is a training split, whose test split has labels of two classes or more."""
    tasks = dataset.classes.values()
    try:
        return parse(dataset.spec).split == "train" and len(tasks) > 0 and min(map(len, tasks)) > 1
    except ValueError:  # arrays, which have no splits
        return False
